"""What a report shows, as plain values: gathered elsewhere, drawn here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Item:
    """A scored item: its class by number, what people call it, and a small picture (JPEG or WebP bytes), if it is an image."""

    label: int
    name: str
    picture: bytes | None = None


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """For each query the nearest others, best first: their numbers among the items, and cosines."""

    indices: NDArray[np.int64]  # (queries, k)
    cosines: NDArray[np.float32]  # (queries, k)


@dataclass(frozen=True, kw_only=True)
class Histogram:
    """Counts between edges, as shares of all."""

    edges: Sequence[float]
    shares: Sequence[float]


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """The embedding space of the training set."""

    spectrum: Sequence[float]  # singular values, descending, as shares of their sum
    intra: Histogram  # cosine distances inside classes
    inter: Histogram  # and between them
    # by pair difficulty: "cosine" (bin centres), "positive", "negative": shares of the distillation's gradient; empty without one
    gradient: Mapping[str, Sequence[float]]


@dataclass(frozen=True, kw_only=True)
class Heatmaps:
    """One real batch, rows and columns ordered by class: (b, b) matrices by name, in the order in which they are shown."""

    matrices: Mapping[str, NDArray[np.float32]]
    classes: Sequence[str]  # of the rows
    batch: str  # which one: epoch and number


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Of a step, measured anew: seconds, the shares of teacher and targets in them, and the peak of memory if it is known."""

    seconds: float
    teacher: float
    targets: float
    memory_mib: float | None
    training_seconds: float  # of the whole run, as it was recorded


@dataclass(frozen=True, kw_only=True)
class Run:
    """A finished run."""

    name: str  # as it stands in the table
    seed: int
    folder: str
    # "loss: base", "loss: distillation", "Recall@1, held-out", "density", …: (epoch, value)
    curves: Mapping[str, Sequence[tuple[int, float]]]
    map: NDArray[np.float32]  # (items shown on the map, 2)
    neighbours: Neighbours  # of every item among the others
    local: Neighbours | None  # of a seeded crop of each item of `Content.local_queries`; None without images
    local_recall: float | None
    positive: Neighbours | None = None  # (items, 1): the nearest other of the same class, at whatever rank; -1 if there is none
    right: NDArray[np.bool_]  # (items,): whether the nearest other is of the same class
    per_class: Sequence[float]  # Recall@1 of each class, in the order of `Content.classes`; NaN for one that is not scored
    scores: Mapping[str, float]  # "Recall@1", "MAP@R", …
    geometry: Geometry
    heatmaps: Heatmaps
    cost: Cost
    options: Mapping[str, object]
    versions: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Content:
    """All of a report. The first run is the baseline where there are several."""

    title: str
    words: Sequence[str]  # the result in sentences, the most important first
    header: Sequence[str]  # of the table
    rows: Sequence[Sequence[str]]
    caption: str
    facts: Mapping[str, str]  # data, classes, images, resolution, how the epoch was chosen, …
    classes: Sequence[str]
    items: Sequence[Item]
    shown: NDArray[np.int64]  # items on the map
    asking: NDArray[np.int64] | None = None  # items that are scored as queries (the others are found or only on the map); None: all
    local_queries: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    local_pictures: Sequence[bytes | None] = ()  # of the crops, as `local_queries`; without them the whole picture stands for its crop
    chosen_queries: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))  # asked for by --queries
    runs: Sequence[Run]
    commands: Sequence[str]  # that repeat it
