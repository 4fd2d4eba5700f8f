"""Some items with their labels: what a training, an evaluation and a loader of batches are given."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obdsd.data.items import Items, Rows
from obdsd.errors import InputError
from obdsd.provenance import short_digest


@dataclass(frozen=True, eq=False)
class Part:
    """Some items of a collection with their labels: a map-style dataset of (item, label, index).

    Labels number `class_names`. `groups` marks items whose mutual hits are ignored in retrieval (the same camera, the same product
    page). `transform` is applied to the item. `unlabelled` says why items have no labels; they are then of one class without a name.
    """

    items: Items
    positions: NDArray[np.int64]
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    groups: NDArray[np.int64] | None = None
    transform: Callable[[Any], Any] | None = None
    unlabelled: str = ""

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, index: int) -> tuple[Any, int, int]:
        item = self.items.read(int(self.positions[index]))
        return (item if self.transform is None else self.transform(item)), int(self.labels[index]), index

    def name(self, index: int) -> str:
        return self.items.name(int(self.positions[index]))

    @property
    def classes(self) -> NDArray[Any]:
        """The class name of each item. Numbers are each part's own, names are not."""
        return np.asarray(self.class_names)[self.labels]

    @property
    def is_rows(self) -> bool:
        """Whether the items are rows of a matrix, and not images."""
        return isinstance(self.items, Rows)

    def matrix(self) -> NDArray[np.float32]:
        """The items as rows of a matrix, in the order of the part."""
        if not isinstance(self.items, Rows):
            raise InputError(f"{type(self.items).__name__} are no rows of a matrix; embed them with a model first")
        return self.items.matrix[self.positions]

    def fingerprint(self) -> str:
        """A hash of the names, the labels, the groups and the contents: are these still the data that a run began with?"""
        digest = hashlib.blake2b(digest_size=16)
        digest.update("\0".join(self.class_names).encode())
        digest.update(self.labels.tobytes())
        digest.update("\0".join(self.name(index) for index in range(len(self))).encode())
        for position in self.positions.tolist():
            digest.update(self.items.content(position))
        if self.groups is not None:
            digest.update(self.groups.tobytes())
        return digest.hexdigest()

    def digests(self) -> list[str]:
        """A short hash of each item's content, the same under any name and in any collection."""
        return [short_digest(self.items.content(position)) for position in self.positions.tolist()]

    def replace(self, **changes: Any) -> Part:
        """A copy with other labels, another transform, …"""
        return replace(self, **changes)

    def take(self, indices: NDArray[np.int64]) -> Part:
        """These items, in this order."""
        groups = None if self.groups is None else self.groups[indices]
        return replace(self, positions=self.positions[indices], labels=self.labels[indices], groups=groups)

    def only(self, classes: Sequence[int]) -> Part:
        """The items of these classes, numbered anew in this order."""
        number = np.full(len(self.class_names), -1, dtype=np.int64)
        number[np.asarray(classes)] = np.arange(len(classes))
        kept = self.take(np.flatnonzero(number[self.labels] >= 0))
        return replace(kept, labels=number[kept.labels], class_names=tuple(self.class_names[c] for c in classes))
