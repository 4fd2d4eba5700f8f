"""The best items of an index for some rows: no row finds itself, and only items that are allowed are found."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from obdsd.search.reranker import Fitted, Found
from obdsd.search.stores import Allowed, Vectors

Rows = NDArray[np.float32]
Places = NDArray[np.int64]


def nearest(vectors: Vectors, rows: Rows, own: Places, k: int, allowed: Allowed | None) -> Found:
    """By cosine. `own` is each row's position in the index, or -1; positions are -1 where there is nothing more."""
    return _others(vectors.search(rows, k + 1, allowed), own, k)


def reranked(fitted: Fitted, rows: Rows, own: Places, k: int, allowed: Allowed | None) -> Found:
    """The same by a re-ranker."""
    total = len(fitted.rows)
    is_allowed = np.ones(total, dtype=bool)
    if allowed is not None:
        is_allowed[:] = False
        is_allowed[allowed.places] = True
    found = Found(np.full((len(rows), k), -np.inf, dtype=np.float32), np.full((len(rows), k), -1, dtype=np.int64))
    for inside in (False, True):
        chosen = np.flatnonzero((own >= 0) == inside)
        most = total - inside
        depth = min(most, k)
        while len(chosen) and depth:  # deeper and deeper, until enough of them are allowed
            best = fitted.search(rows[chosen], depth, own[chosen] if inside else None)
            kept = _others(Found(best.scores, np.where(is_allowed[best.positions], best.positions, -1)), np.full(len(chosen), -2), k)
            if depth == most or (kept.positions >= 0).all():
                found.scores[chosen], found.positions[chosen] = kept
                break
            depth = min(most, 4 * depth)
    return found


def _others(found: Found, own: Places, k: int) -> Found:
    """The first k that are not a row's own and not -1; what is missing at the end is -1."""
    scores, positions = found
    if positions.shape[1] < k:
        gap = ((0, 0), (0, k - positions.shape[1]))
        scores, positions = np.pad(scores, gap, constant_values=-np.inf), np.pad(positions, gap, constant_values=-1)
    positions = np.where(positions == own[:, None], -1, positions)
    order = np.argsort(positions < 0, axis=1, kind="stable")[:, :k]
    return Found(np.take_along_axis(scores, order, axis=1), np.take_along_axis(positions, order, axis=1))
