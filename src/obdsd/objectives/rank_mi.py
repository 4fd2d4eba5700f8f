"""RankMI-style: a network learns to tell matching pairs from others by their distance, the embedding to make that easy for it."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import softplus

from obdsd.method.checks import check_number, require
from obdsd.method.distillation import differentiable_zero
from obdsd.objectives.objective import Objective
from obdsd.objectives.own_adam import OwnAdam
from obdsd.objectives.samplers import TripletSampler

Distances = Float[Tensor, " n"]


def rankmi(seed: int = 0, width: int = 64, network_lr: float = 1e-3, updates: int = 1) -> Objective:
    """RankMI-style: mean of softplus(-V(d)) over matching pairs + mean of softplus(V(d)) over others; V is a network that learns beside.

    It is -J, J the Jensen-Shannon lower bound on how far the distances of matching pairs are from those of others. Each training call does
    two things. First V ascends J on all pairs of the batch, by an Adam of its own, and the embedding stands still. Then the loss is -J with
    V fixed, over one positive and one distance-weighted negative an anchor. V begins as a falling function of the distance, 0 at 1. Written
    from memory of the paper, without its code: the idea is RankMI's, details may differ.

    Args:
        seed: Seed of V and of the sampling.
        width: Hidden units of V, which is Linear-ReLU-Linear of one distance.
        network_lr: Learning rate of V's own optimiser.
        updates: Steps of V for each batch.
    """
    return Objective(RankMI(seed, width, network_lr, updates), TripletSampler("distance", seed), unit_rows=True)


class RankMI(nn.Module):
    """See `rankmi`. V's parameters want no gradient: the training's optimiser leaves them alone."""

    def __init__(self, seed: int, width: int, network_lr: float, updates: int) -> None:
        super().__init__()
        check_number("network_lr", network_lr)
        require(width >= 1, "width", width, "must be 1 or more", "try 64")
        require(0 < network_lr < float("inf"), "network_lr", network_lr, "must be a positive finite number", "try 1e-3")
        require(updates >= 1, "updates", updates, "must be 1 or more", "try 1")
        generator = torch.Generator().manual_seed(seed)
        self.slopes = _drawn(0.0, 1.0, width, generator)
        self.offsets = _drawn(-1.0, 1.0, width, generator)
        self.weights = _drawn(-(width**-0.5), 0.0, width, generator)
        self.bias = _drawn(0.0, 0.0, 1, generator)
        self.bias.copy_(-self.value(torch.ones(1)))
        self.updates = updates
        self.adam = OwnAdam([*self.parameters()], network_lr)

    def value(self, d: Distances, parameters: list[Tensor] | None = None) -> Float[Tensor, " n"]:
        """V(d) = w·relu(a·d + c) + c₀, with other parameters than its own if they are given."""
        a, c, w, c0 = (each.to(d.dtype) for each in parameters or self.parameters())
        return torch.relu(d[:, None] * a + c) @ w + c0

    def forward(
        self, embeddings: Float[Tensor, "b d"], labels: Int[Tensor, " b"], indices_tuple: tuple[Tensor, Tensor, Tensor]
    ) -> Float[Tensor, ""]:
        """-J over the triplets; in training V takes its steps first."""
        if self.training:
            self.learn(embeddings.detach(), labels)
        anchors, positives, negatives = indices_tuple
        if not len(anchors):
            return differentiable_zero(embeddings)
        matching, others = (_distances(embeddings, anchors, ends) for ends in (positives, negatives))
        return minus_bound(self.value(matching), self.value(others))

    def learn(self, rows: Float[Tensor, "b d"], labels: Int[Tensor, " b"]) -> None:
        """V's steps on all pairs of the batch; none where all match or none does."""
        one, other = torch.triu_indices(len(rows), len(rows), 1, device=rows.device)
        same: Bool[Tensor, " n"] = labels[one] == labels[other]
        if same.all() or not same.any():
            return
        d, own = torch.cdist(rows, rows)[one, other], [*self.parameters()]
        for _ in range(self.updates):
            with torch.enable_grad():
                parameters = [each.detach().requires_grad_() for each in own]
                loss = minus_bound(self.value(d[same], parameters), self.value(d[~same], parameters))
                gradients = torch.autograd.grad(loss, parameters)
            self.adam.step(own, gradients)


def minus_bound(of_matching: Float[Tensor, " m"], of_others: Float[Tensor, " n"]) -> Float[Tensor, ""]:
    """-J = mean softplus(-V) over matching pairs + mean softplus(V) over others.

    >>> minus_bound(torch.zeros(3), torch.zeros(2))  # V knows nothing: 2 log 2
    tensor(1.3863)
    """
    return softplus(-of_matching).mean() + softplus(of_others).mean()


def _distances(rows: Float[Tensor, "b d"], one: Int[Tensor, " n"], other: Int[Tensor, " n"]) -> Distances:
    return torch.linalg.vector_norm(rows[one] - rows[other], dim=1)


def _drawn(low: float, high: float, size: int, generator: torch.Generator) -> nn.Parameter:
    return nn.Parameter(torch.empty(size).uniform_(low, high, generator=generator), requires_grad=False)
