"""Small pictures of items, and crops of them that search for the whole."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image
from torch.utils.data import DataLoader

from obdsd.data import Part, open_data
from obdsd.data.collection import loader_workers
from obdsd.errors import InputError
from obdsd.evaluation.embedding import Labelled

SIDE = 56  # pixels of a picture's longer side
QUALITY = 70  # of WebP: less than a kilobyte for a photograph
CROP_SIDE = 0.5  # of the image's sides, for a crop that searches


def thumbnail(image: Image.Image) -> bytes:
    """A small picture of the whole image, as WebP; one that is small already keeps its size."""
    small = image.copy()
    small.thumbnail((SIDE, SIDE), Image.Resampling.BICUBIC, reducing_gap=2.0)
    file = io.BytesIO()
    small.save(file, "WEBP", quality=QUALITY)
    return file.getvalue()


@dataclass(frozen=True, eq=False)
class Crops:
    """A seeded crop of each item, half of its sides long: a data set of (crop, label, index)."""

    part: Part
    seed: int
    transform: Callable[[Any], Any]

    def __len__(self) -> int:
        return len(self.part)

    def __getitem__(self, index: int) -> tuple[Any, int, int]:
        image, label, _ = self.part[index]
        width, height = (max(1, round(CROP_SIDE * side)) for side in image.size)
        place = np.random.default_rng((self.seed, int(self.part.positions[index])))
        left, top = (int(place.integers(0, side - length + 1)) for side, length in zip(image.size, (width, height), strict=True))
        return self.transform(image.crop((left, top, left + width, top + height))), label, index


def pictures(items: Labelled, workers: int, advance: Callable[[int], None]) -> list[bytes]:
    """What a data set gives whose items are made thumbnails."""
    found: list[bytes] = []
    loader: DataLoader[Any] = DataLoader(items, 64, num_workers=workers)  # type: ignore[arg-type]
    for small, *_ in loader:
        found += small
        advance(len(small))
    return found


def pictures_by_name(source: str, names: Sequence[str], advance: Callable[[int], None]) -> list[bytes | None]:
    """Pictures of items that are rows, from a collection of the images that the rows were made of: by their names."""
    collection = open_data(source)
    if collection.kind != "images":
        raise InputError(f"pictures={source}: holds {collection.kind}, no images; give the images that were embedded")
    found: dict[str, bytes | None] = {}
    wanted = set(names)
    for part in collection.parts.values():
        chosen = {index: name for index in range(len(part)) if (name := part.name(index)) in wanted}
        if chosen:
            found |= dict(zip(chosen.values(), pictures_of(part.take(np.array(list(chosen))), advance), strict=True))
    if not found:
        raise InputError(f"pictures={source}: has no item of the name {names[0]!r}; give the images that were embedded")
    return [found.get(name) for name in names]


def pictures_of(part: Part, advance: Callable[[int], None]) -> list[bytes | None]:
    """Of each item; None where items are no images."""
    if part.is_rows:
        advance(len(part))
        return [None] * len(part)
    return [*pictures(part.replace(transform=thumbnail), loader_workers(None, part), advance)]
