"""Retrieval by exact search; memory stays bounded by the neighbours asked for."""

from __future__ import annotations

from collections.abc import Sequence

import faiss
import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from obdsd.errors import InputError


def neighbours(embeddings: Float[np.ndarray, "n d"], k: int) -> NDArray[np.int64]:
    """Each row's k nearest other rows by cosine (unit rows), nearest first; a row is left out of its own list by identity."""
    rows = np.ascontiguousarray(embeddings, dtype=np.float32)
    if not 1 <= k < len(rows):
        raise InputError(f"k={k} must lie in 1..{len(rows) - 1}, the other rows; ask for fewer neighbours")
    _, found = faiss.knn(rows, rows, k + 1, metric=faiss.METRIC_INNER_PRODUCT)
    other = found != np.arange(len(rows))[:, None]
    other[other.all(axis=1), k] = False  # among many duplicates the row itself may not be listed: drop the farthest instead
    return found[other].reshape(len(rows), k)


def recall(embeddings: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"], ks: Sequence[int] = (1, 2, 4, 8)) -> dict[int, float]:
    """Recall@k: the share of rows with a row of their class among their k nearest others.

    >>> square = np.array([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8], [0.0, 1.0]])
    >>> recall(square, np.array([0, 0, 1, 1]), ks=(1, 2))
    {1: 0.5, 2: 1.0}
    """
    labels = np.asarray(labels)
    hits = labels[neighbours(embeddings, max(ks))] == labels[:, None]
    return {k: float(hits[:, :k].any(axis=1).mean()) for k in ks}
