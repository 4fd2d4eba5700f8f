"""Matching by classes: cosines between items of different classes are drawn to how alike the classes are (PLG)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from obdsd.errors import InputError
from obdsd.method.checks import check_number, require, whole
from obdsd.method.diffusion import inner_products
from obdsd.method.matching import Matching, unit_rows
from obdsd.method.teachers import TeacherBatch


@dataclass(frozen=True)
class PLG(Matching):
    """Language guidance: KL of the softmax of the student's cosines and the softmax of the classes' similarities + shift (PLG).

    Entries of one class, the diagonal included, are 1 + shift in both, so that only cosines between classes get a gradient.

    Args:
        direction: KL(student ‖ classes), as published (backward), or KL(classes ‖ student) (forward).
        shift: Is added to the classes' similarities alone; beside the constant of one class it matters.
    """

    direction: Literal["backward", "forward"] = "backward"
    shift: float = 1.0
    reads = ("temperature",)

    def __post_init__(self) -> None:
        known = self.direction in ("backward", "forward")
        require(known, "direction", repr(self.direction), "is unknown", "use 'backward' or 'forward'")
        check_number("shift", self.shift)
        require(abs(self.shift) < float("inf"), "shift", self.shift, "must be finite", "try 1.0")

    def complete(self, batch: TeacherBatch, labels: Int[Tensor, " b"]) -> TeacherBatch:
        return replace(batch, labels=labels)

    def __call__(
        self, student: Float[Tensor, "b d"], teacher: TeacherBatch, targets: Callable[..., Tensor], temperature: float
    ) -> Float[Tensor, ""]:
        if teacher.labels is None:
            raise InputError("labels=None leaves the classes unknown; pass TeacherBatch(embeddings, labels=labels)")
        z, t = unit_rows("student", student), unit_rows("teacher", teacher.embeddings.detach())
        S, M = inner_products(z, z), inner_products(t, t)
        return class_guidance(S, M.to(S.dtype), whole("labels", teacher.labels), temperature, self.direction, self.shift)


def class_guidance(
    cosines: Float[Tensor, "b b"],
    similarity: Float[Tensor, "b b"],
    labels: Int[Tensor, " b"],
    temperature: float = 1.0,
    direction: Literal["backward", "forward"] = "backward",
    shift: float = 1.0,
) -> Float[Tensor, ""]:
    """PLG's loss without its factor T²; `similarity` is that of the items' classes.

    >>> alike = torch.tensor([[1.0, 0.5], [0.5, 1.0]])
    >>> class_guidance(alike, alike, torch.tensor([0, 1]), shift=0.0)
    tensor(0.)
    """
    one_class = labels[:, None] == labels[None, :]
    student, classes = (
        torch.log_softmax(scores.masked_fill(one_class, 1 + shift) / temperature, dim=1) for scores in (cosines, similarity + shift)
    )
    found, wanted = (classes, student) if direction == "backward" else (student, classes)
    return F.kl_div(found, wanted, reduction="batchmean", log_target=True)
