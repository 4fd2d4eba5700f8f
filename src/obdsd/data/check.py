"""Is a collection fit to train on? Reads every item once and names what is wrong."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from obdsd.data.collection import Collection, Part
from obdsd.errors import InputError

CHUNK = 256  # items under way at once: memory stays bounded whatever the size of the collection


@dataclass(frozen=True)
class PartSummary:
    """What a part holds."""

    name: str
    classes: int
    items: int
    singletons: int


@dataclass(frozen=True)
class Findings:
    """What `check` found; `unreadable` and `crossing` make training wrong, singletons do not."""

    parts: list[PartSummary]
    unreadable: list[str] = field(default_factory=list)
    crossing: list[tuple[str, str]] = field(default_factory=list)


def check(collection: Collection, advance: Callable[[int], None] = lambda count: None) -> Findings:
    """Read every item of every part; find the unreadable, and identical content on both sides of the train/test line.

    Content is compared by a hash of the decoded pixels (or of the vector), so that copies under another name, or with other metadata, are
    found too. `advance` is told how many items were done.
    """
    unreadable: list[str] = []
    first_in_training: dict[bytes, str] = {}
    crossing: list[tuple[str, str]] = []
    for name in sorted(collection.parts, key=lambda part: part not in ("train", "val")):
        part = collection[name]
        for index, content in _digests(part, advance):
            if isinstance(content, InputError):
                unreadable.append(str(content))
            elif name in ("train", "val"):
                first_in_training.setdefault(content, f"{name}/{part.name(index)}")
            elif content in first_in_training:
                crossing.append((first_in_training[content], f"{name}/{part.name(index)}"))
    parts = []
    for name, part in collection.parts.items():
        sizes = np.bincount(part.labels, minlength=len(part.class_names))
        parts.append(PartSummary(name, int((sizes > 0).sum()), len(part), int((sizes == 1).sum())))
    return Findings(parts, unreadable, crossing)


def _digests(part: Part, advance: Callable[[int], None]) -> Iterator[tuple[int, bytes | InputError]]:
    def digest(index: int) -> bytes | InputError:
        try:
            content = np.asarray(part.items.read(int(part.positions[index])))
        except InputError as damage:
            return damage
        return hashlib.blake2b(content.tobytes() + str(content.shape).encode(), digest_size=16).digest()

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for start in range(0, len(part), CHUNK):
            indices = range(start, min(start + CHUNK, len(part)))
            yield from zip(indices, pool.map(digest, indices), strict=True)
            advance(len(indices))
