"""The distillation term: τ² · ramp · λ · KL(targets ‖ student), Eq. 1, 2, 6 and 7."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from obdsd.errors import InputError
from obdsd.method.checks import check_distributions, check_number, check_rows, check_temperature, check_unit_length, refuse, require
from obdsd.method.diffusion import inner_products
from obdsd.method.precision import in_full
from obdsd.method.targets import PairwiseTargets
from obdsd.method.teachers import TeacherBatch


@dataclass(frozen=True)
class SelfDistillation:
    """A term to add to any metric-learning loss: the student's batch similarities are drawn to the teacher's targets.

    `weight` is λ, the final weight; with `ramp="linear"` it grows with `progress` = epoch / epochs, so that the first epoch
    needs no teacher; `"constant"` is the paper's ablation. `targets` choose PSD (`PairwiseTargets`) or OBD-SD (`BatchDiffusion`),
    or are any function of (teacher's batch, temperature).

    >>> distill = SelfDistillation(weight=10.0)
    >>> teacher = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> student = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    >>> distill(student, teacher, progress=0.5)
    tensor(0.5547)
    >>> distill.active(progress=0.0)
    False
    """

    weight: float
    temperature: float = 1.0
    targets: Callable[..., Tensor] = PairwiseTargets()
    ramp: Literal["linear", "constant"] = "linear"

    def __post_init__(self) -> None:
        check_number("weight", self.weight)
        require(0 <= self.weight < float("inf"), "weight", self.weight, "must be 0 or more and finite", "use 0 to switch it off")
        check_temperature(self.temperature)
        fits = callable(self.targets) and not isinstance(self.targets, type)
        require(fits, "targets", self.targets, "must be targets, not their class or something else", "try BatchDiffusion(omega=0.3)")
        require(self.ramp in ("linear", "constant"), "ramp", repr(self.ramp), "is unknown", "use 'linear' or 'constant'")

    def current_weight(self, progress: float) -> float:
        """λ times the ramp: what the KL weighs at this point of the training, before τ²."""
        check_number("progress", progress)
        require(0 <= progress <= 1, "progress", progress, "must lie in [0, 1]", "pass epoch / epochs")
        return self.weight * (progress if self.ramp == "linear" else 1.0)

    def active(self, progress: float) -> bool:
        """Whether the term acts at all; where it does not, a loop can skip the teacher and pass None for it."""
        return self.current_weight(progress) > 0

    @torch.no_grad()
    def taught(self, teacher: TeacherBatch) -> Float[Tensor, "b b"]:
        """What the student is drawn to: a distribution over the batch for every row."""
        return self.targets(teacher, self.temperature)

    def __call__(
        self, student: Float[Tensor, "b d"], teacher: TeacherBatch | Float[Tensor, "b e"] | None, progress: float
    ) -> Float[Tensor, ""]:
        """The scalar to add to the base loss. No gradient reaches the teacher."""
        weight = self.current_weight(progress)
        if weight == 0:
            return differentiable_zero(student)
        if teacher is None:
            raise InputError(f"teacher=None at progress={progress} has nothing to teach; skip it only where active(progress) is False")
        if isinstance(teacher, Tensor):
            teacher = TeacherBatch(teacher)
        elif not isinstance(teacher, TeacherBatch):
            refuse("teacher", type(teacher).__name__, "must be a batch of embeddings", "pass teacher(inputs)")
        check_rows("student", student)
        if len(student) != len(teacher.embeddings):
            sizes = f"{len(student)} rows against {len(teacher.embeddings)} of the teacher"
            refuse("student", sizes, "must be the same batch", "give both the same inputs")
        if teacher.known is not None:
            student, teacher = student[teacher.known], teacher.only_known()
            if len(student) < 2:
                return differentiable_zero(student)
        target = self.taught(teacher)
        D = inner_products(student, student)
        check_unit_length("student", D.diagonal(), student.dtype, squared=True)
        if target.shape != D.shape:
            refuse("targets", f"shape {tuple(target.shape)}", f"must give {tuple(D.shape)}", "return one distribution over the batch a row")
        term = kl_divergence if getattr(self.targets, "distributions", True) else listwise
        return self.temperature**2 * weight * term(D / self.temperature, target)


def kl_divergence(scores: Float[Tensor, "b b"], target: Float[Tensor, "b b"]) -> Float[Tensor, ""]:
    """KL(target ‖ softmax of the student's scores), the mean over rows (Eq. 1)."""
    check_distributions(target)
    log_student = torch.log_softmax(scores, dim=1)
    return F.kl_div(log_student, target.to(log_student.dtype), reduction="batchmean")


def listwise(scores: Float[Tensor, "b b"], labels: Float[Tensor, "b b"]) -> Float[Tensor, ""]:
    """-Σ_j labels_ij · log softmax(scores_i)_j over the other rows j ≠ i, the mean over rows i (BAR).

    >>> scores = torch.tensor([[1.0, 0.5, 0.5], [0.5, 1.0, 0.5], [0.5, 0.5, 1.0]])
    >>> listwise(scores, 2 * (1 - torch.eye(3)))  # two others, as near as each other: 4 · log 2
    tensor(2.7726)
    """
    itself = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
    log_student = torch.log_softmax(scores.masked_fill(itself, -torch.inf), dim=1).masked_fill(itself, 0.0)
    return -(labels.to(log_student.dtype) * log_student).sum(dim=1).mean()


def differentiable_zero(rows: Tensor) -> Tensor:
    """A zero that `backward()` accepts and that even NaN rows do not spoil: the sum of no rows at all."""
    return in_full(rows[:0]).sum()
