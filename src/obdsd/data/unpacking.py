"""Unpack an archive that somebody else made: no file of it leaves the folder, and the folder is whole or not there."""

from __future__ import annotations

import gzip
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from obdsd.errors import InputError

MB, CHUNK = 1_000_000, 1 << 20
MOST_TIMES, SLACK = 4, 100 * MB  # what is unpacked may be so many times as long as the archive, and so much more


class Member(NamedTuple):
    name: str
    is_file: bool
    is_folder: bool
    opened: Callable[[], IO[bytes] | None]


def unpack(file: Path, folder: Path, progress: Callable[[str, int, int], None] = lambda stage, done, total: None) -> None:
    """Put what a .tgz or .zip file holds below a folder of that name in the place of that folder, which must not be there yet.

    What lies beside it in the archive is left out. An archive with a path that leads out of it, a link or a device is refused.
    """
    temporary = folder.with_name(f".{folder.name}.unpacking")
    shutil.rmtree(temporary, ignore_errors=True)  # of one that was killed
    temporary.mkdir()  # itself, and not what a link leads to
    left = MOST_TIMES * file.stat().st_size + SLACK
    try:
        with open(file, "rb") as packed:
            for member in _members(file, packed):
                _check(file, member)
                path = PurePosixPath(member.name)
                if member.is_file and len(path.parts) > 1 and path.parts[0] == folder.name:
                    left = _write(file, member, temporary / path, left)
                progress(f"unpacking {file.name}", packed.tell() // MB, file.stat().st_size // MB)
        if not (temporary / folder.name).is_dir():
            raise InputError(f"{file}: holds no folder {folder.name}; get the archive again")
        os.sync()
        os.rename(temporary / folder.name, folder)
    except (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError, RuntimeError) as damage:
        raise InputError(f"{file}: cannot be unpacked ({' '.join(str(damage).split())[:120]}); get the archive again") from damage
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _members(file: Path, packed: IO[bytes]) -> Iterator[Member]:
    if file.suffix == ".zip":
        with zipfile.ZipFile(packed) as archive:
            for info in archive.infolist():
                kind = stat.S_IFMT(info.external_attr >> 16)
                is_file = kind in (0, stat.S_IFREG) and not info.is_dir()
                yield Member(info.filename, is_file, info.is_dir(), partial(archive.open, info))
    else:
        with tarfile.TarFile(fileobj=gzip.GzipFile(fileobj=packed)) as tar:
            for member in tar:
                yield Member(member.name, member.isreg(), member.isdir(), partial(tar.extractfile, member))


def _check(file: Path, member: Member) -> None:
    if not (member.is_file or member.is_folder):
        raise InputError(f"{file}: holds {member.name!r}, which is a link or a device; nothing is unpacked, get the archive elsewhere")
    if member.name.startswith("/") or ".." in member.name.split("/"):
        raise InputError(f"{file}: holds {member.name!r}, which leads out of the folder; nothing is unpacked, get the archive elsewhere")


def _write(file: Path, member: Member, path: Path, left: int) -> int:
    """Write a file, and how many bytes the rest may have."""
    stream = member.opened()
    assert stream is not None  # it is a file
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "xb") as target, stream:
            while chunk := stream.read(CHUNK):
                left -= len(chunk)
                if left < 0:
                    raise InputError(f"{file}: is much larger unpacked than packed, which images are not; get the archive elsewhere")
                target.write(chunk)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"{file}: holds {member.name!r} twice; get the archive elsewhere") from None
    return left
