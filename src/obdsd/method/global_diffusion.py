"""Diffusion on the global manifold: the walk runs over the whole training set, once an epoch (Eq. 3, 12)."""

from __future__ import annotations

import abc
from collections.abc import Callable
from numbers import Integral
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from obdsd.errors import InputError
from obdsd.method.checks import check_number, check_omega, check_rows, check_temperature, check_unit_length, checked_indices, require
from obdsd.method.diffusion import inner_products
from obdsd.method.graph import mutual_neighbours, normalised, solve_walk
from obdsd.method.precision import in_full
from obdsd.method.targets import Targets
from obdsd.method.teachers import Teacher, TeacherBatch


class OfTrainingSet(nn.Module, Targets):
    """Targets that are made for the whole training set where an epoch begins; a batch's are then looked up by its indices.

    `fit` wants the unit embeddings of the training set by the teacher, in the order of the samples' indices. What the teacher knows of the
    augmented images is not used. An item that the teacher does not know is held as a row of zeros, and has no edge.
    """

    rows: Tensor

    def __init__(self, neighbours: int) -> None:
        super().__init__()
        self.neighbours = neighbours
        self.has_gaps = False  # whether there are items that the teacher does not know
        self.register_buffer("rows", torch.empty(0, 0))  # Z

    @property
    def fitted(self) -> bool:
        return len(self.rows) > 0

    def check(self, items: int, objective: nn.Module, teacher: Teacher) -> None:
        rule = f"must be less than the {items} items that train"
        require(self.neighbours < items, "neighbours", self.neighbours, rule, "ask for fewer")
        rule = "has no model that could embed the whole training set"
        require(teacher.tells_all, "teacher", type(teacher).__name__, rule, "use another")

    def begin_epoch(self, teacher: Teacher, embed: Callable[[nn.Module], Float[Tensor, "n d"]]) -> None:
        """Walk over the training set as the teacher embeds it now; a steady teacher would give the same again."""
        if not (self.fitted and teacher.steady):
            self.fit(*teacher.all_rows(embed))

    def ask(self, teacher: Teacher, inputs: Tensor, indices: Int[Tensor, " b"]) -> TeacherBatch:
        return self.batch(indices)  # known of every item since the epoch began

    @torch.no_grad()
    def fit(self, rows: Float[Tensor, "n d"], known: Bool[Tensor, " n"] | None = None) -> None:
        """Walk over the samples with these embeddings, of those that are known; all stays on their device. If it fails, the earlier walk
        is kept."""
        check_rows("rows", rows)
        Z = in_full(rows).detach().clone()
        lengths = torch.linalg.vector_norm(Z.cpu(), dim=1)  # at once
        if known is not None:
            Z[~known], lengths[~known.cpu()] = 0, 1
        check_unit_length("rows", lengths, rows.dtype)
        for name, table in {"rows": Z, **self._walk(Z)}.items():
            setattr(self, name, table)
        self.has_gaps = _has_gaps(Z)

    @abc.abstractmethod
    def _walk(self, Z: Float[Tensor, "n d"]) -> dict[str, Tensor]:
        """What a batch's targets are looked up in, as buffers."""

    def batch(self, indices: Int[Tensor, " b"]) -> TeacherBatch:
        """These samples as a teacher's batch, without a forward pass."""
        indices = self._own(indices)
        rows = self.rows[indices]
        return TeacherBatch(rows, rows.any(dim=1) if self.has_gaps else None, indices)

    def _own(self, indices: Tensor | None) -> Tensor:
        if not self.fitted:
            raise InputError(f"{self} has walked nowhere yet; call fit(rows) with the embeddings of the whole training set")
        remedies = "pass batch(indices) or TeacherBatch(embeddings, indices=indices)", "fit the whole training set"
        return checked_indices(indices, self.rows, *remedies)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        for name, buffer in self.named_buffers(recurse=False):  # a fresh one has no shape yet
            if prefix + name in state_dict:
                setattr(self, name, torch.empty_like(state_dict[prefix + name], device=buffer.device))
        super()._load_from_state_dict(state_dict, prefix, *rest)
        self.has_gaps = _has_gaps(self.rows)


def _has_gaps(rows: Tensor) -> bool:
    return not bool(rows.any(dim=1).all())


class GlobalDiffusion(OfTrainingSet):
    """Targets softmax(A_BB/τ) out of A = (1-ω)(I-ωS)⁻¹D over all samples, S on their mutual k nearest `neighbours` (Eq. 3, 12).

    A is never formed: D = ZZᵀ, so that A_BB = X_B Z_Bᵀ with X = (1-ω)(I-ωS)⁻¹Z, d sparse solves an epoch. `fit` wants the unit
    embeddings of the training set by the new teacher, in the order of the samples' indices; a batch is then looked up by its indices,
    and what the teacher knows of the augmented images is not used (the paper's targets are offline too).

    Args:
        omega: Probability of continuing the walk.
        neighbours: Nearest neighbours of an item on the graph.
        power: What the similarities are raised to.
        tolerance: The residual at which a solve ends.

    >>> from obdsd import SelfDistillation
    >>> photos, model, epochs = torch.randn(60, 5), nn.Linear(5, 3), 2
    >>> diffusion = GlobalDiffusion(omega=0.3, neighbours=10)
    >>> distill = SelfDistillation(weight=10.0, targets=diffusion)
    >>> for epoch in range(epochs):
    ...     for indices in torch.randperm(60).split(20):
    ...         z = nn.functional.normalize(model(photos[indices]), dim=1)
    ...         teacher = diffusion.batch(indices) if distill.active(epoch / epochs) else None
    ...         loss = distill(z, teacher, progress=epoch / epochs)  # + the metric loss, backward, step
    ...     diffusion.fit(nn.functional.normalize(model(photos), dim=1))  # at the epoch's end
    >>> diffusion, tuple(diffusion.walked.shape)
    (GlobalDiffusion(omega=0.3, neighbours=10), (60, 3))
    """

    walked: Tensor

    def __init__(self, omega: float, neighbours: int = 50, power: float = 1.0, tolerance: float = 1e-6) -> None:
        super().__init__(neighbours)
        check_omega(omega)
        check_number("neighbours", neighbours, Integral)
        require(neighbours >= 1, "neighbours", neighbours, "must be 1 or more", "try 50")
        check_temperature(power, "power")
        check_temperature(tolerance, "tolerance")
        self.omega, self.power, self.tolerance = omega, power, tolerance
        self.register_buffer("walked", torch.empty(0, 0))  # X

    def _walk(self, Z: Float[Tensor, "n d"]) -> dict[str, Tensor]:
        S = normalised(mutual_neighbours(Z, self.neighbours, self.power))
        return {"walked": solve_walk(S, Z, self.omega, self.tolerance)}

    def forward(self, teacher: TeacherBatch | Float[Tensor, "b d"], temperature: float = 1.0) -> Float[Tensor, "b b"]:
        check_temperature(temperature)
        indices = self._own(teacher.indices if isinstance(teacher, TeacherBatch) else None)
        return torch.softmax(inner_products(self.walked[indices], self.rows[indices]) / temperature, dim=1)

    def extra_repr(self) -> str:
        power = "" if self.power == 1 else f", power={self.power}"
        return f"omega={self.omega}, neighbours={self.neighbours}{power}"
