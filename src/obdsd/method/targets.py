"""Targets: what the teacher knows of a batch, as one probability distribution over the batch for every row."""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from obdsd.errors import InputError
from obdsd.method.checks import (
    check_distance_from_one,
    check_number,
    check_omega,
    check_rows,
    check_temperature,
    check_unit_length,
    refuse,
    require,
)
from obdsd.method.diffusion import diffuse, inner_products, softmax_transition, symmetric_transition
from obdsd.method.precision import in_full
from obdsd.method.teachers import Teacher, TeacherBatch


class Targets(abc.ABC):
    """(teacher, temperature) → a (batch, batch) matrix whose rows are non-negative and sum to 1.

    The other methods are hooks of a training; most targets need none of them.

    Attributes:
        distributions: Whether rows sum to 1. Else they are labels of the batch's other rows, 0 or more, and their sum weighs the row.
        diagonal: Whether an item is among those that its row is a distribution over.
    """

    distributions = True
    diagonal = True

    @abc.abstractmethod
    def __call__(self, teacher: TeacherBatch | Float[Tensor, "b d"], temperature: float = 1.0) -> Float[Tensor, "b b"]: ...

    def check(self, items: int, objective: nn.Module, teacher: Teacher) -> None:  # noqa: B027
        """Refuse before the first step what could not be taught beside these; `items` is the size of the training set."""

    def begin_epoch(self, teacher: Teacher, embed: Callable[[nn.Module], Float[Tensor, "n d"]]) -> None:  # noqa: B027
        """Called where an epoch begins that distils; `embed` gives a model's rows of the whole training set."""

    def ask(self, teacher: Teacher, inputs: Tensor, indices: Int[Tensor, " b"]) -> TeacherBatch:
        """What the teacher knows of a batch."""
        return teacher(inputs, indices)

    def complete(self, batch: TeacherBatch, objective: nn.Module, labels: Int[Tensor, " b"]) -> TeacherBatch:
        """The teacher's batch with what the targets need of the base loss."""
        return batch


@dataclass(frozen=True)
class PairwiseTargets(Targets):
    """softmax(scale·D/τ): the teacher's cosines as they are (PSD, Eq. 1).

    Args:
        scale: Scales the cosines. 1-ω is a control for the diffusion: a flatter teacher.

    >>> z = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> PairwiseTargets()(z)
    tensor([[0.7311, 0.2689],
            [0.2689, 0.7311]])
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        check_temperature(self.scale, "scale")

    def __call__(self, teacher: TeacherBatch | Float[Tensor, "b d"], temperature: float = 1.0) -> Float[Tensor, "b b"]:
        _, D = rows_and_cosines(teacher, temperature)
        return torch.softmax(D * (self.scale / temperature), dim=1)


@dataclass(frozen=True)
class Refined(Targets):
    """Targets with a share ω of something other than the teacher's similarities."""

    omega: float

    def __post_init__(self) -> None:
        check_omega(self.omega)


@dataclass(frozen=True)
class BatchDiffusion(Refined):
    """The teacher's similarities refined by a random walk on the batch's graph (OBDP, Eq. 5).

    `form="symmetric"` is the paper: A = (1-ω)(I-ωS)⁻¹D on the symmetric transition matrix, then softmax(A/τ).
    `form="softmax"` is the authors' code: P = softmax(D/τ) is diffused on the softmax transition matrix at
    `walk_temperature` (τ_d) and is the target as it stands.

    Args:
        omega: Probability of continuing the walk.
        form: The paper's symmetric walk, or the published code's on softmax probabilities.
        walk_temperature: Temperature of the softmax form's transition matrix.

    >>> z = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
    >>> BatchDiffusion(omega=0.3)(z)
    tensor([[0.4186, 0.3817, 0.1997],
            [0.3256, 0.4016, 0.2728],
            [0.2207, 0.3500, 0.4293]])
    """

    form: Literal["symmetric", "softmax"] = "symmetric"
    walk_temperature: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_temperature(self.walk_temperature, "walk_temperature")
        require(self.form in ("symmetric", "softmax"), "form", repr(self.form), "is unknown", "use 'symmetric' or 'softmax'")
        ignored = self.form == "symmetric" and self.walk_temperature != 1.0
        require(not ignored, "walk_temperature", self.walk_temperature, "acts in the softmax form only", "add form=softmax")

    def check(self, items: int, objective: nn.Module, teacher: Teacher) -> None:
        check_distance_from_one(self.omega, torch.float32)

    def __call__(self, teacher: TeacherBatch | Float[Tensor, "b d"], temperature: float = 1.0) -> Float[Tensor, "b b"]:
        Z, D = rows_and_cosines(teacher, temperature)
        if self.form == "softmax":
            P = torch.softmax(D / temperature, dim=1)
            S = softmax_transition(D, self.walk_temperature)
            return diffuse(P, S, self.omega, symmetric=False).clamp(min=0)  # rounding leaves -1e-9 where P is 0
        S = symmetric_transition(D)
        batch, dim = Z.shape
        if batch > dim:  # D = ZZᵀ has rank d: solve for d columns, not b
            del D
            A = inner_products(diffuse(Z, S, self.omega, symmetric=True), Z)
        else:
            A = diffuse(D, S, self.omega, symmetric=True)
        return torch.softmax(A / temperature, dim=1)


@dataclass(frozen=True)
class MeanMix(Refined):
    """(1-ω)P + ω·p̄ with p̄ the mean row of P: a control that knows no graph.

    `BatchDiffusion(omega, form="softmax")` at τ_d = 1 is nearly this (a KL below 1e-6).

    Args:
        omega: Share of the mean row.
    """

    def __call__(self, teacher: TeacherBatch | Float[Tensor, "b d"], temperature: float = 1.0) -> Float[Tensor, "b b"]:
        P = PairwiseTargets()(teacher, temperature)
        return torch.lerp(P, P.mean(dim=0, keepdim=True), self.omega)


@dataclass(frozen=True)
class UniformMix(Refined):
    """(1-ω)P + ω/b: a control that knows no graph, label smoothing of the teacher.

    Args:
        omega: Share of the uniform row.
    """

    def __call__(self, teacher: TeacherBatch | Float[Tensor, "b d"], temperature: float = 1.0) -> Float[Tensor, "b b"]:
        P = PairwiseTargets()(teacher, temperature)
        return (1 - self.omega) * P + self.omega / P.shape[0]


@dataclass(frozen=True)
class AffineScores(Targets):
    """max(scale·D + shift, 0): the teacher's cosines as labels of the other rows, the transformed scores of born-again rankers (BAR).

    They need not sum to 1: the student's softmax over the other rows is drawn to them by a listwise loss, and their sum weighs the row.

    Args:
        scale: Multiplies the cosines.
        shift: Is added to them; what is below 0 then counts as 0.

    >>> AffineScores(scale=2.0, shift=-0.5)(torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]))
    tensor([[0.0000, 0.7000, 0.0000],
            [0.7000, 0.0000, 1.1000],
            [0.0000, 1.1000, 0.0000]])
    """

    scale: float = 1.0
    shift: float = 0.0
    distributions = False

    def __post_init__(self) -> None:
        check_temperature(self.scale, "scale")
        check_number("shift", self.shift)
        above = 0 < self.scale + self.shift < float("inf")
        require(above, "shift", self.shift, f"leaves no finite score above 0 with scale={self.scale}", "try 0")

    def __call__(self, teacher: TeacherBatch | Float[Tensor, "b d"], temperature: float = 1.0) -> Float[Tensor, "b b"]:
        _, D = rows_and_cosines(teacher, temperature)
        return (self.scale * D + self.shift).clamp(min=0).fill_diagonal_(0)


@dataclass(frozen=True)
class ProxyDiffusion(Refined):
    """The walk over the batch and the classes' proxies together: diffusion on the proxies' manifold (docs/method.md derives it).

    U = [Z; P] holds the batch's rows and the teacher's `proxies`, S is the symmetric transition matrix of UUᵀ, and the targets are
    softmax(A_BB/τ), A_BB the batch's block of (1-ω)(I-ωS)⁻¹UUᵀ. It costs (b+p)³: pass the proxies of the batch's classes.

    Args:
        omega: Probability of continuing the walk.

    >>> z = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> proxy = torch.tensor([[0.6, 0.8]])  # nothing else links the two
    >>> ProxyDiffusion(omega=0.5)(TeacherBatch(z, proxies=proxy))
    tensor([[0.6095, 0.3905],
            [0.3628, 0.6372]])
    """

    def check(self, items: int, objective: nn.Module, teacher: Teacher) -> None:
        check_distance_from_one(self.omega, torch.float32)
        if getattr(objective, "proxies", None) is None:
            refuse("loss", type(objective).__name__, "has no proxies to walk over", "use proxy-anchor, proxy-nca or soft-triple")
        rule = "does not live among the student's proxies"
        require(teacher.knows_proxies, "teacher", type(teacher).__name__, rule, "use previous-epoch")

    def complete(self, batch: TeacherBatch, objective: nn.Module, labels: Int[Tensor, " b"]) -> TeacherBatch:
        return replace(batch, proxies=objective.proxies_of(labels))  # type: ignore[operator]

    def __call__(self, teacher: TeacherBatch | Float[Tensor, "b d"], temperature: float = 1.0) -> Float[Tensor, "b b"]:
        Z, _ = rows_and_cosines(teacher, temperature)
        proxies = teacher.proxies if isinstance(teacher, TeacherBatch) else None
        if proxies is None:
            raise InputError("proxies=None leaves no proxies to walk over; pass TeacherBatch(embeddings, proxies=unit_rows)")
        U = torch.cat((in_full(Z), in_full(proxies)))
        D = inner_products(U, U)
        if len(proxies):
            check_unit_length("proxies", D.diagonal()[len(Z) :], proxies.dtype, squared=True)
        X = diffuse(U, symmetric_transition(D), self.omega, symmetric=True)  # A = X Uᵀ
        return torch.softmax(inner_products(X[: len(Z)], U[: len(Z)]) / temperature, dim=1)


BALANCING_ROUNDS = 20  # at τ = 1 two suffice; a fixed number keeps the host from waiting for a device's test of convergence


class Balanced(nn.Module, Targets):
    """Other targets, scaled until their columns sum to 1 like their rows: no item draws all others (not the paper's: docs/method.md).

    Args:
        targets: The targets to balance.

    >>> z = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
    >>> Balanced(PairwiseTargets())(z).sum(dim=0).round(decimals=4)
    tensor([1., 1., 1.])
    """

    def __init__(self, targets: Targets) -> None:
        super().__init__()
        self.targets = targets  # registers what state they have
        self.diagonal = targets.diagonal

    def forward(self, teacher: TeacherBatch | Float[Tensor, "b d"], temperature: float = 1.0) -> Float[Tensor, "b b"]:
        return balance(self.targets(teacher, temperature))

    def check(self, items: int, objective: nn.Module, teacher: Teacher) -> None:
        self.targets.check(items, objective, teacher)

    def begin_epoch(self, teacher: Teacher, embed: Callable[[nn.Module], Float[Tensor, "n d"]]) -> None:
        self.targets.begin_epoch(teacher, embed)

    def ask(self, teacher: Teacher, inputs: Tensor, indices: Int[Tensor, " b"]) -> TeacherBatch:
        return self.targets.ask(teacher, inputs, indices)

    def complete(self, batch: TeacherBatch, objective: nn.Module, labels: Int[Tensor, " b"]) -> TeacherBatch:
        return self.targets.complete(batch, objective, labels)

    def __repr__(self) -> str:
        return f"Balanced({self.targets})"


def balance(targets: Float[Tensor, "b b"]) -> Float[Tensor, "b b"]:
    """diag(r)·P·diag(c) whose rows sum to 1, and columns as nearly as Sinkhorn's scaling brings them.

    >>> balance(torch.tensor([[0.6, 0.4], [0.5, 0.5]]))
    tensor([[0.5505, 0.4495],
            [0.4495, 0.5505]])
    """
    for _ in range(BALANCING_ROUNDS):
        targets = targets / targets.sum(dim=0, keepdim=True).clamp(min=torch.finfo(targets.dtype).tiny)  # an item that nobody is drawn to
        targets = targets / targets.sum(dim=1, keepdim=True)
    return targets


def rows_and_cosines(teacher: TeacherBatch | Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """The teacher's rows Z and D = ZZᵀ, both checked."""
    check_temperature(temperature)
    if isinstance(teacher, TeacherBatch) and teacher.known is not None:
        raise InputError("teacher.known marks rows that the teacher may not know, and targets need all; pass teacher.only_known()")
    Z = teacher.embeddings if isinstance(teacher, TeacherBatch) else teacher
    check_rows("teacher", Z)
    D = inner_products(Z, Z)
    check_unit_length("teacher", D.diagonal(), Z.dtype, squared=True)
    return Z, D
