"""Kernel targets: how often a walk from an item visits the others (Eq. 3 with a one-hot start), on the batch's graph or on that of all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Integral

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from obdsd.errors import InputError
from obdsd.method.checks import (
    check_distance_from_one,
    check_number,
    check_omega,
    check_temperature,
    require,
)
from obdsd.method.diffusion import diffuse, symmetric_transition
from obdsd.method.global_diffusion import OfTrainingSet
from obdsd.method.graph import nearest_others, neighbour_graph, normalised
from obdsd.method.local_walks import local_walks, most_visited, one_thread
from obdsd.method.targets import Targets, rows_and_cosines
from obdsd.method.teachers import Teacher, TeacherBatch

CHUNK_NODES = 1 << 18  # that walks may visit, of the walks that are made at a time


@dataclass(frozen=True)
class Kernel(Targets):
    """K = (1-ω)(I-ωS)⁻¹ on the batch's graph, without its diagonal, rows normalised: how often a walk from each item visits the others.

    S is the symmetric transition matrix of W = max(D, 0)^power, zero diagonal. A row without any mass (no edge, or no class-mate that its
    walk visits) is the teacher's softmax of D/τ over those that it may hold. The targets have no diagonal and no temperature of their own:
    `sharpness` is theirs, and τ is the student's.

    Args:
        omega: Probability of continuing the walk.
        neighbours: Nearest neighbours of an item on the graph, which joins items of which one is among the other's; left open, all.
        power: What the cosines are raised to, as weights of the edges.
        sharpness: What the visits are raised to before rows are normalised.
        classmates: Whether a row holds items of its class alone, where the batch has any.

    >>> z = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
    >>> Kernel(omega=0.5, power=1.0)(z)
    tensor([[0.0000, 0.7534, 0.2466],
            [0.5359, 0.0000, 0.4641],
            [0.2743, 0.7257, 0.0000]])
    """

    omega: float = 0.9
    neighbours: int | None = None
    power: float = 5.0
    sharpness: float = 1.0
    classmates: bool = False
    diagonal = False

    def __post_init__(self) -> None:
        _check(self.omega, self.neighbours, self.power, self.sharpness)

    def check(self, items: int, objective: nn.Module, teacher: Teacher) -> None:
        check_distance_from_one(self.omega, torch.float32)

    def complete(self, batch: TeacherBatch, objective: nn.Module, labels: Int[Tensor, " b"]) -> TeacherBatch:
        return replace(batch, labels=labels) if self.classmates else batch

    def __call__(self, teacher: TeacherBatch | Float[Tensor, "b d"], temperature: float = 1.0) -> Float[Tensor, "b b"]:
        _, D = rows_and_cosines(teacher, temperature)
        W = D.clamp(min=0) ** self.power
        if self.neighbours is not None and self.neighbours < len(D) - 1:
            W = W * _near(D, self.neighbours)
        K = diffuse(torch.eye(len(D), dtype=D.dtype, device=D.device), symmetric_transition(W), self.omega, symmetric=True)
        return shares(K, D / temperature, self.sharpness, _mates(teacher) if self.classmates else None)


class GlobalKernel(OfTrainingSet):
    """The same kernel on the graph of the whole training set, of which a batch's targets are its block; made once an epoch.

    The graph joins items of which one is among the other's nearest `neighbours`. An item's walk stays within the `reach` items that its
    first 3 steps visit most, so that memory is bounded by items times reach.

    Args:
        omega: Probability of continuing the walk.
        neighbours: Nearest neighbours of an item on the graph.
        power: What the cosines are raised to, as weights of the edges.
        sharpness: What the visits are raised to before rows are normalised.
        classmates: Whether a row holds items of its class alone, where the batch has any.
        reach: How many items a walk may visit. As many as there are: the exact walk.
    """

    diagonal = False
    starts: Tensor
    visited: Tensor
    visits: Tensor

    def __init__(
        self,
        omega: float = 0.9,
        neighbours: int = 10,
        power: float = 5.0,
        sharpness: float = 1.0,
        classmates: bool = False,
        reach: int = 300,
    ) -> None:
        super().__init__(neighbours)
        _check(omega, neighbours, power, sharpness)
        check_number("reach", reach, Integral)
        require(reach >= 2, "reach", reach, "must be 2 or more", "try 300")
        self.omega, self.power, self.sharpness, self.classmates, self.reach = omega, power, sharpness, classmates, reach
        self.register_buffer("starts", torch.zeros(1, dtype=torch.long))  # row i's entries are from starts[i] up to starts[i+1]
        self.register_buffer("visited", torch.empty(0, dtype=torch.int32))  # which items
        self.register_buffer("visits", torch.empty(0))  # how often

    def check(self, items: int, objective: nn.Module, teacher: Teacher) -> None:
        super().check(items, objective, teacher)
        check_distance_from_one(self.omega, torch.float32)

    def complete(self, batch: TeacherBatch, objective: nn.Module, labels: Int[Tensor, " b"]) -> TeacherBatch:
        return replace(batch, labels=labels) if self.classmates else batch

    def _walk(self, Z: Float[Tensor, "n d"]) -> dict[str, Tensor]:
        S = normalised(neighbour_graph(*nearest_others(Z, self.neighbours), self.power, "union"))
        n, reach = len(Z), min(self.reach, len(Z))
        counts, visited, visits = [], [], []
        for own in torch.split(torch.arange(n, device=Z.device), max(1, CHUNK_NODES // (reach + 1))):
            with one_thread():
                reached = most_visited(S, own, self.omega, reach)
                often = local_walks(S, reached, self.omega)
            there = (reached >= 0) & (often > 0)
            counts.append(there.sum(dim=1))
            visited.append(reached[there].int())
            visits.append(often[there])
        starts = torch.cat((torch.zeros(1, dtype=torch.long, device=Z.device), torch.cat(counts).cumsum(0)))
        return {"starts": starts, "visited": torch.cat(visited), "visits": torch.cat(visits)}

    def forward(self, teacher: TeacherBatch | Float[Tensor, "b d"], temperature: float = 1.0) -> Float[Tensor, "b b"]:
        indices = self._own(teacher.indices if isinstance(teacher, TeacherBatch) else None)
        _, D = rows_and_cosines(self.rows[indices], temperature)
        return shares(self._block(indices), D / temperature, self.sharpness, _mates(teacher) if self.classmates else None)

    def _block(self, indices: Int[Tensor, " b"]) -> Float[Tensor, "b b"]:
        """How often the walk from each item of the batch visits each of it; an item may be there twice."""
        items, place = torch.unique(indices, return_inverse=True)
        column = torch.full((len(self.rows),), -1, dtype=torch.long, device=indices.device)
        column[items] = torch.arange(len(items), device=indices.device)
        first, count = self.starts[items], self.starts.diff()[items]
        row = torch.arange(len(items), device=indices.device).repeat_interleave(count)
        entry = torch.arange(len(row), device=indices.device) + (first - count.cumsum(0) + count).repeat_interleave(count)
        there = column[self.visited[entry].long()]
        inside = there >= 0
        K = self.visits.new_zeros(len(items), len(items))
        K[row[inside], there[inside]] = self.visits[entry[inside]]
        return K[place][:, place]

    def extra_repr(self) -> str:
        return f"omega={self.omega}, neighbours={self.neighbours}"


def shares(
    K: Float[Tensor, "b b"], scores: Float[Tensor, "b b"], sharpness: float = 1.0, mates: Bool[Tensor, "b b"] | None = None
) -> Float[Tensor, "b b"]:
    """K^sharpness without its diagonal, rows normalised, of `mates` alone where a row has any; a row without mass is softmax(scores) there.

    >>> K = torch.tensor([[0.5, 0.3, 0.1], [0.3, 0.5, 0.0], [0.0, 0.0, 1.0]])
    >>> shares(K, torch.zeros(3, 3))
    tensor([[0.0000, 0.7500, 0.2500],
            [1.0000, 0.0000, 0.0000],
            [0.5000, 0.5000, 0.0000]])
    """
    others = ~torch.eye(len(K), dtype=torch.bool, device=K.device)
    if mates is not None:
        mates = mates & others
        others = torch.where(mates.any(dim=1, keepdim=True), mates, others)
    K = torch.where(others, K, 0).clamp(min=0)  # rounding leaves -1e-9 where it is 0
    most = K.amax(dim=1, keepdim=True)
    usual = torch.softmax(scores.masked_fill(~others, -torch.inf), dim=1).to(K.dtype)
    weights = (K / most.where(most > 0, 1)) ** sharpness  # of 1 at most, so that no power of it is lost in all of a row
    return torch.where(most > 0, weights / weights.sum(dim=1, keepdim=True).clamp(min=1), usual)


def _near(D: Tensor, neighbours: int) -> Tensor:
    """1 between rows of which one is among the other's nearest, else 0."""
    nearest = D.clone().fill_diagonal_(-torch.inf).topk(neighbours, dim=1).indices
    near = torch.zeros_like(D).scatter_(1, nearest, 1.0)
    return torch.maximum(near, near.mT)


def _mates(teacher: TeacherBatch | Tensor) -> Bool[Tensor, "b b"]:
    labels = teacher.labels if isinstance(teacher, TeacherBatch) else None
    if labels is None:
        raise InputError("labels=None leaves class-mates unknown; pass TeacherBatch(embeddings, labels=labels)")
    return labels[:, None] == labels[None, :]


def _check(omega: float, neighbours: int | None, power: float, sharpness: float) -> None:
    check_omega(omega)
    if neighbours is not None:
        check_number("neighbours", neighbours, Integral)
        require(neighbours >= 1, "neighbours", neighbours, "must be 1 or more", "try 10")
    check_temperature(power, "power")
    check_temperature(sharpness, "sharpness")
