"""Benchmarks from the address where their authors put them: downloaded, checked by their published checksum, unpacked."""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from obdsd.data import cars196, inshop
from obdsd.data.unpacking import unpack
from obdsd.errors import InputError

Progress = Callable[[str, int, int], None]
MB, CHUNK = 1_000_000, 1 << 20
SECONDS = 30  # that a server may be silent
TRIES, WAIT = 3, 2.0  # how often in a row nothing may come, and the seconds after the first of these
NETWORK = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError)


@dataclass(frozen=True, kw_only=True)
class Archive:
    """A file that somebody serves, how long it is, and the folder that it holds."""

    address: str
    length: int
    sha256: str
    folder: str

    @property
    def name(self) -> str:
        return self.address.rpartition("/")[2]


ARCHIVES = {
    "cub200": Archive(
        address="https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz",
        length=1_150_585_339,
        sha256="0c685df5597a8b24909f6a7c9db6d11e008733779a671760afef78feb49bf081",
        folder="CUB_200_2011",
    ),
    "sop": Archive(
        address="http://ftp.cs.stanford.edu/cs/cvgl/Stanford_Online_Products.zip",
        length=3_083_860_082,
        sha256="b04fa78210e69fab050ce73939550e1cd0f96890bdd98ec9fee732c3b756ef48",
        folder="Stanford_Online_Products",
    ),
}


def get(name: str, to: Path, mirror: str | None = None, progress: Progress = lambda stage, done, total: None) -> Path:
    """The folder of a benchmark below `to`, which was not there before. What a broken download left is gone on with.

    Args:
        name: cub200 or sop.
        to: Where the archive and the folder go.
        mirror: Another address of the same archive, whose checksum must be the same.
        progress: Told the stage, how many megabytes of it are done, and of how many.
    """
    archive = known(name)
    if mirror is not None and not mirror.startswith(("http://", "https://")):
        raise InputError(f"mirror={mirror} must begin with http:// or https://; give the address of {archive.name}")
    folder = to / archive.folder
    if os.path.lexists(folder):
        raise InputError(f"{folder}: is there already; obdsd data check {name}:{folder} looks at it, remove it to get it anew")
    try:
        to.mkdir(parents=True, exist_ok=True)
        with FileLock(to / f".{archive.name}.lock", timeout=0):
            file = fetched(archive, to / archive.name, mirror or archive.address, progress)
            unpack(file, folder, progress)
    except Timeout:
        raise InputError(f"to={to} is being written by another obdsd data get; wait for it, or stop it") from None
    except OSError as failure:
        fault = f"cannot be written ({failure.strerror or failure})"
        raise InputError(f"{to}: {fault}; make room or choose another place, the same command goes on from there") from failure
    return folder


def known(name: str) -> Archive:
    """The archive of a benchmark; what to look for where there is none."""
    if name == "cars196":
        counts = " and ".join(f"{count.images:,} images of {count.classes} classes in {part}" for part, count in cars196.COUNTS.items())
        found = "car_ims.tgz with cars_annos.mat, or class folders such as train/Acura RL Sedan 2012/"
        raise InputError(f"{name}: its official page is gone; look for {found}, obdsd data check cars196:DIR then looks for {counts}")
    if name == "inshop":
        counts = ", ".join(f"{count.images:,} images in {part}" for part, count in inshop.COUNTS.items())
        found = f"the In-shop Clothes Retrieval Benchmark (img.zip and {inshop.LIST})"
        raise InputError(f"{name}: its authors give it on request; ask for {found}, obdsd data check inshop:DIR then looks for {counts}")
    if name not in ARCHIVES:
        raise InputError(f"data={name!r} has no archive to get; there are {' and '.join(ARCHIVES)}")
    return ARCHIVES[name]


def fetched(archive: Archive, file: Path, address: str, progress: Progress) -> Path:
    """The archive at its place, complete and checked; as long as it is not, it has another name."""
    if file.exists():
        if (digest := _digest(file, progress)) != archive.sha256:
            raise InputError(f"{file}: is not the official archive (its SHA-256 is {digest[:12]}…); remove it, then it is downloaded")
        return file
    part = file.with_name(f"{file.name}.part")
    _download(archive, part, address, progress)
    if (digest := _digest(part, progress)) != archive.sha256:
        part.unlink()
        wrong = f"what came is not the official archive (SHA-256 {digest[:12]}…, not {archive.sha256[:12]}…) and was removed"
        raise InputError(f"{address}: {wrong}; try again, or another address with mirror=URL")
    os.replace(part, file)
    return file


def _download(archive: Archive, part: Path, address: str, progress: Progress) -> None:
    """Fill the file; a connection that breaks is made anew and goes on where it was."""
    if _size(part) > archive.length:
        part.unlink()
    needed, free = 2 * archive.length - _size(part), shutil.disk_usage(part.parent).free  # packed and unpacked: images hardly shrink
    if free < needed:
        room = f"has {free / MB:,.0f} MB free, {archive.name} and what is in it take {needed / MB:,.0f} more"
        raise InputError(f"{part.parent}: {room}; make room or choose another place")
    failures = 0
    while (before := _size(part)) < archive.length:
        reason = "the connection ended early"
        try:
            _receive(archive, part, address, progress)
        except NETWORK as failure:
            if isinstance(failure, urllib.error.HTTPError) and failure.code < 500:
                raise InputError(f"{address}: answers {failure.code} {failure.reason}; give another address with mirror=URL") from failure
            reason = " ".join(str(getattr(failure, "reason", failure)).split())[:200] or type(failure).__name__
        failures = 1 if _size(part) > before else failures + 1
        if failures >= TRIES:
            kept = f"{_size(part):,} of {archive.length:,} bytes are there, the same command goes on"
            raise InputError(f"{address}: cannot be had ({reason}); {kept}, mirror=URL takes another address")
        if _size(part) < archive.length:
            time.sleep(WAIT * failures)


def _receive(archive: Archive, part: Path, address: str, progress: Progress) -> None:
    """What one connection gives, from where the file ends if the server can do that, else from the beginning."""
    have = _size(part)
    headers = {"User-Agent": "obdsd"} | ({"Range": f"bytes={have}-"} if have else {})
    with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=SECONDS) as response:
        goes_on = response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        have = have if goes_on else 0
        if response.length is not None and have + response.length != archive.length:
            lengths = f"has {have + response.length:,} bytes, the official archive {archive.length:,}"
            raise InputError(f"{address}: {lengths}; give another address with mirror=URL")
        with open(part, "ab" if goes_on else "wb") as file:
            while have < archive.length and (chunk := response.read(min(CHUNK, archive.length - have))):
                file.write(chunk)
                have += len(chunk)
                progress(f"downloading {archive.name}", have // MB, archive.length // MB)
            file.flush()
            os.fsync(file.fileno())


def _digest(file: Path, progress: Progress) -> str:
    """The SHA-256 of a file."""
    digest, done, total = hashlib.sha256(), 0, _size(file)
    with open(file, "rb") as stream:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
            done += len(chunk)
            progress(f"checking {file.name.removesuffix('.part')}", done // MB, total // MB)
    return digest.hexdigest()


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0
