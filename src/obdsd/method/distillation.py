"""The distillation term: τ² · ramp · λ · KL(targets ‖ student), Eq. 1, 2, 6 and 7; or another matching in the place of the KL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from obdsd.errors import InputError
from obdsd.method.checks import check_number, check_rows, check_temperature, refuse, require
from obdsd.method.matching import KL, Matching
from obdsd.method.precision import in_full
from obdsd.method.targets import PairwiseTargets
from obdsd.method.teachers import TeacherBatch


@dataclass(frozen=True)
class SelfDistillation:
    """A term to add to any metric-learning loss: the student's batch similarities are drawn to the teacher's targets.

    `weight` is λ, the final weight; with `ramp="linear"` it grows with `progress` = epoch / epochs, so that the first epoch
    needs no teacher; `"constant"` is the paper's ablation. `targets` choose PSD (`PairwiseTargets`) or OBD-SD (`BatchDiffusion`),
    or are any function of (teacher's batch, temperature). `matching` says how the student is compared with the teacher: by the KL to the
    targets, or by another that may ask for no targets, as `RKD()`. τ² is a factor of those that use the temperature.

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
    matching: Matching = KL()

    def __post_init__(self) -> None:
        check_number("weight", self.weight)
        require(0 <= self.weight < float("inf"), "weight", self.weight, "must be 0 or more and finite", "use 0 to switch it off")
        check_temperature(self.temperature)
        fits = callable(self.targets) and not isinstance(self.targets, type)
        require(fits, "targets", self.targets, "must be targets, not their class or something else", "try BatchDiffusion(omega=0.3)")
        fits = isinstance(self.matching, Matching)
        require(fits, "matching", self.matching, "must be a matching, not its class or something else", "try KL() or RKD()")
        require(self.ramp in ("linear", "constant"), "ramp", repr(self.ramp), "is unknown", "use 'linear' or 'constant'")

    def current_weight(self, progress: float) -> float:
        """λ times the ramp: what the matching weighs at this point of the training, before τ²."""
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
        factor = self.temperature**2 if "temperature" in self.matching.reads else 1.0
        return factor * weight * self.matching(student, teacher, self.targets, self.temperature)


def differentiable_zero(rows: Tensor) -> Tensor:
    """A zero that `backward()` accepts and that even NaN rows do not spoil: the sum of no rows at all."""
    return in_full(rows[:0]).sum()
