"""Every metric of the table by one call."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obdsd.counting import Progress
from obdsd.errors import InputError
from obdsd.evaluation import retrieval
from obdsd.evaluation.metrics import METRICS, Metric, Space, recall_at
from obdsd.evaluation.points import Points, checked


@dataclass(frozen=True, eq=False, kw_only=True)
class PerClass:
    """Means over the counted queries of each class, by the name of the metric; classes without any are left out."""

    labels: NDArray[Any]
    queries: NDArray[np.int64]
    values: dict[str, NDArray[np.float64]]


@dataclass(frozen=True, eq=False, kw_only=True)
class Scores:
    """The value of each metric by its name, `scores["map@r"]`, as a share in 0..1 and not in percent.

    A value is None if it was left out or does not exist; it may be infinite or NaN. `queries` counted. `lone_queries` had no other row
    of their class to find and did not count. Only with details: `counted` says which queries these are, `per_query` has the values of
    each query in the order given, 0 for one that did not count, and `per_class` those of each class.
    """

    values: dict[str, float | None]
    queries: int
    lone_queries: int
    counted: NDArray[np.bool_] | None = None
    per_query: dict[str, NDArray[Any]] | None = None
    per_class: PerClass | None = None

    def __getitem__(self, name: str) -> float | None:
        if name not in self.values:
            raise InputError(f"scores: {name!r} was not measured; there are {', '.join(self.values)}")
        return self.values[name]

    def as_dict(self) -> dict[str, float | None]:
        """All values with `queries` and `lone_queries`, ready for JSON; what is infinite or NaN becomes None."""
        values = {name: finite_or_none(value) for name, value in self.values.items()}
        return {**values, "queries": self.queries, "lone_queries": self.lone_queries}


def finite_or_none(value: float | None) -> float | None:
    """JSON has neither infinity nor NaN."""
    return value if value is not None and math.isfinite(value) else None


def geometry(embeddings: Any, labels: Any) -> dict[str, float | None]:
    """Every metric that is measured on the training set (`Metric.on_training_set`), ready for JSON.

    >>> geometry([[1, 0], [0, 1], [-1, 0], [0, -1]], ["a", "a", "b", "b"])
    {'density': 0.5, 'intra': 1.0, 'inter': 2.0, 'spectral-decay': None}
    """
    rows, names, _ = checked(Points(embeddings, labels))
    space = Space(rows=rows, labels=np.unique(names, return_inverse=True)[1])
    return {name: finite_or_none(entry.of_space(space)) for name, entry in METRICS.items() if entry.of_space and entry.on_training_set}


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
    search: retrieval.Search | None = None,
    progress: Progress = lambda stage, done, total: None,
) -> Scores:
    """Every metric of `evaluation.metrics.METRICS` for embeddings (arrays or tensors) under the cosine.

    Args:
        embeddings: One row an item, (items, dim); rows are brought to unit length.
        labels: The class of each row, numbers or text.
        ks: The depths of Recall@K.
        seed: Of k-means. The same seed gives the same numbers.
        query: Other rows that ask, as (embeddings, labels) or (embeddings, labels, groups), while `embeddings` are the gallery. Default:
            every row asks for the others. Clusters and geometry are then those of both together.
        groups: Rows of the same class *and* group are not counted as finds of each other, nor as misses (one camera, one page).
        clusters: Whether to cluster for NMI and AMI, which are None without. It takes most of the time if there are thousands of classes.
        restarts: Starts of k-means; the best by its own objective counts.
        details: Whether to return the metrics of each query and class too.
        search: What ranks the gallery instead of the cosine, such as `Fitted.search` of a re-ranker fitted on these embeddings. Only
            metrics of a query are then measured: the space is what it was.
        progress: Called now and then with stage, done, total.

    A query whose class has no other row (that is not ignored) cannot succeed and does not count; see `Scores.lone_queries`.

    >>> rows = np.array([[1.0, 0.0, 0.0], [0.8, 0.6, 0.0], [0.0, 0.6, 0.8], [0.0, 0.0, 1.0]])
    >>> evaluate(rows, [0, 0, 1, 1], ks=(1, 2))["recall@1"]
    1.0
    """
    gallery = checked(Points(embeddings, labels, groups))
    asking = None if query is None else checked(_points(query), "query.")
    gallery, asking, names, numbers = _numbered(gallery, asking)
    _check_depths(ks, len(gallery.labels) - (asking is None))
    metrics = [*(recall_at(int(k)) for k in sorted(set(ks))), *(entry for entry in METRICS.values() if entry != recall_at(1))]
    counted, per_query = _retrieve(gallery, asking, metrics, search, progress)
    queries = int(counted.sum())
    if not queries:
        raise InputError("labels: no query has another row of its class to find; give classes of 2 rows or more")
    rows = gallery.embeddings if asking is None else np.concatenate([gallery.embeddings, asking.embeddings])
    space = Space(rows=rows, labels=numbers, seed=seed, restarts=restarts, progress=progress)

    def value(entry: Metric) -> float | None:
        if entry.of_space is None:
            return float(per_query[entry.name].sum() / queries)
        if search is not None:
            return None
        return entry.of_space(space) if clusters or not entry.needs_clusters else None

    return Scores(
        values={entry.name: value(entry) for entry in metrics},
        queries=queries,
        lone_queries=len(counted) - queries,
        counted=counted if details else None,
        per_query=per_query if details else None,
        per_class=_by_class(counted, per_query, (gallery if asking is None else asking).labels, names) if details else None,
    )


def _points(query: Points | tuple[Any, ...]) -> Points:
    if not 2 <= len(query) <= 3:
        raise InputError(f"query of {len(query)} entries must be (embeddings, labels) or (embeddings, labels, groups)")
    return Points(*query)


def _numbered(gallery: Points, asking: Points | None) -> tuple[Points, Points | None, NDArray[Any], NDArray[np.int64]]:
    """The points with numbers for labels, the label that each number stands for, and the numbers of both."""
    if asking is not None:
        dim, asking_dim = gallery.embeddings.shape[1], asking.embeddings.shape[1]
        if dim != asking_dim:
            raise InputError(f"query.embeddings of dim {asking_dim} must have the gallery's dim {dim}; embed both with one model")
        if (gallery.groups is None) != (asking.groups is None):
            raise InputError("groups must be given for both query and gallery or for neither; groups mark what both share")
    size, labels = len(gallery.labels), [points.labels for points in (gallery, asking) if points is not None]
    names, numbers = np.unique(np.concatenate(labels), return_inverse=True)
    if len(names) < 2:
        raise InputError(f"labels hold one class ({str(names[0])!r}); retrieval needs 2 or more to tell apart")
    asking = None if asking is None else asking._replace(labels=numbers[size:])
    return gallery._replace(labels=numbers[:size]), asking, names, numbers


def _check_depths(ks: Sequence[int], most: int) -> None:
    whole = [k for k in ks if isinstance(k, (int, np.integer)) and not isinstance(k, bool)]
    if not ks or len(whole) < len(ks) or min(ks) < 1:
        raise InputError(f"ks={tuple(ks)} must be positive whole numbers; try (1, 2, 4, 8)")
    if max(ks) > most:
        raise InputError(f"ks={tuple(ks)}: {max(ks)} is more than the {most} rows that can be found; ask for fewer")


def _retrieve(
    gallery: Points, asking: Points | None, metrics: Sequence[Metric], search: retrieval.Search | None, progress: Progress
) -> tuple[NDArray[np.bool_], dict[str, NDArray[Any]]]:
    """Which queries count, and the value of each query by the name of the metric."""
    total = len((gallery if asking is None else asking).labels)
    counted: list[NDArray[np.bool_]] = []
    parts: dict[str, list[NDArray[Any]]] = {entry.name: [] for entry in metrics if entry.per_query}
    progress("search", 0, total)
    for part, ranking in retrieval.rankings(gallery, asking, max(entry.depth for entry in metrics), search):
        counted.append(ranking.relevant > 0)
        for entry in metrics:
            if entry.per_query:
                parts[entry.name].append(entry.per_query(ranking))
        progress("search", part.stop, total)
    counts = np.concatenate(counted)
    values = {name: np.concatenate(found) for name, found in parts.items()}
    for found in values.values():
        found[~counts] = 0
    return counts, values


def _by_class(counted: NDArray[np.bool_], per_query: dict[str, NDArray[Any]], numbers: NDArray[np.int64], names: NDArray[Any]) -> PerClass:
    numbers = numbers[counted]
    queries = np.bincount(numbers, minlength=len(names))
    present = queries > 0

    def mean(values: NDArray[Any]) -> NDArray[np.float64]:
        sums = np.bincount(numbers, weights=values[counted], minlength=len(names))
        return sums[present] / queries[present]

    return PerClass(labels=names[present], queries=queries[present], values={name: mean(values) for name, values in per_query.items()})
