"""Retrieval by exact cosine search: rankings come chunk by chunk and are reduced at once, so that memory stays bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import faiss
import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray

from obdsd.errors import InputError
from obdsd.evaluation.points import Points

CHUNK_ENTRIES = 1 << 22  # neighbours that are held at a time
CHUNK_ROWS = 2048  # that ask at a time: faiss holds 1024 similarities of each, and takes 2 to 6 times as long below 128,000 / dim rows

Search = Callable[[NDArray[np.float32], int, NDArray[np.int64] | None], tuple[NDArray[np.float32], NDArray[np.int64]]]
"""(queries, k, own) → scores and positions of the k best rows of a gallery, best first; rows of it that ask, at `own`, find others only."""


class Ranking(NamedTuple):
    """What the search found for some queries, nearest first.

    `hit` marks neighbours of the query's class, `rank` counts from 1 the neighbours that are not ignored, `relevant` is how many
    of the gallery would have been right (R). Ignored neighbours are no hits and do not count in ranks.
    """

    hit: Bool[np.ndarray, "q m"]
    rank: Int[np.ndarray, "q m"]
    relevant: Int[np.ndarray, " q"]


def recall_at(ranking: Ranking, k: int) -> Bool[np.ndarray, " q"]:
    """Recall@k of each query: is one of the k nearest of its class?

    >>> recall_at(Ranking(np.array([[False, True]]), np.array([[1, 2]]), np.array([2])), k=1)
    array([False])
    """
    return np.any(ranking.hit & (ranking.rank <= k), axis=1)


def r_precision(ranking: Ranking) -> Float[np.ndarray, " q"]:
    """R-precision of each query: (hits among the R nearest) / R, with R the number of rows that would be right.

    >>> r_precision(Ranking(np.array([[False, True]]), np.array([[1, 2]]), np.array([2])))
    array([0.5])
    """
    return _within_r(ranking).sum(axis=1) / np.maximum(ranking.relevant, 1)


def map_at_r(ranking: Ranking) -> Float[np.ndarray, " q"]:
    """MAP@R of each query: 1/R Σ_{i=1..R} [i-th is a hit] · (hits among the i nearest) / i.

    >>> map_at_r(Ranking(np.array([[False, True]]), np.array([[1, 2]]), np.array([2])))
    array([0.25])
    """
    precision = np.cumsum(ranking.hit, axis=1, dtype=np.int32) / np.maximum(ranking.rank, 1)
    return np.einsum("qm,qm->q", precision, _within_r(ranking)) / np.maximum(ranking.relevant, 1)


def _within_r(ranking: Ranking) -> Bool[np.ndarray, "q m"]:
    return ranking.hit & (ranking.rank <= ranking.relevant[:, None])


def rankings(gallery: Points, query: Points | None, deepest: int, search: Search | None = None) -> Iterator[tuple[slice, Ranking]]:
    """Rank the gallery for each query, deep enough for Recall@`deepest` and for R-precision; `query=None` asks every row of the
    gallery for the others. Another `search` of the same gallery may rank it otherwise than by cosine.

    Rows of the query's own class and group are ignored; without groups each row of the gallery is a group of its own, so that a row
    never finds itself, by identity and not by rank: exact copies of it are found. Of equally near rows (equal cosines in float32)
    faiss's order counts, which is the same from run to run.
    """
    asked, groups, asked_groups, own = _grouped(gallery, query)  # own rows of each query are ignored
    relevant = _occurrences(gallery.labels, asked.labels) - own
    size = len(gallery.embeddings)
    depth = min(size, int(max(deepest, relevant.max()) + own.max()))
    most = CHUNK_ROWS if gallery.embeddings.shape[1] >= 128 else 2 * CHUNK_ROWS
    step = max(32, min(most, CHUNK_ENTRIES // depth))
    bounds = np.linspace(0, len(asked.embeddings), -(-len(asked.embeddings) // step) + 1, dtype=int)  # even parts: no small last one
    for part in map(slice, bounds[:-1].tolist(), bounds[1:].tolist()):
        if search is None:
            _, found = faiss.knn(asked.embeddings[part], gallery.embeddings, depth, metric=faiss.METRIC_INNER_PRODUCT)
        else:
            own_rows = np.arange(part.start, part.stop) if query is None else None
            _, found = search(asked.embeddings[part], min(depth, size - (query is None)), own_rows)
        same = gallery.labels[found] == asked.labels[part, None]
        ignored = same & (groups[found] == asked_groups[part, None])
        rank = np.cumsum(~ignored, axis=1, dtype=np.int32)
        yield part, Ranking(same & ~ignored, rank, relevant[part])


def neighbours(embeddings: Float[np.ndarray, "n d"], k: int) -> NDArray[np.int64]:
    """Each row's k nearest other rows by cosine (unit rows), nearest first; a row is left out of its own list by identity."""
    rows = np.ascontiguousarray(embeddings, dtype=np.float32)
    if not 1 <= k < len(rows):
        raise InputError(f"k={k} must lie in 1..{len(rows) - 1}, the other rows; ask for fewer neighbours")
    return nearest(Points(rows, np.arange(len(rows))), None, k)[0]


def nearest(gallery: Points, query: Points | None, k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The k nearest rows of the gallery for each query and their cosines, nearest first; those that `rankings` ignores are left out.

    k is less where not so many rows can be found.
    """
    asked, groups, asked_groups, own = _grouped(gallery, query)
    ignorable = int(own.max())
    k = min(k, len(gallery.embeddings) - ignorable)
    if k < 1:
        raise InputError("gallery: holds nothing that could be found but what is ignored; give more classes or groups")
    cosines, found = faiss.knn(asked.embeddings, gallery.embeddings, k + ignorable, metric=faiss.METRIC_INNER_PRODUCT)
    ignored = (gallery.labels[found] == asked.labels[:, None]) & (groups[found] == asked_groups[:, None])
    kept = np.argsort(ignored, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(found, kept, axis=1), np.take_along_axis(cosines, kept, axis=1)


def _grouped(gallery: Points, query: Points | None) -> tuple[Points, NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Who asks; everybody's group as a number, where without groups nobody shares one, except a row with itself; and how many rows of the
    gallery have both the label and the group of each query."""
    asked, size = gallery if query is None else query, len(gallery.embeddings)
    if gallery.groups is not None and asked.groups is not None:
        numbers = np.unique(np.concatenate([gallery.groups, asked.groups]), return_inverse=True)[1]
        groups, asked_groups = numbers[:size], numbers[size:]
    else:
        groups = np.arange(size)
        asked_groups = groups if query is None else np.full(len(query.embeddings), -1)
    span = int(max(groups.max(), asked_groups.max())) + 2
    return asked, groups, asked_groups, _occurrences(gallery.labels * span + groups, asked.labels * span + asked_groups)


def _occurrences(values: NDArray[np.int64], of: NDArray[np.int64]) -> NDArray[np.int64]:
    """How often each entry of `of` occurs in `values`."""
    kinds, counts = np.unique(values, return_counts=True)
    place = np.minimum(np.searchsorted(kinds, of), len(kinds) - 1)
    return np.where(kinds[place] == of, counts[place], 0)
