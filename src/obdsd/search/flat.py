"""Plain cosine search, exact: what every re-ranker begins with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obdsd.counting import Progress
from obdsd.search.reranker import CHUNK_ROWS, Fitted, Found, Reranker, silent, unit_rows


def flat_search(rows: NDArray[np.float32], queries: NDArray[np.float32], k: int, own: NDArray[np.int64] | None = None) -> Found:
    """The k nearest rows by cosine, nearest first; `own` rows are left out by their position, so that copies of them are found."""
    import faiss  # only now: the settings of re-rankers are asked for by commands that search nothing

    if own is None:
        return Found(*faiss.knn(queries, rows, k, metric=faiss.METRIC_INNER_PRODUCT))
    cosines, positions = faiss.knn(queries, rows, k + 1, metric=faiss.METRIC_INNER_PRODUCT)
    others = np.argsort(positions == own[:, None], axis=1, kind="stable")[:, :k]
    return Found(np.take_along_axis(cosines, others, axis=1), np.take_along_axis(positions, others, axis=1))


def nearest_others(rows: NDArray[np.float32], k: int, advance: Callable[[int], None]) -> Found:
    """The k nearest others of every row; `advance` is told how many rows were done."""
    parts = []
    for start in range(0, len(rows), CHUNK_ROWS):
        own = np.arange(start, min(start + CHUNK_ROWS, len(rows)))
        parts.append(flat_search(rows, rows[own], k, own))
        advance(len(own))
    return Found(*map(np.concatenate, zip(*parts, strict=True)))


class Cosine(Reranker):
    """No re-ranking: the order of the cosines."""

    def fit(self, rows: Any, progress: Progress = silent) -> FittedCosine:
        return FittedCosine(unit_rows(rows))

    def restore(self, rows: Any, arrays: Mapping[str, NDArray[Any]]) -> FittedCosine:
        return self.fit(rows)


class FittedCosine(Fitted):
    """A gallery without offline work."""

    def _best(self, queries: NDArray[np.float32], k: int, own: NDArray[np.int64] | None) -> Found:
        return flat_search(self.rows, queries, k, own)
