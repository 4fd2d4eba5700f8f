"""Matching row by row: the student's row is drawn to the teacher's row of the same item."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from obdsd.method.checks import refuse, require
from obdsd.method.matching import OfRows


class Regression(nn.Module, OfRows):
    """Regression: the mean of 1 - cos(Mx_i, t_i), or of ‖Mx_i - t_i‖², x a student's row and t its teacher's.

    M is a linear map that is learned with the student, where both have different lengths, or live in different spaces (`map=True`); else
    there is none. It is no part of the model.

    Args:
        dim: Length of the student's rows.
        teacher_dim: Length of the teacher's rows; None: the same.
        form: By the cosine, or by the squared distance. Without a map the latter is twice the former.
        map: Whether a linear map leads to the teacher's space; left open, where lengths differ.
        seed: For the map's initialisation; torch's global generator is left alone.

    >>> Regression(dim=8, teacher_dim=32).map.weight.shape
    torch.Size([32, 8])
    """

    one_space = True
    forward = OfRows.__call__
    map: nn.Linear | None

    def __init__(
        self,
        dim: int,
        teacher_dim: int | None = None,
        form: Literal["cosine", "squared"] = "cosine",
        map: bool | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        require(form in ("cosine", "squared"), "form", repr(form), "is unknown", "use 'cosine' or 'squared'")
        self.form, self.dim, self.teacher_dim = form, dim, teacher_dim or dim
        require(
            min(dim, self.teacher_dim) >= 1, "dim, teacher_dim", (dim, teacher_dim), "must be 1 or more", "pass the lengths of the rows"
        )
        differ = self.teacher_dim != dim
        if differ and map is False:
            remedy = "leave map out, and a linear map is learned"
            refuse("map", map, f"cannot compare rows of length {dim} with a teacher's of {self.teacher_dim}", remedy)
        self.map = _linear_map(dim, self.teacher_dim, seed) if differ or map else None

    def of_rows(self, student: Float[Tensor, "b d"], teacher: Float[Tensor, "b e"]) -> Float[Tensor, ""]:
        found, expected = (student.shape[1], teacher.shape[1]), (self.dim, self.teacher_dim)
        require(found == expected, "lengths of student's and teacher's rows", found, f"must be {expected}", "make the matching for them")
        x = student if self.map is None else self.map(student.to(self.map.weight.dtype))
        if self.form == "cosine":
            return (1 - F.cosine_similarity(x, teacher, dim=1)).mean()
        return (x - teacher).square().sum(dim=1).mean()

    def extra_repr(self) -> str:
        return f"{self.form}, {self.dim} to {self.teacher_dim}"


def _linear_map(dim: int, teacher_dim: int, seed: int) -> nn.Linear:
    """It begins as one that keeps lengths and angles, as far as lengths allow."""
    layer = nn.Linear(dim, teacher_dim, bias=False, device="meta").to_empty(device="cpu")  # draws nothing from the global generator
    with torch.no_grad():
        nn.init.orthogonal_(layer.weight, generator=torch.Generator().manual_seed(seed))
    return layer
