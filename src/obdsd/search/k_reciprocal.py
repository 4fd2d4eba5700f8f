"""Re-ranking by k-reciprocal encoding (Zhong et al. 2017): items are near that have the same mutual neighbours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sparse
from numpy.typing import NDArray

from obdsd.counting import Progress, counted
from obdsd.errors import InputError
from obdsd.search.flat import flat_search, nearest_others
from obdsd.search.reranker import Fitted, Found, Reranker, kept, silent, unit_rows

CHUNK_BYTES = 64 * 2**20  # of cosines held at a time
PAIRS = 1 << 16  # cosines of pairs computed at a time


class KReciprocal(Reranker):
    """k-reciprocal encoding: the distance mixes the cosine with how few mutual neighbours query and item share (Jaccard).

    Args:
        neighbours: Nearest neighbours that may be mutual (k1).
        expansion: Over how many of the nearest, itself included, an encoding is averaged (k2).
        original: Share of the cosine distance in the final one (λ).
    """

    def __init__(self, neighbours: int = 20, expansion: int = 6, original: float = 0.3) -> None:
        if neighbours < 2:
            raise InputError(f"neighbours={neighbours} must be 2 or more; try 20")
        if not 1 <= expansion <= neighbours:
            raise InputError(f"expansion={expansion} must lie in 1..{neighbours}, the neighbours; try 6")
        if not 0 <= original <= 1:
            raise InputError(f"original={original} must lie in 0..1; try 0.3")
        self.neighbours, self.expansion, self.original = neighbours, expansion, original

    def fit(self, rows: Any, progress: Progress = silent) -> FittedKReciprocal:
        own = unit_rows(rows)
        if len(own) < 2:
            raise InputError(f"rows: a gallery of {len(own)} item has no neighbours; give 2 or more")
        near = nearest_others(own, min(self.neighbours, len(own) - 1), counted(progress, "neighbours", len(own)))
        own_lists = _lists(near.positions, len(own))
        mutual = own_lists.multiply(own_lists.T).tocsr() + sparse.identity(len(own), dtype=np.float32, format="csr")
        encodings = _encoded(own, own, _extended(mutual, self._half(near.positions)), counted(progress, "encodings", len(own)))
        return FittedKReciprocal(self, own, near, encodings)

    def restore(self, rows: Any, arrays: Mapping[str, NDArray[Any]]) -> FittedKReciprocal:
        own = unit_rows(rows)
        size, count = len(own), min(self.neighbours, len(own) - 1)
        near = Found(kept(arrays, "cosines", (size, count), "f"), kept(arrays, "nearest", (size, count), "i").astype(np.int64))
        starts, positions = kept(arrays, "starts", (size + 1,), "i"), kept(arrays, "positions", (None,), "i")
        values = kept(arrays, "values", positions.shape, "f")
        ordered = starts[0] == 0 and starts[-1] == len(positions) and (np.diff(starts) >= 0).all()
        for name, places in (("nearest", near.positions), ("positions", positions)):
            if not ordered or not len(places) or not 0 <= places.min() <= places.max() < size:
                raise InputError(f"arrays: {name!r} must be those of {size} items; fit the gallery again")
        return FittedKReciprocal(self, own, near, sparse.csr_matrix((values, positions, starts), shape=(size, size)))

    def _half(self, nearest: NDArray[np.int64]) -> sparse.csr_matrix:
        """Each item's mutual neighbours among half as many nearest, and itself."""
        lists = _lists(nearest[:, : max(1, self.neighbours // 2)], len(nearest))
        return lists.multiply(lists.T).tocsr() + sparse.identity(len(nearest), dtype=np.float32, format="csr")


class FittedKReciprocal(Fitted):
    """The neighbours of a gallery's items and their encodings, a sparse row each that sums to 1."""

    def __init__(self, how: KReciprocal, rows: NDArray[np.float32], near: Found, encodings: sparse.csr_matrix) -> None:
        super().__init__(rows)
        self.how, self.near, self.encodings = how, near, encodings
        self._half = how._half(near.positions)
        averaged = self._averaged(encodings, near.positions)
        self._averaged_rows, self._averaged_columns = averaged, averaged.tocsc()

    def _averaged(self, encodings: sparse.csr_matrix, positions: NDArray[np.int64]) -> sparse.csr_matrix:
        """The mean of some encodings with those of the nearest items."""
        others = min(self.how.expansion - 1, positions.shape[1])
        sums = (encodings + _lists(positions[:, :others], len(self.rows)) @ self.encodings).tocsr()
        sums.data /= others + 1
        return sums

    def _best(self, queries: NDArray[np.float32], k: int, own: NDArray[np.int64] | None) -> Found:
        found = Found(np.empty((len(queries), k), dtype=np.float32), np.empty((len(queries), k), dtype=np.int64))
        chunk = max(1, CHUNK_BYTES // (4 * len(self.rows)))
        for start in range(0, len(queries), chunk):
            part = slice(start, start + chunk)
            found.scores[part], found.positions[part] = self._best_of_few(queries[part], k, None if own is None else own[part])
        return found

    def _best_of_few(self, queries: NDArray[np.float32], k: int, own: NDArray[np.int64] | None) -> Found:
        encodings = self._averaged_rows[own] if own is not None else self._entering(queries)
        cosines, near = queries @ self.rows.T, flat_search(self.rows, queries, k, own)
        found = Found(np.empty((len(queries), k), dtype=np.float32), np.empty((len(queries), k), dtype=np.int64))
        for i in range(len(queries)):
            part = slice(encodings.indptr[i], encodings.indptr[i + 1])
            shared = self._shared(encodings.indices[part], encodings.data[part])
            if own is not None:
                shared[own[i]] = 0
            items = np.flatnonzero(shared)
            items = np.concatenate([items, near.positions[i][shared[near.positions[i]] == 0]])
            both = encodings.data[part].sum() + 1  # a query without mutual neighbours has less than 1 of its own
            jaccard = 1 - shared[items] / (both - shared[items])  # Σ max = Σ v + Σ V_g - Σ min
            score = -((1 - self.how.original) * jaccard + self.how.original * (1 - cosines[i, items])).astype(np.float32)
            if len(items) > k:
                most = np.argpartition(-score, k - 1)[:k]
                items, score = items[most], score[most]
            order = np.lexsort((items, -score))
            found.scores[i], found.positions[i] = score[order], items[order]
        return found

    def _shared(self, positions: NDArray[np.int32], values: NDArray[np.float32]) -> NDArray[np.float64]:
        """Σ_j min(v_j, V_gj) for every item g."""
        columns = self._averaged_columns
        starts, lengths = columns.indptr[positions], np.diff(columns.indptr)[positions]
        entries = np.arange(lengths.sum()) + np.repeat(starts - np.cumsum(lengths) + lengths, lengths)
        least = np.minimum(columns.data[entries], np.repeat(values, lengths))
        return np.bincount(columns.indices[entries], weights=least, minlength=len(self.rows)).astype(np.float64, copy=False)

    def _entering(self, queries: NDArray[np.float32]) -> sparse.csr_matrix:
        """Encodings of queries that are not in the gallery, each as if it alone joined: an item's list has it if it is near enough."""
        near = flat_search(self.rows, queries, min(self.how.neighbours, len(self.rows)))
        mutual = _lists(near.positions, len(self.rows), near.scores >= self.near.scores[near.positions, -1])
        return self._averaged(_encoded(self.rows, queries, _extended(mutual, self._half)), near.positions)

    def arrays(self) -> dict[str, NDArray[Any]]:
        encodings = {"starts": self.encodings.indptr, "positions": self.encodings.indices, "values": self.encodings.data}
        return encodings | {"nearest": self.near.positions.astype(np.int32), "cosines": self.near.scores}


def _lists(positions: NDArray[np.int64], size: int, chosen: NDArray[np.bool_] | None = None) -> sparse.csr_matrix:
    """1 where an item is in a row's list (and is chosen), else 0."""
    taken = np.ones(positions.shape, dtype=bool) if chosen is None else chosen
    starts = np.concatenate([[0], np.cumsum(taken.sum(axis=1))])
    items = positions[taken].astype(np.int32)
    found = sparse.csr_matrix((np.ones(len(items), dtype=np.float32), items, starts), shape=(len(positions), size))
    found.sort_indices()
    return found


def _extended(mutual: sparse.csr_matrix, half: sparse.csr_matrix) -> sparse.csr_matrix:
    """R* = R(p, k1) with every R(q, k1/2), q in R(p, k1), of which two thirds or more are in R(p, k1)."""
    sizes = np.diff(half.indptr)
    common = (mutual @ half).multiply(mutual).tocsr()  # |R(p, k1) ∩ R(q, k1/2)|: half is symmetric
    common.data = (3 * common.data >= 2 * sizes[common.indices]).astype(np.float32)
    common.eliminate_zeros()
    return (mutual + common @ half).tocsr()


def _encoded(rows: NDArray[np.float32], queries: NDArray[np.float32], sets: sparse.csr_matrix, advance: Any = None) -> sparse.csr_matrix:
    """exp(-(1-cos)) with the items of each query's set, scaled to sum 1; an empty set stays empty."""
    asking = np.repeat(np.arange(sets.shape[0]), np.diff(sets.indptr))
    weights = np.empty(len(asking), dtype=np.float32)
    for start in range(0, len(asking), PAIRS):
        part = slice(start, start + PAIRS)
        weights[part] = np.exp(np.einsum("pd,pd->p", queries[asking[part]], rows[sets.indices[part]]) - 1)
    sums = np.bincount(asking, weights=weights, minlength=sets.shape[0])
    if advance is not None:
        advance(sets.shape[0])
    return sparse.csr_matrix((weights / sums[asking].astype(np.float32), sets.indices, sets.indptr), shape=sets.shape)
