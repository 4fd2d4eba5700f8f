"""The items that a report shows: which ones, what they are called, small pictures of them, and crops that search for the whole."""

from __future__ import annotations

import difflib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import DataLoader

from obdsd.data import Collection, Part, open_data
from obdsd.data.loading import loader_workers
from obdsd.errors import InputError
from obdsd.evaluation.embedding import Labelled
from obdsd.evaluation.points import Points

MOST = 6_000  # items: their pictures must fit into one page
TRAINING_CLASSES = 20  # on the map of training classes, as in the paper
CROPS = 500  # queries of which a crop searches
SIDE = 56  # pixels of a picture's longer side
QUALITY = 70  # of WebP: less than a kilobyte for a photograph
CROP_SIDE = 0.5  # of the image's sides, for a crop that searches


@dataclass(frozen=True, eq=False, kw_only=True)
class Shown:
    """The items of a report, numbered through its parts; each part's items search the part that `searched` says."""

    parts: Mapping[str, Part]
    searched: Mapping[str, str]
    left_out: int  # items of the scored parts that are too many for one page

    @property
    def classes(self) -> list[str]:
        """The scored ones first."""
        return list(dict.fromkeys(name for part in self.parts.values() for name in part.class_names))

    @property
    def labels(self) -> NDArray[np.int64]:
        """Numbers of `classes`, which are the same for all parts."""
        number = {name: place for place, name in enumerate(self.classes)}
        return np.concatenate([np.array([number[name] for name in part.class_names])[part.labels] for part in self.parts.values()])

    @property
    def names(self) -> list[str]:
        return [part.name(index) for part in self.parts.values() for index in range(len(part))]

    @property
    def groups(self) -> NDArray[np.int64]:
        """What no item may find of its class: its group, or where there are none itself."""
        numbers = np.arange(sum(map(len, self.parts.values())))
        given = [part.groups for part in self.parts.values()]
        return np.concatenate([numbers[self.numbers(name)] if own is None else own for name, own in zip(self.parts, given, strict=True)])

    @property
    def asking(self) -> str:
        """The part whose items are scored as queries."""
        return next(iter(self.parts))

    def numbers(self, part: str) -> NDArray[np.int64]:
        """Of a part's items."""
        sizes = [len(found) for found in self.parts.values()]
        place = list(self.parts).index(part)
        return np.arange(sum(sizes[:place]), sum(sizes[: place + 1]))

    def points(self, rows: NDArray[np.float32], numbers: NDArray[np.int64], whose: NDArray[np.int64] | None = None) -> Points:
        """These items with their rows, or with rows that stand for them: `rows[whose]`, by default their own."""
        return Points(rows[numbers if whose is None else whose], self.labels[numbers], self.groups[numbers])


def choose_items(
    collection: Collection, score: str, points: Literal["test", "train"], asked: Sequence[str] = (), seed: int = 0, most: int = MOST
) -> Shown:
    """The scored items, at most `most` of them: whole classes by seed, those of the items asked for first; and what the map shows."""
    if score == "validation":
        parts, searched = {"val": collection["val"]}, {"val": "val"}
    elif "query" in collection.parts:
        parts, searched = {name: collection[name] for name in ("query", "gallery")}, {"query": "gallery", "gallery": "gallery"}
    else:
        parts, searched = {"test": collection["test"]}, {"test": "test"}
    total = sum(map(len, parts.values()))
    if total > most:
        parts = _some_classes(parts, set(asked), seed, most)
    left_out = total - sum(map(len, parts.values()))
    if points == "train":
        train = collection["train"]
        parts["train"] = train.only(range(min(TRAINING_CLASSES, len(train.class_names))))
        searched["train"] = "train"
    return Shown(parts=parts, searched=searched, left_out=left_out)


def _some_classes(parts: dict[str, Part], asked: set[str], seed: int, most: int) -> dict[str, Part]:
    """Whole classes while they fit. All parts number the same classes."""
    classes = len(next(iter(parts.values())).class_names)
    sizes = sum(np.bincount(part.labels, minlength=classes) for part in parts.values())
    first = {int(part.labels[i]) for part in parts.values() for i in range(len(part) if asked else 0) if part.name(i) in asked}
    order = np.random.default_rng(seed).permutation(classes)
    order = np.array([*sorted(first), *(c for c in order.tolist() if c not in first)])
    fit = int((np.cumsum(np.asarray(sizes)[order]) <= most).sum())
    chosen = np.sort(order[: max(fit, len(first), 2)]).tolist()
    return {name: part.only(chosen) for name, part in parts.items()}


def read_queries(file: Path, collection: Collection, score: str) -> list[str]:
    """The names in a file, one a line, each of which must be that of a scored item."""
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    except UnicodeError as damage:
        raise InputError(f"queries={file}: is no text file ({damage.__class__.__name__}); give one item name a line") from damage
    scored = choose_items(collection, score, "test", most=2**62)
    known = set(scored.names)
    for number, line in enumerate(lines, start=1):
        if line and line not in known:
            close = difflib.get_close_matches(line, sorted(known), n=1, cutoff=0.3)
            remedy = f"did you mean {close[0]!r}?" if close else f"names are such as {scored.names[0]!r}"
            raise InputError(f"queries={file}, line {number}: {line!r} is no item of {' or '.join(scored.parts)}; {remedy}")
    if not any(lines):
        raise InputError(f"queries={file}: holds no name; give one item name a line, such as {scored.names[0]!r}")
    return list(dict.fromkeys(line for line in lines if line))


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
    if isinstance(part.items.read(int(part.positions[0])), torch.Tensor):
        advance(len(part))
        return [None] * len(part)
    return [*pictures(part.replace(transform=thumbnail), loader_workers(None, part), advance)]
