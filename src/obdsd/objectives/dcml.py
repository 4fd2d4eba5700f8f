"""DCML, deep compositional metric learning, in its plain form: a loss on each composite of a head that mixes several maps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from obdsd.errors import InputError
from obdsd.method.checks import check_number, require
from obdsd.method.distillation import SelfDistillation
from obdsd.method.precision import in_full
from obdsd.method.teachers import Teacher, TeacherBatch
from obdsd.objectives.objective import parameter_groups_of
from obdsd.objectives.system import System


class DCML(System):
    """DCML: the base loss on each composite of head=composed, each with its own β or proxies; the mixing is drawn to one map a composite.

    With m_c the composites, of unit length, and p_c what composite c takes of each map, the loss of a batch is

        mean over c of loss(m_c) + λ Σ_c mean over items of -log max_k p_ck

    The embedding is all composites side by side. This plain form is ours: the published one is defined on top of DiVA alone.

    Args:
        reinforcement: Weight of the second term (λ).
    """

    def __init__(
        self,
        model: Any,
        make_loss: Callable[[int], nn.Module],
        teacher: Teacher,
        distill: SelfDistillation,
        *,
        reinforcement: float = 1.0,
    ) -> None:
        if model.architecture.head != "composed":
            raise InputError(f"mixes the maps of a head of composites, head={model.architecture.head}; use head=composed and slices=4")
        check_number("reinforcement", reinforcement)
        require(0 <= reinforcement < math.inf, "reinforcement", reinforcement, "must be 0 or more and finite", "try 1")
        super().__init__(model, OnSlices(model, make_loss), teacher, distill)
        self.reinforcement = reinforcement

    def compile_model(self) -> None:
        self.model.backbone.compile()  # the head is asked for more than the rows: the model as a whole is not called

    def rows(self, inputs: Tensor) -> Float[Tensor, "b c"]:
        """Embeddings, and beside them what each composite takes of each map."""
        features = self.model.pool(self.model.feature_map(inputs))
        shares = self.model.head.shares(self.model.before_head(features))
        return torch.cat([self.model.embed(features), in_full(shares.flatten(1))], dim=1)

    def losses(
        self, rows: Float[Tensor, "b c"], labels: Int[Tensor, " b"], taught: TeacherBatch | None, progress: float
    ) -> tuple[Tensor, Tensor]:
        own, shares = rows.tensor_split([self.model.dim], dim=1)
        base, distillation = super().losses(own, labels, taught, progress)
        slices = self.model.architecture.slices
        return base + self.reinforcement * undecided(shares.reshape(-1, slices, slices)), distillation


class OnSlices(nn.Module):
    """(a model's rows, labels) → the mean of a loss on each slice, each slice with a loss of its own."""

    def __init__(self, model: Any, make_loss: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.slices_of = model.slices_of
        slices = model.architecture.slices
        self.losses = nn.ModuleList(make_loss(model.dim // slices) for _ in range(slices))

    def forward(self, rows: Float[Tensor, "b d"], labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        slices = self.slices_of(rows).unbind(dim=1)
        return torch.stack([loss(z, labels) for loss, z in zip(self.losses, slices, strict=True)]).mean()

    def parameter_groups(self) -> list[dict[str, Any]]:
        return [group for loss in self.losses for group in parameter_groups_of(loss)]


def undecided(shares: Float[Tensor, "b c e"]) -> Float[Tensor, ""]:
    """Σ over composites of the mean of -log of their largest share: 0 where each takes one map alone.

    >>> undecided(torch.full((1, 1, 2), 0.5))  # log 2
    tensor(0.6931)
    """
    return -shares.amax(dim=2).log().mean(dim=0).sum()
