"""Pixels of many images in one file that is mapped into memory.

The file is a mark, the pixels of all images one after the other (height × width × 3 bytes each), a JSON index of them, and the index's
length and checksum. It is whole or not there; where images changed, another takes its place.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import PIL
import torch
import torchvision
from filelock import FileLock, Timeout
from torch import Tensor

from obdsd.data.collection import some
from obdsd.data.items import Box
from obdsd.data.transforms import Shrunk, pixels_of
from obdsd.errors import InputError
from obdsd.files import check_file, replacing

MARK = b"obdsd images 1\n\n"
CHECKSUM = 16  # bytes
CHUNK = 32  # images under way at once: memory stays bounded
VERSIONS = {"Pillow": PIL.__version__, "torch": torch.__version__, "torchvision": torchvision.__version__}  # that pixels depend on

Key = tuple[str, Box | None]
"""An image by its path below a folder, and the box that is cut out of it."""
Progress = Callable[[str, int, int], None]


class Entry(NamedTuple):
    """An image of a store: which it is, the size and time of its file when it was read, the height and width of what is kept and of the
    whole."""

    path: str
    box: Box | None
    size: int
    time: int
    height: int
    width: int
    whole_height: int
    whole_width: int

    @property
    def reduced(self) -> bool:
        return self[4:6] != self[6:8]


class Store:
    """A file of pixels. One that cannot be used raises a `ValueError`, one that is something else an `InputError`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            if file.read(len(MARK)) != MARK:
                raise InputError(f"{path}: is no cache of images and is left as it is; remove it, or choose another folder by --cache")
            end = file.seek(0, os.SEEK_END) - 8 - CHECKSUM
            file.seek(max(end, 0))
            length, self.checksum = int.from_bytes(file.read(8), "little"), file.read(CHECKSUM)
            file.seek(max(end - length, 0))
            index = file.read(max(0, min(length, end)))
        if _checksum(index) != self.checksum:
            raise ValueError("its end is missing or not what was written")
        known = json.loads(index)
        entries = [Entry(path, None if box is None else tuple(box), *rest) for path, box, *rest in known["images"]]
        self.entries = {(entry.path, entry.box): (number, entry) for number, entry in enumerate(entries)}
        self.starts = np.cumsum([len(MARK), *(3 * entry.height * entry.width for entry in entries)])
        if self.starts[-1] != end - length:
            raise ValueError("some of its pixels are missing")
        self.versions, self.reduced = known["versions"], any(entry.reduced for entry in entries)
        self.pixels = np.asarray(np.memmap(path, np.uint8, "r"))  # a plain array: slices of the other take longer

    def read(self, key: Key) -> Tensor | Shrunk:
        number, entry = self.entries[key]
        copy = np.array(self.pixels[self.starts[number] : self.starts[number + 1]])  # torch wants what can be written to
        pixels = torch.from_numpy(copy).view(entry.height, entry.width, 3).permute(2, 0, 1)
        return Shrunk(pixels, entry.whole_height, entry.whole_width) if entry.reduced else pixels

    def stale(self, root: Path, wanted: Mapping[Key, int]) -> str:
        """What is not as it is now; an empty text if nothing is."""
        if other := [f"{name} {version}" for name, version in VERSIONS.items() if self.versions.get(name) != version]:
            return f"it was not made by {' and '.join(other)}"
        if missing := [path for path, box in wanted if (path, box) not in self.entries]:
            return f"{len(missing):,} of {len(wanted):,} images were not in it: {some(missing)}"
        if changed := [path for path, box in wanted if _stamp(root / path) != self.entries[path, box][1][2:4]]:
            return f"{len(changed):,} of {len(wanted):,} images changed since: {some(changed)}"
        return ""

    def __reduce__(self) -> tuple[Callable[[Path, bytes], Store], tuple[Path, bytes]]:
        """A process that is given a copy maps the file itself."""
        return _again, (self.path, self.checksum)


def _again(path: Path, checksum: bytes) -> Store:
    store = Store(path)
    if store.checksum != checksum:
        raise InputError(f"{path}: was built anew while a training read it; start the training again")
    return store


def opened_or_built(
    path: Path, root: Path, wanted: Mapping[Key, int], read: Callable[[int], Tensor | Shrunk], progress: Progress
) -> tuple[Store, str]:
    """The store at a path, and why it had to be built anew, if so.

    `wanted` has the position of each image; `read` gives what is to be kept of it. Of several processes one builds, and the others wait.
    """
    store, why = _usable(path, root, wanted)
    if store is None:
        with _alone(path, progress):
            store, why = _usable(path, root, wanted)  # another process may have built it meanwhile
            if store is None:
                _build(path, root, wanted, read, progress)
                store = Store(path)
    return store, why


def _usable(path: Path, root: Path, wanted: Mapping[Key, int]) -> tuple[Store | None, str]:
    """The store if there is one that can be used; if there is one that cannot, why."""
    if not os.path.lexists(path):
        return None, ""
    check_file(path)
    try:
        store = Store(path)
    except InputError:
        raise
    except OSError as failure:
        raise InputError(f"{path}: cannot be read ({failure.strerror}); mend that, or choose another folder by --cache") from failure
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as damage:
        return None, f"it was damaged ({' '.join(str(damage).split())[:80]})"
    why = store.stale(root, wanted)
    return (None, why) if why else (store, "")


def _build(path: Path, root: Path, wanted: Mapping[Key, int], read: Callable[[int], Tensor | Shrunk], progress: Progress) -> None:
    stage = "decoding images into the cache"
    entries: list[Entry] = []
    waiting = iter(wanted.items())

    def decode(item: tuple[Key, int]) -> tuple[Entry, Tensor]:
        (file, box), position = item
        size, time = _stamp(root / file)  # before it is read: what changes meanwhile is stale
        image = read(position)
        pixels = pixels_of(image)
        kept: tuple[int, int] = pixels.shape[1], pixels.shape[2]
        return Entry(file, box, size, time, *kept, *(image[1:] if isinstance(image, Shrunk) else kept)), pixels

    with replacing(path) as file, ThreadPoolExecutor(os.cpu_count()) as pool:
        progress(stage, 0, len(wanted))
        file.write(MARK)
        while chunk := list(islice(waiting, CHUNK)):
            for entry, pixels in pool.map(decode, chunk):
                file.write(pixels.permute(1, 2, 0).contiguous().numpy().data)
                entries.append(entry)
            progress(stage, len(entries), len(wanted))
        index = json.dumps({"images": entries, "versions": VERSIONS}).encode()
        file.write(index + len(index).to_bytes(8, "little") + _checksum(index))


@contextmanager
def _alone(path: Path, progress: Progress) -> Iterator[None]:
    """While it lasts, no other process builds the same. Where that cannot be known (no rights, no locks), each builds for itself."""
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    with ExitStack() as held:
        with suppress(OSError, NotImplementedError):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                held.enter_context(lock.acquire(timeout=0))
            except Timeout:
                progress("waiting for another process that builds the cache", 0, 1)
                held.enter_context(lock.acquire())
                progress("waiting for another process that builds the cache", 1, 1)
        yield


def _stamp(path: Path) -> tuple[int, int]:
    """The size of a file and when it was changed."""
    check_file(path)
    about = path.stat()
    return about.st_size, about.st_mtime_ns


def _checksum(index: bytes) -> bytes:
    return hashlib.blake2b(index, digest_size=CHECKSUM).digest()
