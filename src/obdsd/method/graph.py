"""Graphs of many items: nearest neighbours (Eq. 12), their transition matrix, and the walk on it (Eq. 3), all sparse."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from obdsd.method.checks import check_distance_from_one, check_omega, check_rows, check_temperature, refuse, require
from obdsd.method.precision import in_full

CHUNK_BYTES = 64 * 2**20  # of cosines held at a time


@dataclass(frozen=True)
class Graph:
    """A sparse (n, n) matrix: row i's entries are number `starts[i]` up to `starts[i+1]` of `columns` and `weights`.

    That is torch's CSR layout without its tensor type, which warns every user of its beta state and multiplies at a third of the speed.

    >>> Graph.of_edges(3, torch.tensor([0, 1]), torch.tensor([1, 0]), torch.tensor([0.5, 0.5])) @ torch.eye(3)
    tensor([[0.0000, 0.5000, 0.0000],
            [0.5000, 0.0000, 0.0000],
            [0.0000, 0.0000, 0.0000]])
    """

    starts: Int[Tensor, " _"]
    columns: Int[Tensor, " edges"]
    weights: Float[Tensor, " edges"]

    @staticmethod
    def of_edges(nodes: int, rows: Int[Tensor, " edges"], columns: Int[Tensor, " edges"], weights: Float[Tensor, " edges"]) -> Graph:
        """The matrix with `weights` at (rows, columns) and 0 elsewhere."""
        place, order = (rows * nodes + columns).sort()
        first_places = nodes * torch.arange(nodes + 1, device=rows.device)
        return Graph(torch.searchsorted(place, first_places), columns[order], weights[order])

    @property
    def nodes(self) -> int:
        return len(self.starts) - 1

    @property
    def rows(self) -> Int[Tensor, " edges"]:
        """The row of every entry."""
        return torch.arange(self.nodes, device=self.starts.device).repeat_interleave(self.starts.diff())

    def __matmul__(self, x: Float[Tensor, "n m"]) -> Float[Tensor, "n m"]:
        return F.embedding_bag(
            self.columns, x, self.starts, mode="sum", per_sample_weights=self.weights, include_last_offset=True
        )  # a weighted sum of rows of x for each node


@torch.no_grad()
def mutual_neighbours(rows: Float[Tensor, "n d"], neighbours: int, power: float = 1.0) -> Graph:
    """W_ij = max(z_i·z_j, 0) where i and j are each among the other's k nearest, else 0 (Eq. 12), for unit rows.

    `power` raises the cosines; the published helper cubes them, the paper does not. The neighbours are exact, oneself left out; of
    several at the same distance any may be taken, but W is symmetric to the last bit.

    >>> z = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
    >>> mutual_neighbours(z, neighbours=1) @ torch.eye(3)
    tensor([[0.0000, 0.8000, 0.0000],
            [0.8000, 0.0000, 0.0000],
            [0.0000, 0.0000, 0.0000]])
    """
    return neighbour_graph(*nearest_others(rows, neighbours), power)


@torch.no_grad()
def neighbour_graph(
    cosines: Float[Tensor, "n k"], nearest: Int[Tensor, "n k"], power: float = 1.0, kind: Literal["mutual", "union"] = "mutual"
) -> Graph:
    """W_ij = max(z_i·z_j, 0)^power where i and j are each among the other's nearest (mutual), or one among the other's (union).

    `nearest` are the k nearest others of every row, in any order, with their cosines. W is symmetric to the last bit.

    >>> cosines, nearest = torch.tensor([[0.8], [0.8], [0.6]]), torch.tensor([[1], [0], [1]])
    >>> neighbour_graph(cosines, nearest, kind="union") @ torch.eye(3)
    tensor([[0.0000, 0.8000, 0.0000],
            [0.8000, 0.0000, 0.6000],
            [0.0000, 0.6000, 0.0000]])
    """
    check_temperature(power, "power")
    require(kind in ("mutual", "union"), "kind", kind, "must be mutual or union", "try union")
    n, k = nearest.shape
    one, other = torch.arange(n, device=nearest.device).repeat_interleave(k), nearest.flatten()
    pair = torch.minimum(one, other) * n + torch.maximum(one, other)  # the same number for i → j and for j → i
    pair, order = pair.sort(stable=True)
    twice = pair[1:] == pair[:-1]
    last = twice.new_zeros(1)
    taken = torch.cat((twice, last)) if kind == "mutual" else ~torch.cat((last, twice))  # the first of each pair
    pair, order = pair[taken], order[taken]
    weight = cosines.flatten()[order].clamp(min=0) ** power  # one cosine a pair: that of the lower row, as it stands first
    edge = weight >= torch.finfo(weight.dtype).tiny  # a degree of less has no root to divide by
    low, high, weight = pair[edge] // n, pair[edge] % n, weight[edge]
    return Graph.of_edges(n, torch.cat((low, high)), torch.cat((high, low)), torch.cat((weight, weight)))


@torch.no_grad()
def nearest_others(rows: Float[Tensor, "n d"], neighbours: int) -> tuple[Float[Tensor, "n k"], Int[Tensor, "n k"]]:
    """Cosines of unit rows with the k nearest others of each, and which they are, in no order."""
    check_rows("rows", rows)
    Z, n, k = in_full(rows), len(rows), neighbours
    require(1 <= k < n, "neighbours", k, f"must lie in 1..{n - 1} for {n} rows", "ask for fewer, or give more rows")
    chunk = min(n, max(1, CHUNK_BYTES // (n * Z.element_size())))
    cosines, nearest = Z.new_empty(n, k), torch.empty(n, k, dtype=torch.long, device=Z.device)
    held = Z.new_empty(chunk, n)  # one piece of memory for all chunks: on a CPU, a new one each time costs half of the product's time
    for first in range(0, n, chunk):
        some = Z[first : first + chunk]
        D = torch.mm(some, Z.mT, out=held[: len(some)])  # in full: autocast leaves a given `out` alone
        D.diagonal(offset=first).fill_(-torch.inf)
        cosines[first : first + chunk], nearest[first : first + chunk] = D.topk(k, dim=1, sorted=False)
    return cosines, nearest


@torch.no_grad()
def normalised(affinity: Graph) -> Graph:
    """S = V^(-1/2) W V^(-1/2) (Sec. 3.3.1, step 2); a node without an edge gets a self-loop, S_ii = 1, so that the walk stays there.

    >>> W = mutual_neighbours(torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]]), neighbours=1)
    >>> normalised(W) @ torch.eye(3)
    tensor([[0., 1., 0.],
            [1., 0., 0.],
            [0., 0., 1.]])
    """
    degree = (affinity @ affinity.weights.new_ones(affinity.nodes, 1)).squeeze(1)
    isolated = degree == 0
    root = degree.masked_fill(isolated, 1).rsqrt()
    rows, columns = affinity.rows, affinity.columns
    weights = affinity.weights * (root[rows] * root[columns])
    alone = isolated.nonzero().squeeze(1)
    loops = weights.new_ones(len(alone))
    return Graph.of_edges(affinity.nodes, torch.cat((rows, alone)), torch.cat((columns, alone)), torch.cat((weights, loops)))


@torch.no_grad()
def solve_walk(transition: Graph, start: Float[Tensor, "n m"], omega: float, tolerance: float = 1e-6) -> Float[Tensor, "n m"]:
    """(1-ω)(I-ωS)⁻¹ start, where the walk f ← ωSf + (1-ω)·start converges (Eq. 3), by conjugate gradients and without an (n, n) matrix.

    All columns go side by side, each with its own step; a column is done when its residual is `tolerance` of its start or less. S must
    be symmetric with eigenvalues in [-1, 1], as `normalised` makes it. Rounding grows as 1/(1-ω).

    >>> S = Graph.of_edges(2, torch.tensor([0, 1]), torch.tensor([1, 0]), torch.ones(2))
    >>> solve_walk(S, torch.eye(2), omega=0.5)
    tensor([[0.6667, 0.3333],
            [0.3333, 0.6667]])
    """
    check_omega(omega)
    if start.ndim != 2 or len(start) != transition.nodes:
        shapes = f"{tuple(start.shape)} for {transition.nodes} nodes"
        refuse("start.shape", shapes, "must be (nodes, m)", "pass one row a node")
    working = torch.promote_types(torch.promote_types(start.dtype, transition.weights.dtype), torch.float32)
    check_distance_from_one(omega, working)
    least = 4 * torch.finfo(working).eps
    require(least <= tolerance < 1, "tolerance", tolerance, f"must lie in [{least:.2g}, 1) for {working}", "try 1e-6, or use float64")
    S = replace(transition, weights=transition.weights.to(working))
    residual = (1 - omega) * start.to(working)
    found, direction = torch.zeros_like(residual), residual.clone()
    square = residual.square().sum(dim=0)
    goal = tolerance**2 * square
    most = _most_iterations(omega, tolerance)
    for _ in range(most + 1):
        moving = ~(square <= goal)  # NaN is no end
        if not moving.any():
            return found
        change = torch.sub(direction, S @ direction, alpha=omega)  # (I-ωS) direction
        curvature = (direction * change).sum(dim=0)
        curvature = curvature.where(curvature > 0, torch.nan)  # else S is no transition matrix: NaN to the end, where it is refused
        step = torch.where(moving, square / curvature, 0)
        found.addcmul_(direction, step)
        residual.addcmul_(change, step, value=-1)
        previous, square = square, residual.square().sum(dim=0)
        direction.mul_(torch.where(moving, square / previous, 0)).add_(residual)
    worst = f"residual {tolerance * (square / goal).amax().sqrt().item():.2g} after {most} steps"
    refuse("transition", worst, f"must reach {tolerance:g}", "pass normalised(W) of a symmetric W and a start without NaN, or use float64")


def _most_iterations(omega: float, tolerance: float) -> int:
    """Twice the steps that theory needs, for rounding: residuals shrink below 2√κ·((√κ-1)/(√κ+1))ᵗ, κ = (1+ω)/(1-ω) at most."""
    root = math.sqrt((1 + omega) / (1 - omega))
    rate = max((root - 1) / (root + 1), 0.1)  # at ω = 0 it is 0, and has no logarithm
    return 2 * math.ceil(math.log(tolerance / (2 * root)) / math.log(rate))
