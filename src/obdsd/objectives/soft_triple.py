"""SoftTriple: several trained centres a class."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from obdsd.objectives.objective import Objective, check_sizes, library, seeded


def soft_triple(num_classes: int, dim: int, seed: int = 0) -> Objective:
    """SoftTriple: 10 centres a class, λ = 20, γ = 0.1, margin 0.01, and τ = 0.2 times how far a class's centres are apart.

    The centres' learning rate 1e-2 goes with Adam's ε = 1e-2, as published. Embeddings and centres are normalised inside.

    Args:
        num_classes: Classes of the training set.
        dim: Length of the embeddings.
        seed: Seed of the centres.
    """
    check_sizes(num_classes, dim)
    initialise = seeded(nn.init.kaiming_uniform_, seed, a=math.sqrt(5))
    spread = {"weight_regularizer": _Spread(centres=10), "weight_reg_weight": 0.2}
    loss = library("losses").SoftTripleLoss(
        num_classes, dim, centers_per_class=10, la=20, gamma=0.1, margin=0.01, weight_init_func=initialise, **spread
    )
    optimiser = {"lr": 1e-2, "eps": 1e-2}
    return Objective(loss, unit_rows=True, num_classes=num_classes, dim=dim, optimiser=optimiser, proxies=several_a_class)


def several_a_class(loss: Any) -> Float[Tensor, "c k d"]:
    """The centres of each class of a SoftTriple loss."""
    return loss.fc.T.unflatten(0, (loss.num_classes, loss.centers_per_class))


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
