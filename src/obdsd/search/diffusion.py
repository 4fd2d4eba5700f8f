"""Re-ranking by diffusion: the walk of Eq. 3 with a one-hot start, on the graph of a gallery's nearest neighbours.

The walks of all items are computed once, each within the items that its first steps reach most. An item of the gallery is answered by its
own walk. Another query joins the graph by edges to its nearest; its walk follows from theirs without a walk of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
import scipy.sparse as sparse
import torch
from numpy.typing import NDArray

from obdsd.counting import Progress, counted
from obdsd.errors import InputError
from obdsd.method.checks import check_distance_from_one, check_omega, check_temperature
from obdsd.method.graph import Graph, neighbour_graph, normalised
from obdsd.method.local_walks import local_walks, one_thread
from obdsd.search.flat import flat_search, nearest_others
from obdsd.search.merging import best_of
from obdsd.search.reranker import CHUNK_ROWS, Fitted, Found, Reranker, kept, silent, unit_rows

STEPS = 3  # of the walk that choose which items the whole walk may visit


class Diffusion(Reranker):
    """Diffusion: items rank by how much a walk from the query visits them, on the graph of the gallery's nearest neighbours (Eq. 3).

    Args:
        neighbours: Nearest neighbours of an item on the graph.
        power: What the cosines are raised to, as weights of the edges; a negative cosine is no edge.
        omega: Probability of continuing the walk.
        graph: Which edges there are: between items of which one is among the other's nearest, or each among the other's.
        reach: How many items a walk may visit: those that its first 3 steps visit most. As many as the gallery has: the exact walk.
    """

    def __init__(
        self,
        neighbours: int = 10,
        power: float = 5.0,
        omega: float = 0.9,
        graph: Literal["union", "mutual"] = "union",
        reach: int = 300,
    ) -> None:
        if neighbours < 1:
            raise InputError(f"neighbours={neighbours} must be 1 or more; try 10")
        if reach < 2:
            raise InputError(f"reach={reach} must be 2 or more; try 300")
        check_temperature(power, "power")
        check_omega(omega)
        check_distance_from_one(omega, torch.float32)
        self.neighbours, self.power, self.omega, self.graph, self.reach = neighbours, power, omega, graph, reach

    def fit(self, rows: Any, progress: Progress = silent) -> FittedDiffusion:
        own = unit_rows(rows)
        if len(own) < 2:
            raise InputError(f"rows: a gallery of {len(own)} item has no neighbours; give 2 or more")
        nearest = nearest_others(own, min(self.neighbours, len(own) - 1), counted(progress, "neighbours", len(own)))
        W = neighbour_graph(torch.from_numpy(nearest.scores), torch.from_numpy(nearest.positions), self.power, self.graph)
        degrees = np.bincount(W.rows.numpy(), weights=W.weights.numpy(), minlength=len(own)).astype(np.float32)
        S = normalised(W)
        advance, parts = counted(progress, "walks", len(own)), []
        with one_thread():
            for reached in most_visited(S, self.omega, min(self.reach, len(own))):
                parts.append(_positive(reached, local_walks(S, torch.from_numpy(reached), self.omega).numpy(), len(own)))
                advance(len(reached))
        return FittedDiffusion(self, own, sparse.vstack(parts, format="csr"), degrees)

    def restore(self, rows: Any, arrays: Mapping[str, NDArray[Any]]) -> FittedDiffusion:
        own = unit_rows(rows)
        size = len(own)
        starts, positions = kept(arrays, "starts", (size + 1,), "i"), kept(arrays, "positions", (None,), "i")
        values, degrees = kept(arrays, "values", positions.shape, "f"), kept(arrays, "degrees", (size,), "f")
        ordered = starts[0] == 0 and starts[-1] == len(positions) and (np.diff(starts) >= 0).all()
        if not ordered or (len(positions) and not 0 <= positions.min() <= positions.max() < size):
            raise InputError(f"arrays: 'positions' must be those of {size} items; fit the gallery again")
        return FittedDiffusion(self, own, sparse.csr_matrix((values, positions, starts), shape=(size, size)), degrees)


class FittedDiffusion(Fitted):
    """The walks of a gallery's items, a sparse row each, and the items' degrees on the graph."""

    def __init__(self, how: Diffusion, rows: NDArray[np.float32], walks: sparse.csr_matrix, degrees: NDArray[np.float32]) -> None:
        super().__init__(rows)
        self.how, self.walks, self.degrees = how, walks, degrees
        self._degrees = np.where(degrees > 0, degrees, 1).astype(np.float64)  # an item without an edge has a loop of weight 1

    def _best(self, queries: NDArray[np.float32], k: int, own: NDArray[np.int64] | None) -> Found:
        visits = self.walks[own] if own is not None else self._entering(queries)
        return best_of(visits, self.rows, queries, k, own)

    def _entering(self, queries: NDArray[np.float32]) -> sparse.csr_matrix:
        """The walks that start at queries which join the graph by edges to their nearest, as the extended graph has them.

        With edges w to some items J of degrees d, and F = (1-ω)(I-ωS)⁻¹ of the gallery alone, b = w/√(d·Σw) and K = F_JJ/(1-ω):
        the degrees of J grow by w, which (Woodbury) changes b to c = (I + diag(w/d) K)⁻¹b. The query itself is visited by
        f = (1-ω)/(1-ω²bᵀKc), the gallery by ωf/(1-ω)·Fᵀc, items of J in it √(1+w/d) times.
        """
        omega, count = self.how.omega, min(self.how.neighbours, len(self.rows))
        near = flat_search(self.rows, queries, count)
        w = np.maximum(near.scores, 0).astype(np.float64) ** self.how.power  # (q, j)
        d, total = self._degrees[near.positions], np.maximum(w.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
        b = w / np.sqrt(d * total)
        one, other = (np.broadcast_to(near.positions[axes], (*w.shape, count)).ravel() for axes in (np.s_[:, :, None], np.s_[:, None, :]))
        K = np.asarray(self.walks[one, other], dtype=np.float64).reshape(*w.shape, count) / (1 - omega)
        c = np.linalg.solve(np.eye(count) + (w / d)[:, :, None] * K, b[:, :, None])[:, :, 0]
        staying = (1 - omega) / (1 - omega**2 * np.einsum("qi,qij,qj->q", b, K, c))
        c *= omega * staying[:, None] / (1 - omega)
        starts = np.arange(0, w.size + 1, count)
        mixed = sparse.csr_matrix((c.astype(np.float32).ravel(), near.positions.ravel(), starts), shape=(len(w), len(self.rows)))
        visits = mixed @ self.walks
        return _rescaled(visits, near.positions, np.sqrt(1 + w / d))

    def arrays(self) -> dict[str, NDArray[Any]]:
        walks = {"starts": self.walks.indptr, "positions": self.walks.indices, "values": self.walks.data}
        return walks | {"degrees": self.degrees}


def most_visited(S: Graph, omega: float, reach: int) -> Iterator[NDArray[np.int64]]:
    """For some items at a time the items that their walks may visit, themselves first, filled up with -1."""
    size = S.nodes
    step = sparse.csr_matrix((S.weights.numpy(), S.columns.numpy(), S.starts.numpy()), shape=(size, size))
    chunk = max(1, min(CHUNK_ROWS, (1 << 22) // reach))
    for first in range(0, size, chunk):
        own = np.arange(first, min(first + chunk, size))
        if reach == size:
            others = np.broadcast_to(np.arange(size), (len(own), size))
            yield np.concatenate([own[:, None], others[others != own[:, None]].reshape(len(own), size - 1)], axis=1)
            continue
        start = sparse.csr_matrix((np.full(len(own), 1 - omega, np.float32), (np.arange(len(own)), own)), shape=(len(own), size))
        visits = start
        for _ in range(STEPS):
            visits = omega * (visits @ step) + start
        reached = np.full((len(own), reach), -1)
        for i, item in enumerate(own):
            part = slice(visits.indptr[i], visits.indptr[i + 1])
            there, often = visits.indices[part], np.where(visits.indices[part] == item, np.inf, visits.data[part])
            most = np.argpartition(-often, reach)[:reach] if len(there) > reach else np.arange(len(there))
            reached[i, : len(most)] = there[most[np.argsort(-often[most], kind="stable")]]
        yield reached


def _positive(reached: NDArray[np.int64], values: NDArray[np.float32], size: int) -> sparse.csr_matrix:
    """Walks as sparse rows, with what they do visit only."""
    visited = (reached >= 0) & (values > 0)
    starts = np.concatenate([[0], np.cumsum(visited.sum(axis=1))])
    found = sparse.csr_matrix((values[visited], reached[visited].astype(np.int32), starts), shape=(len(reached), size))
    found.sort_indices()
    return found


def _rescaled(visits: sparse.csr_matrix, positions: NDArray[np.int64], factors: NDArray[np.float64]) -> sparse.csr_matrix:
    """The same with the entries at some positions of each row multiplied."""
    factor_of = np.ones(visits.shape[1], dtype=np.float32)  # of every item, for one row after the other
    for i, (places, own) in enumerate(zip(positions, factors, strict=True)):
        part = slice(visits.indptr[i], visits.indptr[i + 1])
        factor_of[places] = own
        visits.data[part] *= factor_of[visits.indices[part]]
        factor_of[places] = 1
    return visits
