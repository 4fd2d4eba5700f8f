"""What the teacher says in a batch, and how hard it pulls beside the base loss: one reading an epoch, to see why."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from obdsd.method.distillation import SelfDistillation
from obdsd.method.teachers import TeacherBatch


@torch.no_grad()
def targets_reading(distill: SelfDistillation, teacher: TeacherBatch, labels: Tensor) -> dict[str, float]:
    """Entropy of the targets' rows as a share of a flat row's, and what they give to the other items of a row's class."""
    if teacher.known is not None:
        teacher, labels = teacher.only_known(), labels[teacher.known]
    if len(labels) < 2:
        return {}
    targets = distill.taught(teacher)
    entropy = -torch.special.xlogy(targets, targets).sum(dim=1).mean()
    kin = (labels[:, None] == labels[None, :]).fill_diagonal_(False)
    return {"entropy": float(entropy) / math.log(len(labels)), "same_class": float((targets * kin).sum(dim=1).mean())}


def gradient_share(rows: Tensor, dim: int, base: Tensor, distillation: Tensor) -> float:
    """‖∂distillation/∂z‖ / (‖∂distillation/∂z‖ + ‖∂base/∂z‖), of what moves unit rows: the parts along each row are left out.

    z are the first `dim` columns; features may stand beside them."""
    pulls, z = [], rows[:, :dim].detach()
    for part in (distillation, base):
        (gradient,) = torch.autograd.grad(part, rows, retain_graph=True)
        gradient = gradient[:, :dim]
        along = (gradient * z).sum(dim=1, keepdim=True) * z
        pulls.append(float(torch.linalg.matrix_norm(gradient - along)))
    return pulls[0] / (sum(pulls) or 1.0)
