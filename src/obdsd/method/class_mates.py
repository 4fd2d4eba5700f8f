"""Targets that an item gets from its class-mates: what they are near to, it should be near to."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from obdsd.errors import InputError
from obdsd.method.targets import Targets, rows_and_cosines
from obdsd.method.teachers import TeacherBatch


@dataclass(frozen=True)
class ClassMates(Targets):
    """softmax(D_m/τ) of an item's class-mates m without the item and m itself, averaged over them: CS-KD's idea on rows, ours.

    T_i = mean over class-mates m of softmax_{j≠i,m}(D_mj/τ): a distribution over the other rows, or nothing without class-mates. Of an
    only mate m, T_im is 0: use it with system=soft-labels, where the labels' share holds class-mates together.

    >>> z = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [-1.0, 0.0]])
    >>> ClassMates()(TeacherBatch(z, labels=torch.tensor([0, 0, 1, 2])))
    tensor([[0.0000, 0.0000, 0.6900, 0.3100],
            [0.0000, 0.0000, 0.8320, 0.1680],
            [0.0000, 0.0000, 0.0000, 0.0000],
            [0.0000, 0.0000, 0.0000, 0.0000]])
    """

    distributions = False  # of the other rows, and 0 where nobody teaches

    def complete(self, batch: TeacherBatch, objective: nn.Module, labels: Int[Tensor, " b"]) -> TeacherBatch:
        return replace(batch, labels=labels)

    def __call__(self, teacher: TeacherBatch | Float[Tensor, "b d"], temperature: float = 1.0) -> Float[Tensor, "b b"]:
        _, D = rows_and_cosines(teacher, temperature)
        labels = teacher.labels if isinstance(teacher, TeacherBatch) else None
        if labels is None:
            raise InputError("labels=None leaves no class-mates to learn from; pass TeacherBatch(embeddings, labels=labels)")
        same = (labels[:, None] == labels).fill_diagonal_(False)
        if len(D) < 3:  # nobody else is left
            return torch.zeros_like(D)
        item, mate = same.nonzero(as_tuple=True)
        left_out = torch.stack((item, mate), dim=1)
        rows = (D[mate] / temperature).scatter(1, left_out, -torch.inf).softmax(dim=1)  # (pairs, batch)
        return torch.zeros_like(D).index_add(0, item, rows) / same.sum(dim=1, keepdim=True).clamp(min=1)
