"""The items that a report shows: which ones, what they are called, which of them search which, and what each run finds."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from obdsd.data import Collection, Part
from obdsd.data.check import scored_parts
from obdsd.errors import InputError
from obdsd.evaluation.points import Points
from obdsd.evaluation.retrieval import nearest
from obdsd.report.content import Neighbours

MOST = 6_000  # items: their pictures must fit into one page
TRAINING_CLASSES = 20  # on the map of training classes, as in the paper
BEST = 5  # found items that are shown


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
        return np.concatenate([self.numbers(name) if part.groups is None else part.groups for name, part in self.parts.items()])

    @property
    def asking(self) -> str:
        """The part whose items are scored as queries."""
        return next(iter(self.parts))

    def numbers(self, part: str) -> NDArray[np.int64]:
        """Of a part's items."""
        sizes = [len(found) for found in self.parts.values()]
        place = list(self.parts).index(part)
        return np.arange(sum(sizes[:place]), sum(sizes[: place + 1]))

    def points(self, rows: NDArray[np.float32], numbers: NDArray[np.int64]) -> Points:
        """The items of these numbers, by rows that stand for them."""
        return Points(rows, self.labels[numbers], self.groups[numbers])


def choose_items(
    collection: Collection, score: str, points: Literal["test", "train"], asked: Sequence[str] = (), seed: int = 0, most: int = MOST
) -> Shown:
    """The scored items, at most `most` of them: whole classes by seed, those of the items asked for first; and what the map shows."""
    scored = scored_parts(collection.name, collection.parts, "val" if score == "validation" else "test")
    parts = dict(reversed(scored.items()))
    searched = dict.fromkeys(parts, next(iter(scored)))
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


def neighbours_of(shown: Shown, rows: NDArray[np.float32]) -> Neighbours:
    """The nearest others of every item, in the part that its own part searches."""
    found = []
    for asking, searched in shown.searched.items():
        askers, numbers = shown.numbers(asking), shown.numbers(searched)
        indices, cosines = nearest(shown.points(rows[numbers], numbers), shown.points(rows[askers], askers), BEST)
        found.append((numbers[indices], cosines))
    depth = min(indices.shape[1] for indices, _ in found)
    indices, cosines = (np.concatenate([values[:, :depth] for values in each]) for each in zip(*found, strict=True))
    return Neighbours(indices=indices, cosines=cosines)


def positives_of(shown: Shown, rows: NDArray[np.float32]) -> Neighbours:
    """The nearest other of the same class for every item, at whatever rank; -1 where there is none."""
    labels, groups = shown.labels, shown.groups
    indices, cosines = np.full((len(labels), 1), -1), np.full((len(labels), 1), np.nan, dtype=np.float32)
    for asking, searched in shown.searched.items():
        askers, gallery = shown.numbers(asking), shown.numbers(searched)
        for label in np.unique(labels[askers]):
            own, kin = askers[labels[askers] == label], gallery[labels[gallery] == label]
            if not len(kin):
                continue
            similar = np.where(groups[own][:, None] == groups[kin][None, :], -np.inf, rows[own] @ rows[kin].T)
            there = np.isfinite(similar.max(axis=1))
            indices[own[there], 0], cosines[own[there], 0] = kin[similar.argmax(axis=1)[there]], similar.max(axis=1)[there]
    return Neighbours(indices=indices, cosines=cosines)


def crops_search(
    shown: Shown, rows: NDArray[np.float32], crops: NDArray[np.float32], queries: NDArray[np.int64], positive: Neighbours
) -> tuple[Neighbours, float]:
    """What each query's crop finds, the query's own image left out, and Recall@1 of those that have something to find."""
    gallery = shown.numbers(shown.searched[shown.asking])
    indices, cosines = nearest(shown.points(rows[gallery], gallery), shown.points(crops, queries), BEST)
    found = Neighbours(indices=gallery[indices], cosines=cosines)
    counted = positive.indices[queries, 0] >= 0
    hits = shown.labels[found.indices[:, 0]] == shown.labels[queries]
    return found, float(hits[counted].mean()) if counted.any() else 0.0
