"""A labelled collection: parts (train, val, test or query and gallery) of items, with classes that never cross from training to test."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from obdsd.data.items import Items, Rows
from obdsd.data.part import Part
from obdsd.errors import InputError
from obdsd.processes import check_carried
from obdsd.provenance import TrainedOn

Load = TypeVar("Load", bound=Callable[..., Any])
SPLITS = ("train", "val", "test", "query", "gallery")


class Photos(NamedTuple):
    """Where the images are that rows were made of: a source, as it is written for any working directory, and the root of a manifest."""

    source: str
    root: str | None = None


@dataclass(frozen=True, eq=False)
class Collection:
    """Parts by name: `train`, and `test` or both `query` and `gallery`; `val`, held-out training classes, after `hold_out`.

    Only a training needs all this (`obdsd.data.check.check_trainable`). `left_out` holds the names of items of each part that were left out
    as they cannot be used, `remarks` what a reader of the data noticed, `photos` where the images are that rows were made of, `made_by`
    how, `trained_on` what the model was trained on that made them.
    """

    name: str
    parts: Mapping[str, Part]
    left_out: Mapping[str, Sequence[str]] = field(default_factory=dict)
    remarks: Sequence[str] = ()
    photos: Photos | None = None
    made_by: dict[str, str | int] | None = None
    trained_on: TrainedOn | None = None

    def __getitem__(self, name: str) -> Part:
        if name not in self.parts:
            raise InputError(f"{self.name}: there is no part {name!r}; it has {', '.join(self.parts) or 'none'}")
        return self.parts[name]

    @property
    def kind(self) -> Literal["images", "embeddings"]:
        return "embeddings" if next(iter(self.parts.values())).is_rows else "images"

    @property
    def length(self) -> int | None:
        """Of the rows; None for images."""
        items = next(iter(self.parts.values())).items
        return items.matrix.shape[1] if isinstance(items, Rows) else None

    def joined(self) -> tuple[Part, NDArray[Any]]:
        """The items of all parts in the order in which the data have them, and the part of each."""
        several = list(self.parts.values())
        names, labels = numbered([name for part in several for name in part.classes.tolist()])
        positions = np.concatenate([part.positions for part in several])
        groups = [part.groups for part in several if part.groups is not None]
        whole = several[0].replace(
            positions=positions, labels=labels, class_names=tuple(names.tolist()), groups=np.concatenate(groups) if groups else None
        )
        order = np.argsort(positions)
        return whole.take(order), np.repeat(list(self.parts), [len(part) for part in several])[order]

    def merged(self, seed: int = 0, test_fraction: float = 0.5) -> Collection:
        """All items, split by class anew."""
        return replace(self, parts=split_by_class(self.name, self.joined()[0], seed, test_fraction))

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
        whole = split_parts(name, items, labels, ["test"] * len(labels), groups)["test"]
        return Collection(name, split_by_class(name, whole, seed, test_fraction))
    return Collection(name, split_parts(name, items, labels, splits, groups))


def collect_unlabelled(name: str, items: Items, splits: Sequence[str], why: str, groups: NDArray[np.int64] | None = None) -> Collection:
    """A collection of items without labels, which can be embedded; `why` says how one gives them labels."""
    if not len(splits):
        raise InputError(f"{name}: holds no items; check the path")
    parts = split_parts(name, items, [""] * len(splits), splits, groups)
    return Collection(name, {split: part.replace(unlabelled=why) for split, part in parts.items()})


def with_unlabelled(collection: Collection, positions: Sequence[int], why: str) -> Collection:
    """The collection with one more part, of items that have no label; `why` says so."""
    some_part = next(iter(collection.parts.values()))
    lone = Part(some_part.items, np.array(positions, dtype=np.int64), np.zeros(len(positions), dtype=np.int64), ("",), unlabelled=why)
    return replace(collection, parts={**collection.parts, "unlabelled": lone})


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


def grouped(values: Sequence[Any]) -> NDArray[np.int64]:
    """The group of each item; one whose cell is empty or NaN is in none, so it gets one of its own.

    >>> grouped(["a", "", "a", ""]).tolist()
    [1, 2, 1, 3]
    """
    names, groups = numbered(values)
    alone = np.isin(names, ("", "nan"))[groups]
    groups[alone] = len(names) + np.arange(alone.sum())
    return groups


def some(names: Sequence[str], most: int = 5) -> str:
    """The first few of many names, for a message."""
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")


def split_by_class(name: str, whole: Part, seed: int, test_fraction: float) -> dict[str, Part]:
    """A seeded share of the classes tests, the others train. What has no labels cannot train."""
    if not 0 <= test_fraction <= 1:
        raise InputError(f"{name}: test_fraction={test_fraction} must lie from 0, all classes train, to 1, all test; try 0.5")
    if whole.unlabelled:
        return {"test": whole}
    order = np.random.default_rng(seed).permutation(len(whole.class_names))
    tested = round(test_fraction * len(order))
    split = {"train": order[tested:], "test": order[:tested]}
    return {part: whole.only(np.sort(classes).tolist()) for part, classes in split.items() if len(classes)}


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
    return min(8, os.cpu_count() or 1) if getattr(part.items, "on_disk", False) else 0
