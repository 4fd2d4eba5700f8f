"""Slow literal definitions of the re-rankers of `obdsd.search`, one query at a time, in float64, as docs/search.md writes them."""

from __future__ import annotations

import numpy as np


def nearest(rows, query, k, leave_out=None):
    """Positions of the k nearest rows by cosine; of equally near ones the first."""
    order = [int(i) for i in np.argsort(-(rows @ query), kind="stable") if i != leave_out]
    return order[:k]


def expanded(rows, query, neighbours, alpha, own=None):
    """αQE: the unit mean of a query and its nearest, weighted by max(cos, 0)^α."""
    total = np.array(query, dtype=np.float64)
    for i in nearest(rows, query, neighbours, own):
        total += max(float(rows[i] @ query), 0.0) ** alpha * rows[i]
    return total / np.linalg.norm(total)
