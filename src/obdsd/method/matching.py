"""Matching: how far a student is from what its teacher knows of a batch. By the teacher's targets (Eq. 1), or by its rows themselves."""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from obdsd.method.checks import check_distributions, check_unit_length, refuse
from obdsd.method.diffusion import inner_products
from obdsd.method.precision import in_full, without_autocast
from obdsd.method.teachers import TeacherBatch


class Matching(abc.ABC):
    """(student's rows, teacher's batch, targets, temperature) → how far the student is from its teacher, a scalar.

    Rows are of unit length, and the teacher knows all of them. A matching that trains something of its own is an `nn.Module`, too.

    Attributes:
        reads: What it uses beside the rows, of `targets` and `temperature`. Of one that uses the temperature, τ² is a factor.
        one_space: Whether it compares a student's row with the teacher's row, and so needs both in one space.
    """

    reads: tuple[str, ...] = ()
    one_space = False

    @abc.abstractmethod
    def __call__(
        self, student: Float[Tensor, "b d"], teacher: TeacherBatch, targets: Callable[..., Tensor], temperature: float
    ) -> Float[Tensor, ""]: ...

    def complete(self, batch: TeacherBatch, labels: Int[Tensor, " b"]) -> TeacherBatch:
        """The teacher's batch with what the matching needs of the labels; a hook of a training."""
        return batch


@dataclass(frozen=True)
class KL(Matching):
    """KL(targets ‖ softmax(D/τ)), D the student's cosines, the mean over rows (Eq. 1). Of targets that are labels: a listwise loss.

    Args:
        diagonal: Whether an item is among those that its row is a distribution over; left open, as the targets have it.

    >>> from obdsd import PairwiseTargets
    >>> teacher = TeacherBatch(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]))
    >>> student = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    >>> KL()(student, teacher, PairwiseTargets(), 1.0), KL(diagonal=False)(student, teacher, PairwiseTargets(), 1.0)
    (tensor(0.0642), tensor(0.0888))
    """

    diagonal: bool | None = None
    reads = ("targets", "temperature")

    def __call__(
        self, student: Float[Tensor, "b d"], teacher: TeacherBatch, targets: Callable[..., Tensor], temperature: float
    ) -> Float[Tensor, ""]:
        with torch.no_grad():
            target = targets(teacher, temperature)
        D = inner_products(student, student)
        check_unit_length("student", D.diagonal(), student.dtype, squared=True)
        if target.shape != D.shape:
            refuse("targets", f"shape {tuple(target.shape)}", f"must give {tuple(D.shape)}", "return one distribution over the batch a row")
        if not getattr(targets, "distributions", True):
            return listwise(D / temperature, target)
        whole = getattr(targets, "diagonal", True) if self.diagonal is None else self.diagonal
        return (kl_divergence if whole else kl_of_others)(D / temperature, target)


def kl_divergence(scores: Float[Tensor, "b b"], target: Float[Tensor, "b b"]) -> Float[Tensor, ""]:
    """KL(target ‖ softmax of the student's scores), the mean over rows (Eq. 1)."""
    check_distributions(target)
    log_student = torch.log_softmax(scores, dim=1)
    return F.kl_div(log_student, target.to(log_student.dtype), reduction="batchmean")


def kl_of_others(scores: Float[Tensor, "b b"], target: Float[Tensor, "b b"]) -> Float[Tensor, ""]:
    """The same over the other rows j ≠ i: both distributions lose their diagonal. A target that is nothing beside it teaches nothing."""
    check_distributions(target)
    log_student = _log_softmax_of_others(scores)
    return F.kl_div(log_student, over_others(target.to(log_student.dtype)), reduction="batchmean")


def over_others(target: Float[Tensor, "b b"]) -> Float[Tensor, "b b"]:
    """Without the diagonal, rows scaled to sum to 1; a row of nothing else stays at 0.

    >>> over_others(torch.tensor([[0.8, 0.1, 0.1], [0.3, 0.6, 0.1], [0.0, 0.0, 1.0]]))
    tensor([[0.0000, 0.5000, 0.5000],
            [0.7500, 0.0000, 0.2500],
            [0.0000, 0.0000, 0.0000]])
    """
    return F.normalize(target.clone().fill_diagonal_(0), p=1, dim=1, eps=torch.finfo(target.dtype).tiny)


def listwise(scores: Float[Tensor, "b b"], labels: Float[Tensor, "b b"]) -> Float[Tensor, ""]:
    """-Σ_j labels_ij · log softmax(scores_i)_j over the other rows j ≠ i, the mean over rows i (BAR).

    >>> scores = torch.tensor([[1.0, 0.5, 0.5], [0.5, 1.0, 0.5], [0.5, 0.5, 1.0]])
    >>> listwise(scores, 2 * (1 - torch.eye(3)))  # two others, as near as each other: 4 · log 2
    tensor(2.7726)
    """
    log_student = _log_softmax_of_others(scores)
    return -(labels.to(log_student.dtype) * log_student).sum(dim=1).mean()


def _log_softmax_of_others(scores: Tensor) -> Tensor:
    """Over the other rows j ≠ i; 0 on the diagonal."""
    itself = _itself(scores)
    return torch.log_softmax(scores.masked_fill(itself, -torch.inf), dim=1).masked_fill(itself, 0.0)


def _itself(square: Tensor) -> Tensor:
    return torch.eye(len(square), dtype=torch.bool, device=square.device)


class OfRows(Matching):
    """A matching of rows with rows: it asks for no targets."""

    def __call__(
        self, student: Float[Tensor, "b d"], teacher: TeacherBatch, targets: Callable[..., Tensor], temperature: float
    ) -> Float[Tensor, ""]:
        x, t = unit_rows("student", student), unit_rows("teacher", teacher.embeddings.detach())
        with without_autocast(x):
            return self.of_rows(x, t)

    @abc.abstractmethod
    def of_rows(self, student: Float[Tensor, "b d"], teacher: Float[Tensor, "b e"]) -> Float[Tensor, ""]:
        """How far apart they are, in float32 or better."""


def unit_rows(field: str, rows: Float[Tensor, "b d"]) -> Float[Tensor, "b d"]:
    """The rows in float32 or better; refused if they are not of unit length."""
    full = in_full(rows)
    check_unit_length(field, torch.linalg.vector_norm(full.detach(), dim=1), rows.dtype)
    return full
