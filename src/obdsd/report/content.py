"""What a report shows, as plain values: `gather` makes them, `render` draws them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from obdsd.experiments.statistics import Interval


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
class Curve:
    """A number over the epochs: what it is called, what it tells a reader, and its (epoch, value) points in each run."""

    title: str
    sentence: str
    lines: Sequence[Sequence[tuple[int, float]]]  # as `Content.runs`; empty for a run that has none


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


@dataclass(frozen=True, eq=False, kw_only=True)
class Matrix:
    """A number for each pair of a batch: cosines, the teacher's targets, or targets that were refined from these."""

    title: str
    kind: Literal["similarity", "targets", "refined"]
    sentence: str
    values: NDArray[np.float32]  # (batch, batch)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One real batch, rows and columns of its matrices ordered by class."""

    matrices: Sequence[Matrix]
    classes: Sequence[str]  # of the rows
    which: str  # epoch, number, and who taught in it


@dataclass(frozen=True, kw_only=True)
class Cost:
    """A step, measured anew: its seconds, the shares of teacher and targets if they can be told apart, and the peak of memory on a GPU."""

    seconds: float
    teacher: float | None
    targets: float | None
    memory_mib: float | None


@dataclass(frozen=True, kw_only=True)
class Run:
    """A finished run."""

    name: str  # tells it from the others
    seed: int
    folder: str
    map: NDArray[np.float32]  # (items shown on the map, 2)
    neighbours: Neighbours  # of every item among the others
    local: Neighbours | None  # of a seeded crop of each item of `Content.local_queries`; None without images
    local_recall: float | None
    positive: Neighbours | None = None  # (items, 1): the nearest other of the same class, at whatever rank; -1 if there is none
    right: NDArray[np.bool_]  # (items,): whether the nearest other is of the same class
    per_class: Sequence[float]  # Recall@1 of each class, in the order of `Content.classes`; NaN for one that is not scored
    scores: Mapping[str, str]  # of the scored classes, by the metric's title, as text
    geometry: Geometry
    batch: Batch
    cost: Cost | None  # None if the training cannot be set up here
    training_seconds: float
    options: Mapping[str, object]
    versions: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A row of the first picture: its score, and the 95 % interval of its difference to the baseline where there is one."""

    name: str
    value: float
    difference: Interval | None = None


@dataclass(frozen=True, kw_only=True)
class Chart:
    """The first picture: one score of all rows, the first of which is the baseline."""

    rows: Sequence[Estimate]
    untrained: Mapping[str, float]  # what there was before the training, by name
    sentence: str  # how to read it


@dataclass(frozen=True, kw_only=True)
class Content:
    """All of a report. The first run is the baseline where there are several."""

    title: str
    chart: Chart
    sentences: Sequence[str]  # the result, one for each row of the table
    header: Sequence[str]  # of the table
    rows: Sequence[Sequence[str]]
    caption: str
    facts: Mapping[str, str]  # data, classes, images, resolution, how the epoch was chosen, …
    curves: Sequence[Curve]
    classes: Sequence[str]
    items: Sequence[Item]
    shown: NDArray[np.int64]  # items on the map
    asking: NDArray[np.int64] | None = None  # items that are scored as queries (the others are found or only on the map); None: all
    local_queries: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    local_pictures: Sequence[bytes | None] = ()  # of the crops, as `local_queries`; without them the whole picture stands for its crop
    chosen_queries: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))  # asked for by --queries
    runs: Sequence[Run]
    commands: Sequence[str]  # that repeat it
