"""The table of metrics. A new metric is one entry here: evaluate, train, compare and the report follow the table."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obdsd.catalogue import remember_caller
from obdsd.counting import Progress
from obdsd.errors import InputError
from obdsd.evaluation import clustering, retrieval
from obdsd.evaluation.geometry import Density, density, spectral_decay
from obdsd.evaluation.retrieval import Ranking
from obdsd.parts import suggestion


@dataclass(frozen=True, eq=False, kw_only=True)
class Space:
    """An embedding space as a metric sees it: unit rows and their classes as numbers. What several metrics need is computed once."""

    rows: NDArray[np.float32]
    labels: NDArray[np.int64]
    seed: int = 0  # of k-means
    restarts: int = 1  # of k-means
    progress: Progress = lambda stage, done, total: None

    @cached_property
    def clusters(self) -> NDArray[np.int64]:
        """The cluster of each row by k-means, with as many clusters as classes."""
        tell = partial(self.progress, "clustering")
        return clustering.kmeans(self.rows, len(np.unique(self.labels)), self.seed, self.restarts, tell)

    @cached_property
    def density(self) -> Density:
        return density(self.rows, self.labels)


@dataclass(frozen=True, kw_only=True)
class Metric:
    """What a metric is called, what it tells a reader, and how it is computed: for each query or for the whole space.

    Args:
        name: The flat name in scores and files, such as map@r.
        title: The name in tables and plots, such as MAP@R.
        sentence: What it measures and which direction is better, in plain English.
        percent: Whether tables show it in percent.
        per_query: The value of each query of a ranking; the score is the mean over the queries that count.
        of_space: The value of a whole space; None, infinite or NaN where it has none.
        depth: How many neighbours of each query `per_query` needs. It always gets the R nearest.
        needs_clusters: Whether it reads `Space.clusters`; it is None in an evaluation without clusters.
        on_training_set: Whether training measures it on the training set too. Comparisons then show that value.
        compared: Whether comparisons show it.
    """

    name: str
    title: str
    sentence: str
    percent: bool = False
    per_query: Callable[[Ranking], NDArray[Any]] | None = None
    of_space: Callable[[Space], float | None] | None = None
    depth: int = 0
    needs_clusters: bool = False
    on_training_set: bool = False
    compared: bool = True

    def __post_init__(self) -> None:
        if (self.per_query is None) == (self.of_space is None):
            raise InputError(f"metric {self.name} must have per_query or of_space, and not both; give one function")
        if self.per_query is not None and (self.needs_clusters or self.on_training_set):
            raise InputError(f"metric {self.name}: needs_clusters and on_training_set are for of_space; leave them out with per_query")

    def text(self, value: float | None) -> str:
        """The value for a table; empty if there is none.

        >>> METRICS["map@r"].text(0.361), METRICS["density"].text(0.361), METRICS["nmi"].text(None)
        ('36.10', '0.361', '')
        """
        if value is None or math.isnan(value):
            return ""
        return f"{100 * value:.2f}" if self.percent else f"{value:.3f}"


@cache
def recall_at(k: int) -> Metric:
    """Recall@K, a metric for each K.

    >>> recall_at(4).name, recall_at(4).title
    ('recall@4', 'Recall@4')
    """
    whose = "whose nearest other item has the same class" if k == 1 else f"with an item of the same class among the {k} nearest others"
    return Metric(
        name=f"recall@{k}",
        title=f"Recall@{k}",
        sentence=f"Share of queries {whose}. Higher is better.",
        percent=True,
        per_query=partial(retrieval.recall_at, k=k),
        depth=k,
        compared=k == 1,
    )


share = partial(Metric, percent=True)
shape = partial(Metric, on_training_set=True)
_TABLE = [
    recall_at(1),
    share(
        name="r-precision",
        title="R-precision",
        sentence="Share of a query's R nearest items that have its class, where R is the number of other items in that class. "
        "Higher is better.",
        per_query=retrieval.r_precision,
    ),
    share(
        name="map@r",
        title="MAP@R",
        sentence="How far up the items of a query's class are among its R nearest. Higher is better.",
        per_query=retrieval.map_at_r,
    ),
    share(
        name="nmi",
        title="NMI",
        sentence="How well the clusters of k-means agree with the classes. Many classes raise it by chance. Higher is better.",
        of_space=lambda space: clustering.nmi(space.labels, space.clusters),
        needs_clusters=True,
    ),
    share(
        name="ami",
        title="AMI",
        sentence="How well the clusters of k-means agree with the classes, without what chance gives. Higher is better.",
        of_space=lambda space: clustering.ami(space.labels, space.clusters),
        needs_clusters=True,
    ),
    shape(
        name="density",
        title="Density",
        sentence="Distance inside classes over distance between them. It rises if classes keep their variety, and also if all "
        "embeddings are drawn together. Neither direction is always better.",
        of_space=lambda space: space.density.ratio,
    ),
    shape(
        name="intra",
        title="Distance inside classes",
        sentence="How far apart the items of one class are, as cosine distance. Neither direction is always better.",
        of_space=lambda space: space.density.intra,
        compared=False,
    ),
    shape(
        name="inter",
        title="Distance between classes",
        sentence="How far apart the class means are, as cosine distance. Near 0 all embeddings are nearly the same, and density says "
        "nothing. Neither direction is always better.",
        of_space=lambda space: space.density.inter,
        compared=False,
    ),
    shape(
        name="spectral-decay",
        title="Spectral decay",
        sentence="How unevenly the embedding uses its directions. Lower is better: more directions are in use.",
        of_space=lambda space: spectral_decay(space.rows) if min(space.rows.shape) > 2 else None,
    ),
]
METRICS: dict[str, Metric] = {entry.name: entry for entry in _TABLE}
"""By name, in the order of tables. Recall@1 stands for its family; `metric` knows the others."""


def metric(name: str) -> Metric:
    """The metric of a name, Recall@K for any K.

    >>> metric("recall@4").title, metric("map@r").title
    ('Recall@4', 'MAP@R')
    """
    if name in METRICS:
        return METRICS[name]
    if depth := _recall_depth(name):
        return recall_at(depth)
    raise InputError(f"metric={name!r} is not known; {suggestion(name, METRICS)}")


def register_metric(new: Metric) -> None:
    """Add a metric of your own to the table."""
    if new.name in METRICS or _recall_depth(new.name):
        raise InputError(f"metric={new.name!r} is there already; choose another name")
    METRICS[new.name] = new
    remember_caller()


def measured(scores: Mapping[str, float | None]) -> list[tuple[Metric, float]]:
    """The metrics among the scores that have a value. Counts, and metrics that another program registered, are left out."""
    known = [(metric(name), value) for name, value in scores.items() if name in METRICS or _recall_depth(name)]
    return [(entry, value) for entry, value in known if value is not None]


def score_line(scores: Mapping[str, float | None]) -> str:
    """The shares among the scores, for people: `Recall@1 36.10 %  MAP@R 10.60 %`."""
    return "  ".join(f"{entry.title} {entry.text(value)} %" for entry, value in measured(scores) if entry.percent)


def _recall_depth(name: str) -> int | None:
    """K of recall@K."""
    found = re.fullmatch(r"recall@([1-9]\d*)", name)
    return int(found[1]) if found else None
