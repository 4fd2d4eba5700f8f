"""Every metric of the field by one call."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obdsd.errors import InputError
from obdsd.evaluation import clustering, geometry, retrieval
from obdsd.evaluation.geometry import Density
from obdsd.evaluation.points import Points, checked

Progress = Callable[[str, int, int], None]
"""Told the stage, how much of it is done, and of how much."""


@dataclass(frozen=True, eq=False)
class PerQuery:
    """The retrieval metrics of each query, in the order given; `counted` is False for one with nothing to find (all its values are 0)."""

    counted: NDArray[np.bool_]
    recall: dict[int, NDArray[np.bool_]]
    r_precision: NDArray[np.float64]
    map_at_r: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PerClass:
    """The retrieval metrics as means over the counted queries of each class; classes without any are left out."""

    labels: NDArray[Any]
    queries: NDArray[np.int64]
    recall: dict[int, NDArray[np.float64]]
    r_precision: NDArray[np.float64]
    map_at_r: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Shares in 0..1, not percent. `queries` counted; `lone_queries` had no other row of their class to find and did not.

    `nmi` and `ami` are None without clustering, `spectral_decay` is None where fewer than three directions exist and infinite where
    a direction is not used. The arrays are there if details were asked for.
    """

    recall: dict[int, float]
    r_precision: float
    map_at_r: float
    nmi: float | None
    ami: float | None
    density: Density
    spectral_decay: float | None
    queries: int
    lone_queries: int
    per_query: PerQuery | None = None
    per_class: PerClass | None = None

    def as_dict(self) -> dict[str, Any]:
        """The numbers without the arrays, ready for JSON; what is infinite or undefined becomes None."""
        spread = {"ratio": self.density.ratio, "intra": self.density.intra, "inter": self.density.inter}
        return {
            "recall": {str(k): value for k, value in self.recall.items()},
            "r_precision": self.r_precision,
            "map_at_r": self.map_at_r,
            "nmi": self.nmi,
            "ami": self.ami,
            "density": {name: finite_or_none(value) for name, value in spread.items()},
            "spectral_decay": finite_or_none(self.spectral_decay),
            "queries": self.queries,
            "lone_queries": self.lone_queries,
        }


def finite_or_none(value: float | None) -> float | None:
    """JSON has neither infinity nor NaN."""
    return value if value is not None and math.isfinite(value) else None


def evaluate(
    embeddings: Any,
    labels: Any,
    ks: Sequence[int] = (1, 2, 4, 8),
    seed: int = 0,
    query: Points | tuple[Any, ...] | None = None,
    *,
    groups: Any = None,
    clusters: bool = True,
    restarts: int = 1,
    details: bool = False,
    progress: Progress = lambda stage, done, total: None,
) -> Scores:
    """Recall@K, R-precision, MAP@R, NMI, AMI, density and spectral decay of embeddings (arrays or tensors) under the cosine.

    Args:
        embeddings: One row an item, (items, dim); rows are brought to unit length.
        labels: The class of each row, numbers or text.
        ks: The depths of Recall@K.
        seed: Of k-means. The same seed gives the same numbers.
        query: Other rows that ask, as (embeddings, labels) or (embeddings, labels, groups), while `embeddings` are the gallery. Default:
            every row asks for the others. Clusters and geometry are then those of both together.
        groups: Rows of the same class *and* group are not counted as finds of each other, nor as misses (one camera, one page).
        clusters: Whether to cluster for NMI and AMI, which takes most of the time if there are thousands of classes.
        restarts: Starts of k-means; the best by its own objective counts.
        details: Whether to return the metrics of each query and class too.
        progress: Called now and then with stage, done, total.

    A query whose class has no other row (that is not ignored) cannot succeed and does not count; see `Scores.lone_queries`.

    >>> rows = np.array([[1.0, 0.0, 0.0], [0.8, 0.6, 0.0], [0.0, 0.6, 0.8], [0.0, 0.0, 1.0]])
    >>> evaluate(rows, [0, 0, 1, 1], ks=(1, 2)).recall
    {1: 1.0, 2: 1.0}
    """
    gallery = checked(Points(embeddings, labels, groups))
    asking = None if query is None else checked(_points(query), "query.")
    gallery, asking, names = _numbered(gallery, asking)
    depth = _check_depths(ks, len(gallery.labels) - (asking is None))
    per_query = _retrieve(gallery, asking, sorted(set(ks)), depth, progress)
    counted = int(per_query.counted.sum())
    if not counted:
        raise InputError("labels: no query has another row of its class to find; give classes of 2 rows or more")
    rows, numbers = _together(gallery, asking)
    found = None
    if clusters:
        progress("clustering", 0, 1)
        found = clustering.kmeans(rows, len(np.unique(numbers)), seed, restarts)
        progress("clustering", 1, 1)
    return Scores(
        recall={k: float(hit.sum() / counted) for k, hit in per_query.recall.items()},
        r_precision=float(per_query.r_precision.sum() / counted),
        map_at_r=float(per_query.map_at_r.sum() / counted),
        nmi=None if found is None else clustering.nmi(numbers, found),
        ami=None if found is None else clustering.ami(numbers, found),
        density=geometry.density(rows, numbers),
        spectral_decay=geometry.spectral_decay(rows) if min(rows.shape) > 2 else None,
        queries=counted,
        lone_queries=len(per_query.counted) - counted,
        per_query=per_query if details else None,
        per_class=_by_class(per_query, gallery if asking is None else asking, names) if details else None,
    )


def _points(query: Points | tuple[Any, ...]) -> Points:
    if not 2 <= len(query) <= 3:
        raise InputError(f"query of {len(query)} entries must be (embeddings, labels) or (embeddings, labels, groups)")
    return Points(*query)


def _numbered(gallery: Points, asking: Points | None) -> tuple[Points, Points | None, NDArray[Any]]:
    """The points with numbers for labels, and the label that each number stands for."""
    if asking is None:
        names, numbers = np.unique(gallery.labels, return_inverse=True)
        gallery = gallery._replace(labels=numbers)
    else:
        if gallery.embeddings.shape[1] != asking.embeddings.shape[1]:
            raise InputError(
                f"query.embeddings of dim {asking.embeddings.shape[1]} must have the gallery's dim {gallery.embeddings.shape[1]}; "
                "embed both with one model"
            )
        if (gallery.groups is None) != (asking.groups is None):
            raise InputError("groups must be given for both query and gallery or for neither; groups mark what both share")
        names, numbers = np.unique(np.concatenate([gallery.labels, asking.labels]), return_inverse=True)
        gallery, asking = gallery._replace(labels=numbers[: len(gallery.labels)]), asking._replace(labels=numbers[len(gallery.labels) :])
    if len(names) < 2:
        raise InputError(f"labels hold one class ({str(names[0])!r}); retrieval needs 2 or more to tell apart")
    return gallery, asking, names


def _check_depths(ks: Sequence[int], most: int) -> int:
    whole = [k for k in ks if isinstance(k, (int, np.integer)) and not isinstance(k, bool)]
    if not ks or len(whole) < len(ks) or min(ks) < 1:
        raise InputError(f"ks={tuple(ks)} must be positive whole numbers; try (1, 2, 4, 8)")
    if max(ks) > most:
        raise InputError(f"ks={tuple(ks)}: {max(ks)} is more than the {most} rows that can be found; ask for fewer")
    return int(max(ks))


def _retrieve(gallery: Points, asking: Points | None, ks: list[int], depth: int, progress: Progress) -> PerQuery:
    asked = len((gallery if asking is None else asking).labels)
    result = PerQuery(np.zeros(asked, bool), {int(k): np.zeros(asked, bool) for k in ks}, np.zeros(asked), np.zeros(asked))
    progress("search", 0, asked)
    for part, ranking in retrieval.rankings(gallery, asking, depth):
        result.counted[part] = ranking.relevant > 0
        for k in ks:
            result.recall[k][part] = retrieval.recall_at(ranking, k)
        result.r_precision[part] = retrieval.r_precision(ranking)
        result.map_at_r[part] = retrieval.map_at_r(ranking)
        progress("search", part.stop, asked)
    return result


def _together(gallery: Points, asking: Points | None) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    if asking is None:
        return gallery.embeddings, gallery.labels
    return np.concatenate([gallery.embeddings, asking.embeddings]), np.concatenate([gallery.labels, asking.labels])


def _by_class(per_query: PerQuery, asked: Points, names: NDArray[Any]) -> PerClass:
    numbers = asked.labels[per_query.counted]
    queries = np.bincount(numbers, minlength=len(names))
    present = queries > 0

    def mean(values: NDArray[Any]) -> NDArray[np.float64]:
        sums = np.bincount(numbers, weights=values[per_query.counted], minlength=len(names))
        return sums[present] / queries[present]

    recall = {k: mean(hit) for k, hit in per_query.recall.items()}
    return PerClass(names[present], queries[present], recall, mean(per_query.r_precision), mean(per_query.map_at_r))
