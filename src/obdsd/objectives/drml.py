"""DRML, deep relational metric learning: each branch of the features learns from the rows that it describes best."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from obdsd.errors import InputError
from obdsd.method.checks import check_number, require
from obdsd.method.distillation import SelfDistillation
from obdsd.method.precision import in_full
from obdsd.method.teachers import Teacher
from obdsd.models.relational import OfChunk
from obdsd.objectives.objective import parameter_groups_of
from obdsd.objectives.system import System


class DRML(System):
    """DRML: a loss on each branch's nodes for the rows that it describes best, one on the embedding, and decoders that find it out.

    L = Σ_g loss_g(nodes n_g of the rows of branch g) + weight · loss(embedding) + mean of r. A decoder of each branch rebuilds the
    branch's features of its node; r_ig is its mean squared error, without gradient to the model, and row i is of the branch with the
    least. The model is one with head=relational; the decoders are thrown away with this module.

    Args:
        weight: Weight of the embedding's loss.
        decoder_lr: Learning rate of the decoders.
    """

    objective: Branches

    def __init__(
        self,
        model: Any,
        make_loss: Callable[[int], nn.Module],
        teacher: Teacher,
        distill: SelfDistillation,
        seed: int = 0,
        *,
        weight: float = 10.0,
        decoder_lr: float = 1e-3,
    ) -> None:
        check_number("weight", weight)
        check_number("decoder_lr", decoder_lr)
        require(0 <= weight < float("inf"), "weight", weight, "must be 0 or more and finite", "try 10")
        require(0 < decoder_lr < float("inf"), "decoder_lr", decoder_lr, "must be above 0 and finite", "try 1e-3")
        if model.architecture.head != "relational":
            raise InputError(f"head={model.architecture.head} has no branches; use head=relational")
        if model.architecture.slices > 1:
            raise InputError(f"slices={model.architecture.slices} are not of this system; leave slices out")
        objective = Branches(make_loss, model.feature_dim, model.dim, model.architecture.branches, weight, seed)
        super().__init__(model, objective, teacher, distill)
        self.decoder_lr = decoder_lr

    def compile_model(self) -> None:
        self.model.backbone.compile()  # the model as a whole is not called

    def rows(self, inputs: Tensor) -> Float[Tensor, "b c"]:
        """Unit rows, beside them the nodes of the branches, and how well each branch describes a row."""
        pooled = self.model.pool(self.model.feature_map(inputs))
        features = self.model.before_head(pooled)
        nodes = self.model.head.nodes(features)
        errors = self.objective.errors(self.model.head.chunks(features), nodes)
        return torch.cat([self.model.embed(pooled), nodes.flatten(1), errors], dim=1)

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        decoders = {"params": [*self.objective.decode.parameters()], "lr": self.decoder_lr, "at_base_lr": True}
        return [decoders, *super().parameter_groups(lr)]


class Branches(nn.Module):
    """The loss of `DRML.rows`: embeddings, nodes and errors side by side.

    Args:
        make_loss: Makes a base loss for rows of the given length, a new one at each call.
        features: Length of the features.
        dim: Length of the embeddings.
        branches: Into how many parts both are cut.
        weight: Weight of the embedding's loss.
        seed: Seed of the decoders.
    """

    def __init__(self, make_loss: Callable[[int], nn.Module], features: int, dim: int, branches: int, weight: float, seed: int) -> None:
        super().__init__()
        self.dim, self.branches, self.weight = dim, branches, weight
        generator = torch.Generator().manual_seed(seed)
        self.decode = OfChunk(branches, dim // branches, features // branches, generator)
        self.whole = make_loss(dim)
        self.of_branch = nn.ModuleList(make_loss(dim // branches) for _ in range(branches))
        self.fewest = 2 if getattr(self.whole, "proxies", None) is None else 1  # rows from which something can be learned

    def errors(self, chunks: Float[Tensor, "b g w"], nodes: Float[Tensor, "b g l"]) -> Float[Tensor, "b g"]:
        """r: the mean squared error of each branch's features, rebuilt of its node; only the decoders learn of it."""
        return (in_full(self.decode(nodes.detach())) - in_full(chunks.detach())).square().mean(dim=2)

    def forward(self, rows: Float[Tensor, "b c"], labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        embeddings, nodes, errors = rows[:, : self.dim], rows[:, self.dim : 2 * self.dim], rows[:, 2 * self.dim :]
        total, best = self.weight * self.whole(embeddings, labels) + errors.mean(), errors.argmin(dim=1)
        for branch, (loss, own) in enumerate(zip(self.of_branch, nodes.chunk(self.branches, dim=1), strict=True)):
            described = best == branch
            if int(described.sum()) >= self.fewest:
                total = total + loss(own[described], labels[described])
        return total

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The losses' own trainable parameters as optimiser groups: the embedding's, then each branch's."""
        return [group for loss in (self.whole, *self.of_branch) for group in parameter_groups_of(loss)]
