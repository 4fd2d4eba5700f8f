"""From sparse scores to the best items: what has no score follows, nearest first."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sparse
from numpy.typing import NDArray

from obdsd.search.flat import flat_search
from obdsd.search.reranker import Found


def best_of(
    scores: sparse.csr_matrix, rows: NDArray[np.float32], queries: NDArray[np.float32], k: int, own: NDArray[np.int64] | None
) -> Found:
    """The k items of the highest positive scores, then others by cosine with score 0; `own` items are left out."""
    found = Found(np.zeros((len(queries), k), dtype=np.float32), np.full((len(queries), k), -1))
    for i in range(len(queries)):
        part = slice(scores.indptr[i], scores.indptr[i + 1])
        items, values = scores.indices[part], scores.data[part]
        wanted = values > 0 if own is None else (values > 0) & (items != own[i])
        items, values = items[wanted], values[wanted]
        if len(items) > k:
            most = np.argpartition(-values, k - 1)[:k]
            items, values = items[most], values[most]
        order = np.lexsort((items, -values))  # of equal scores the first item: the same from run to run
        found.scores[i, : len(order)], found.positions[i, : len(order)] = values[order], items[order]
    lacking = np.flatnonzero(found.positions[:, -1] < 0)
    if len(lacking):
        near = flat_search(rows, queries[lacking], k, None if own is None else own[lacking])
        for i, candidates in zip(lacking.tolist(), near.positions, strict=True):
            there = found.positions[i][found.positions[i] >= 0]
            others = candidates[~np.isin(candidates, there)]
            found.positions[i, len(there) :] = others[: k - len(there)]
    return found
