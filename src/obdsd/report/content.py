"""What a report shows, as plain values: `gather` makes them, `render` draws them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """For each query the nearest others, best first: their numbers among the items (-1 for none), and cosines."""

    indices: NDArray[np.int64]  # (queries, k)
    cosines: NDArray[np.float32]  # (queries, k)


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A number over the epochs: what it is called, what it tells a reader, and its (epoch, value) points in each run."""

    title: str
    sentence: str
    lines: Sequence[Sequence[tuple[int, float]]]  # as `Content.runs`; empty for a run that has none


@dataclass(frozen=True, kw_only=True)
class PairShares:
    """Shares of pairs of one class and of different classes, by bins of a distance or a cosine."""

    centres: Sequence[float]  # of the bins
    same: Sequence[float]
    different: Sequence[float]


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """The embedding space of the training set."""

    spectrum: Sequence[float]  # singular values, descending, as shares of their sum
    distances: PairShares  # of all pairs, by cosine distance
    gradient: PairShares | None  # of the distillation's gradient, by cosine; None without one


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

    matrices: Sequence[Matrix]  # none if there was no teacher
    classes: Sequence[str]  # of the rows
    which: str  # epoch, number, and who taught in it


@dataclass(frozen=True, kw_only=True)
class Cost:
    """A step, measured anew: its seconds, also beside a step of the first run; the shares of teacher and targets if they can be told apart;
    and the peak of memory on a GPU."""

    seconds: float
    ratio: float  # to the first run's step, by steps that took turns
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
    positive: Neighbours  # (items, 1): the nearest other of the same class, at whatever rank
    local: Neighbours | None  # of a seeded crop of each item of `Content.local_queries`; None without images
    local_recall: float | None
    per_class: Sequence[float]  # Recall@1 of each class, in the order of `Content.classes`; NaN for one that is not scored
    scores: Mapping[str, str]  # of the scored classes, by the metric's title, as text
    geometry: Geometry
    batch: Batch
    cost: Cost | None  # None if the training cannot be set up here
    training_seconds: float
    taught: bool  # whether anything was, beside the labels
    options: Mapping[str, object]  # without those that do nothing beside the others
    versions: Mapping[str, str]


Kind = Literal["baseline", "better", "worse", "undecided", "single", "untrained"]


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A row of the first picture; places are in percent of the axis's length."""

    name: str
    kind: Kind
    value: str
    difference: str
    place: float  # below 0 or above 100 if it lies beyond the axis
    interval: tuple[float, float] | None
    heading: str = ""  # what the rows from here on have in common, where that changes


@dataclass(frozen=True, kw_only=True)
class Chart:
    """The first picture: one score of all rows, and of what there was before the training, on one axis."""

    marks: Sequence[Mark]
    ticks: Sequence[tuple[float, str]]
    baseline: float
    sentence: str  # how to read it


@dataclass(frozen=True, kw_only=True)
class Spot:
    """A row of the second picture; places are in percent from the left and from above."""

    name: str
    kind: str
    x: float
    y: float
    words: str
    named: bool  # whether its name has room beside it
    turned: bool  # whether the name stands on the left
    best: bool  # whether no other row is as quick and gains more


@dataclass(frozen=True, kw_only=True)
class Trade:
    """The second picture of a comparison: time of a step against gain. The first spot is the baseline's."""

    spots: Sequence[Spot]
    times: Sequence[tuple[float, str]]
    gains: Sequence[tuple[float, str]]
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Content:
    """All of a report. The first run is the baseline where there are several."""

    title: str
    chart: Chart | None  # None where there is a single number
    sentences: Sequence[str]  # the result, one for each row of the table
    header: Sequence[str]  # of the table
    rows: Sequence[Sequence[str]]
    caption: str
    facts: Mapping[str, str]  # data, classes, images, resolution, how the epoch was chosen, …
    curves: Sequence[Curve]
    classes: Sequence[str]
    labels: NDArray[np.int64]  # the class of each item, by number
    names: Sequence[str]  # what people call each item
    pictures: Sequence[bytes | None]  # of each item, small, as WebP; None if it is no image
    shown: NDArray[np.int64]  # items on the map
    asking: NDArray[np.int64]  # items that are scored as queries; the others are found or only on the map
    local_queries: NDArray[np.int64]  # items of which a crop searches
    local_pictures: Sequence[bytes | None]  # of these crops
    chosen_queries: NDArray[np.int64]  # asked for by --queries
    runs: Sequence[Run]
    commands: Sequence[str]  # that repeat it
    trade: Trade | None = None  # where several rows were timed beside the baseline
