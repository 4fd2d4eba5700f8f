"""Images that are decoded once, for all trainings on them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from obdsd.data.collection import Collection
from obdsd.data.items import ImageFiles
from obdsd.data.part import Part
from obdsd.data.store import Key, Store, opened_or_built
from obdsd.data.transforms import Shrunk, evaluation_transform, pixels_of, resized
from obdsd.errors import InputError
from obdsd.preprocessing import Preprocessing

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class Reduced:
    """Image files whose shorter side is at most `side`; smaller ones stay as they are, and 0 reduces none.

    What is read is the same with a store and without."""

    files: ImageFiles
    side: int
    interpolation: str
    store: Store | None = None
    on_disk = True

    def read(self, position: int) -> Tensor | Shrunk:
        return self.decoded(position) if self.store is None else self.store.read(self.key(position))

    def decoded(self, position: int) -> Tensor | Shrunk:
        """From the file."""
        pixels = pixels_of(self.files.read(position))
        if not 0 < self.side < min(pixels.shape[1:]):
            return pixels
        return Shrunk(resized(pixels, self.side, self.interpolation), pixels.shape[1], pixels.shape[2])

    def name(self, position: int) -> str:
        return self.files.name(position)

    def content(self, position: int) -> bytes:
        """That of the file."""
        return self.files.content(position)

    def key(self, position: int) -> Key:
        return self.files.paths[position], None if self.files.boxes is None else self.files.boxes[position]

    def shows_as_files(self, preprocessing: Preprocessing) -> bool:
        """Whether a model sees the same at a test as if files were read: no image was reduced, or each to what the model asks for."""
        asked_for = (self.side, self.interpolation) == (preprocessing.resize, preprocessing.interpolation)
        return self.side == 0 or asked_for or (self.store is not None and not self.store.reduced)


def at_a_test(part: Part, preprocessing: Preprocessing) -> Part:
    """The images of a part as a model sees them at a test. Where they were reduced to another length, their files are read."""
    items = part.items
    if isinstance(items, Reduced) and not items.shows_as_files(preprocessing):
        items = items.files
    return part.replace(items=items, transform=evaluation_transform(preprocessing))


def reduced(part: Part, side: int, interpolation: str) -> Part:
    """The part with its images reduced, where that was not done before."""
    return part.replace(items=Reduced(part.items, side, interpolation)) if side and isinstance(part.items, ImageFiles) else part


def decoded(
    collection: Collection, folder: Path, side: int, interpolation: str, progress: Progress = lambda stage, done, total: None
) -> tuple[Collection, str]:
    """The collection with its images from a store in the folder, which is built if need be; and a line about it."""
    files, *others = {id(part.items): part.items for part in collection.parts.values()}.values()
    if others or not isinstance(files, ImageFiles):
        raise InputError(f"cache={folder} is for image files below one folder, {collection.name} is something else; leave it out")
    bare = Reduced(files, side, interpolation)
    root = os.path.abspath(files.root)
    key = hashlib.blake2b(repr((root, side, side and interpolation)).encode(errors="backslashreplace"), digest_size=4).hexdigest()
    path = folder.expanduser() / f"{os.path.basename(root) or 'images'}-{side or 'whole'}-{key}.images"
    wanted = {bare.key(position): position for part in collection.parts.values() for position in sorted(part.positions.tolist())}
    store, why = opened_or_built(path, files.root, wanted, bare.decoded, progress)
    items = replace(bare, store=store)
    size = f"with a shorter side of at most {side}" if side else "of their full size"
    line = f"{path}: {len(store.entries):,} images {size}, {store.pixels.size / 2**20:,.0f} MiB{f'; built anew, as {why}' if why else ''}"
    return replace(collection, parts={name: part.replace(items=items) for name, part in collection.parts.items()}), line
