"""A labelled collection: parts (train, val, test or query and gallery) of items, with classes that never cross from training to test."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from obdsd.data.items import ImageFiles, Items, Rows
from obdsd.errors import InputError
from obdsd.processes import check_carried
from obdsd.provenance import short_digest

Load = TypeVar("Load", bound=Callable[..., Any])
SPLITS = ("train", "val", "test", "query", "gallery")


@dataclass(frozen=True, eq=False)
class Part:
    """Some items of a collection with their labels: a map-style dataset of (item, label, index).

    Labels number `class_names`. `groups` marks items whose mutual hits are ignored in retrieval (the same camera, the same product
    page). `transform` is applied to the item.
    """

    items: Items
    positions: NDArray[np.int64]
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    groups: NDArray[np.int64] | None = None
    transform: Callable[[Any], Any] | None = None

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


@dataclass(frozen=True, eq=False)
class Collection:
    """Parts by name: `train`, and `test` or both `query` and `gallery`; `val`, held-out training classes, after `hold_out`."""

    name: str
    parts: Mapping[str, Part]

    def __post_init__(self) -> None:
        train = self["train"]
        if len(train.class_names) < 2:
            raise InputError(f"{self.name}: train has one class only ({train.class_names[0]!r}); a metric needs 2 or more to compare")
        if np.bincount(train.labels).max() < 2:
            raise InputError(f"{self.name}: no training class has 2 items; without a pair of one class there is nothing to learn")
        for one, other in itertools.combinations(self.parts, 2):
            shared = sorted({*self.parts[one].class_names} & {*self.parts[other].class_names})
            if shared and {one, other} & {"train", "val"}:  # those that are scored may share theirs
                raise InputError(f"{self.name}: {one} and {other} share {len(shared)} classes ({some(shared, 3)}); split by class")

    def __getitem__(self, name: str) -> Part:
        if name not in self.parts:
            raise InputError(f"{self.name}: there is no part {name!r}; it has {', '.join(self.parts) or 'none'}")
        return self.parts[name]

    @property
    def kind(self) -> Literal["images", "embeddings"]:
        return "embeddings" if self["train"].is_rows else "images"

    def hold_out(self, *, fraction: float | None = None, fold: tuple[int, int] | None = None, seed: int = 0) -> Collection:
        """Move whole training classes to `val`: a seeded `fraction` of them, or the i-th of k seeded folds, `fold=(i, k)`."""
        train = self["train"]
        classes = len(train.class_names)
        order = np.random.default_rng(seed).permutation(classes)
        if fold is not None and fraction is None:
            i, k = fold
            if not 0 <= i < k <= classes or k < 2:
                raise InputError(f"fold={fold} must be (i, k) with 0 <= i < k, 2 <= k <= {classes} classes; try (0, 5)")
            held = order[i::k]
        elif fraction is not None and fold is None:
            held = order[: round(fraction * classes)] if 0 < fraction < 1 else order[:0]
            if not 1 <= len(held) < classes:
                raise InputError(f"fraction={fraction} must leave classes on both sides, of {classes}; try 0.2")
        else:
            raise InputError(f"fraction={fraction}, fold={fold}: give one of the two; try fraction=0.2")
        rest = np.setdiff1d(order, held)
        return replace(self, parts={**self.parts, "train": train.only(rest.tolist()), "val": train.only(np.sort(held).tolist())})


def collect(
    name: str,
    items: Items,
    labels: Sequence[str],
    splits: Sequence[str] | None = None,
    *,
    groups: NDArray[np.int64] | None = None,
    seed: int = 0,
    test_fraction: float = 0.5,
) -> Collection:
    """A collection from one table: each item's class name and its split; without splits, a seeded share of the classes tests."""
    if not len(labels):
        raise InputError(f"{name}: holds no items; check the path")
    if splits is None:
        splits = _split_by_class(name, labels, seed, test_fraction)
    return Collection(name, split_parts(name, items, labels, splits, groups))


def split_parts(
    name: str,
    items: Items,
    labels: Sequence[str],
    splits: Sequence[str],
    groups: NDArray[np.int64] | None = None,
    as_listed: bool = False,
) -> dict[str, Part]:
    """The parts that each item's split says, whatever they are. Classes are numbered by the alphabet, or as they are listed."""
    names, numbers = numbered(labels, as_listed)
    split_of = np.asarray(splits, dtype=object).astype(str)
    unknown = sorted(set(split_of.tolist()) - set(SPLITS))
    if unknown:
        raise InputError(f"{name}: split={unknown[0]!r} is unknown; use one of {', '.join(SPLITS)}")
    evaluated = np.isin(split_of, ("query", "gallery"))  # these two are searched with each other and share their numbering
    parts = {}
    for split in (split for split in SPLITS if split in split_of):
        chosen = split_of == split
        classes = np.unique(numbers[evaluated if split in ("query", "gallery") else chosen])
        number = np.zeros(len(names), dtype=np.int64)
        number[classes] = np.arange(len(classes))
        parts[split] = Part(
            items=items,
            positions=np.flatnonzero(chosen),
            labels=number[numbers[chosen]],
            class_names=tuple(names[classes].tolist()),
            groups=None if groups is None else groups[chosen],
        )
    return parts


def numbered(values: Sequence[Any], as_listed: bool = False) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The different values as text, by the alphabet or in the order in which they come, and which of them each is.

    >>> names, numbers = numbered(["wren", "kestrel", "wren"])
    >>> names.tolist(), numbers.tolist()
    (['kestrel', 'wren'], [1, 0, 1])
    """
    names, first, numbers = np.unique(np.asarray(values, dtype=object).astype(str), return_index=True, return_inverse=True)
    order = np.argsort(first) if as_listed else np.arange(len(names))
    return names[order], np.argsort(order)[numbers]


def some(names: Sequence[str], most: int = 5) -> str:
    """The first few of many names, for a message."""
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")


def _split_by_class(name: str, labels: Sequence[str], seed: int, test_fraction: float) -> list[str]:
    if test_fraction == 0:
        return ["train"] * len(labels)
    names, numbers = numbered(labels)
    classes = len(names)
    tested = round(test_fraction * classes) if 0 < test_fraction < 1 else 0
    if not 1 <= tested <= classes - 2:
        raise InputError(
            f"{name}: test_fraction={test_fraction} of {classes} classes leaves fewer than 2 to train on or none to test; "
            "add classes, or give train and test yourself"
        )
    tests = np.zeros(classes, dtype=bool)
    tests[np.random.default_rng(seed).permutation(classes)[:tested]] = True
    return ["test" if test else "train" for test in tests[numbers]]


def training_defaults(**settings: Any) -> Callable[[Load], Load]:
    """Give a data set the training settings that fit it. A preset takes them where the user gives none.

    >>> @training_defaults(epochs=20)
    ... def mine(path): ...
    >>> mine.training_defaults
    {'epochs': 20}
    """

    def mark(load: Load) -> Load:
        load.training_defaults = settings  # type: ignore[attr-defined]
        return load

    return mark


def loader_workers(asked: int | None, part: Part) -> int:
    """How many processes read items beside the one that trains: as many as asked for; else one a core, at most 8, for image files, and
    none for what is in memory."""
    if asked is not None:
        check_carried("workers", asked)
        return asked
    return min(8, os.cpu_count() or 1) if isinstance(part.items, ImageFiles) else 0
