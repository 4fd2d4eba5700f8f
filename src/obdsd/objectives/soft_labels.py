"""Soft labels: the target of a contrastive loss, shared between the labels and a teacher."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from obdsd.errors import InputError
from obdsd.method.checks import require
from obdsd.method.diffusion import inner_products
from obdsd.method.distillation import SelfDistillation
from obdsd.method.matching import listwise, over_others
from obdsd.method.stages import stage
from obdsd.method.teachers import Teacher, TeacherBatch
from obdsd.objectives.objective import library
from obdsd.objectives.system import System


class SoftLabels(System):
    """Soft labels: the target of loss=supcon is (1-m)·labels + m·the teacher's row; m is the weight, 0 to 1, times the ramp.

    With p_i the student's softmax over the items j≠i at the loss's temperature, y_i uniform over i's class-mates, and t_i the teacher's
    targets without the diagonal, scaled to sum to 1, it is

        L = -mean_i Σ_{j≠i} [(1-m)·y_ij + m·t_ij]·log p_ij = (1-m)·SupCon + m·the listwise loss of t

    Without a teacher t_i is uniform: label smoothing, the control. An item that the teacher does not know keeps its labels.
    """

    objective: Any
    teaches = True
    teaches_targets = False
    matches = False

    def __init__(self, model: Any, make_loss: Callable[[int], nn.Module], teacher: Teacher, distill: SelfDistillation) -> None:
        rule = "is the teacher's share of the target and must lie in [0, 1]"
        require(distill.weight <= 1, "weight", distill.weight, rule, "try 0.5")
        super().__init__(model, make_loss(model.dim), teacher, distill)

    def check(self, items: int) -> None:
        if not isinstance(getattr(self.objective, "loss", None), library("losses").SupConLoss):
            raise InputError("there are no labels to soften in this loss; use loss=supcon")
        super().check(items)

    def losses(
        self, rows: Float[Tensor, "b c"], labels: Int[Tensor, " b"], taught: TeacherBatch | None, progress: float
    ) -> tuple[Tensor, Tensor]:
        """The labels' share of the cross-entropy, and the teacher's."""
        share = self.current_weight(progress)
        base = (1 - share) * self.objective(rows, labels)
        if share == 0:
            return base, torch.zeros_like(base)
        with stage("targets"):
            scores = inner_products(rows, rows) / self.objective.loss.temperature
            return base, share * listwise(scores, self.target(taught, labels))

    @torch.no_grad()
    def target(self, taught: TeacherBatch | None, labels: Int[Tensor, " b"]) -> Float[Tensor, "b b"]:
        """What the teacher's share goes to: for every item a distribution over the others."""
        same = (labels[:, None] == labels).float()
        if taught is None:
            return over_others(torch.ones_like(same))
        if taught.known is None:
            return over_others(self.distill.taught(taught))
        target, known = over_others(same), taught.known.nonzero().squeeze(1)
        if len(known) > 1:
            target[known] = 0
            target[known[:, None], known] = over_others(self.distill.taught(taught.only_known())).to(target)
        return target
