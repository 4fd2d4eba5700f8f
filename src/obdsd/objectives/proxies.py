"""Proxy losses: one trained proxy a class, or several centres, from pytorch-metric-learning with their authors' settings.

All three have the embeddings and the proxies normalised inside, as their authors do: proxies are no unit rows.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from pytorch_metric_learning import losses
from torch import Tensor, nn

from obdsd.method.checks import require
from obdsd.objectives.losses import Objective


def proxy_anchor(num_classes: int, dim: int, seed: int = 0) -> Objective:
    """Proxy-Anchor: α = 32, δ = 0.1, one trained proxy a class with learning rate 1e-2."""
    _check_sizes(num_classes, dim)

    def initialise(proxies: Tensor) -> None:
        nn.init.kaiming_normal_(proxies, mode="fan_out", generator=torch.Generator().manual_seed(seed))

    loss = losses.ProxyAnchorLoss(num_classes, dim, margin=0.1, alpha=32, weight_init_func=initialise)
    return Objective(loss, unit_rows=True, num_classes=num_classes, dim=dim, optimiser={"lr": 1e-2})


def proxy_nca(num_classes: int, dim: int, seed: int = 0) -> Objective:
    """ProxyNCA++: -log of the softmax of -9·‖z-p‖² over all proxies, the positive one included, at its label's.

    The proxies' published learning rate, 400, goes with Adam's ε = 1, at which a step is as long as the gradient makes it, and with no
    weight decay; whoever changes the one has to change the other.
    """
    _check_sizes(num_classes, dim)

    def initialise(proxies: Tensor) -> None:
        nn.init.normal_(proxies, std=1 / 8, generator=torch.Generator().manual_seed(seed))

    loss = losses.ProxyNCALoss(num_classes, dim, softmax_scale=9, weight_init_func=initialise)
    optimiser = {"lr": 4e2, "eps": 1.0, "weight_decay": 0.0}
    return Objective(loss, unit_rows=True, num_classes=num_classes, dim=dim, optimiser=optimiser)


def soft_triple(num_classes: int, dim: int, seed: int = 0) -> Objective:
    """SoftTriple: 10 centres a class, λ = 20, γ = 0.1, margin 0.01, and τ = 0.2 times how far a class's centres are apart.

    The centres' learning rate 1e-2 goes with Adam's ε = 1e-2, as published.
    """
    _check_sizes(num_classes, dim)

    def initialise(centres: Tensor) -> None:
        nn.init.kaiming_uniform_(centres, a=math.sqrt(5), generator=torch.Generator().manual_seed(seed))

    loss = losses.SoftTripleLoss(
        num_classes,
        dim,
        centers_per_class=10,
        la=20,
        gamma=0.1,
        margin=0.01,
        weight_init_func=initialise,
        weight_regularizer=_Spread(centres=10),
        weight_reg_weight=0.2,
    )
    return Objective(loss, unit_rows=True, num_classes=num_classes, dim=dim, optimiser={"lr": 1e-2, "eps": 1e-2})


class _Spread(nn.Module):
    """How far the centres of a class are apart, on average: Σ ‖w_s-w_t‖ over a class's pairs s < t and all classes, over C·K(K-1).

    The library's own compares all centres of all classes with each other: 50 GB for the 11,318 classes of SOP.
    """

    def __init__(self, centres: int) -> None:
        super().__init__()
        self.centres = centres

    def forward(self, weights: Float[Tensor, "ck d"]) -> Float[Tensor, ""]:
        w = nn.functional.normalize(weights, dim=1).view(-1, self.centres, weights.shape[1])  # (classes, centres, dim)
        cosines = w @ w.mT
        first, second = torch.triu_indices(self.centres, self.centres, offset=1, device=w.device)
        # The published 1e-5 keeps the root's slope finite where centres meet.
        return (2 + 1e-5 - 2 * cosines[:, first, second]).sqrt().mean() / 2


def _check_sizes(num_classes: int, dim: int) -> None:
    require(num_classes >= 1 and dim >= 1, "num_classes, dim", (num_classes, dim), "must be 1 or more", "pass the training set's")
