"""The Margin loss with the paper's samplers, and its regularised form."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from obdsd.method.checks import require
from obdsd.method.precision import in_full, without_autocast
from obdsd.objectives.objective import Objective, library
from obdsd.objectives.samplers import Sampling, Triplets, TripletSampler

MARGIN = 0.2
OWN = {"lr": 5e-4, "weight_decay": 0.0}
"""Settings of the optimiser for β."""


def margin(num_classes: int, beta: float = 1.2, sampling: Sampling = "distance", seed: int = 0, trained: bool = True) -> Objective:
    """Margin loss, margin 0.2, with a trained boundary β for each class, averaged over the triplets with any active term.

    Args:
        num_classes: Classes of the training set.
        beta: Where every boundary β begins.
        sampling: How triplets are drawn.
        seed: Seed of the sampling.
        trained: Whether the boundaries β learn.
    """
    require(num_classes >= 1, "num_classes", num_classes, "must be 1 or more", "pass the number of training classes")
    distances, losses, reducers = map(library, ("distances", "losses", "reducers"))
    euclidean, active = distances.LpDistance(normalize_embeddings=False), reducers.AvgNonZeroReducer()
    loss = losses.MarginLoss(margin=MARGIN, beta=beta, learn_beta=trained, num_classes=num_classes, distance=euclidean, reducer=active)
    return Objective(loss, TripletSampler(sampling, seed), unit_rows=True, num_classes=num_classes, optimiser=OWN)


def r_margin(num_classes: int, beta: float = 0.6, seed: int = 0) -> Objective:
    """Regularised Margin: distance sampling, and one triplet in five pushes a true positive away.

    Args:
        num_classes: Classes of the training set.
        beta: Where every boundary β begins.
        seed: Seed of the sampling.
    """
    return margin(num_classes, beta, "regularised", seed)


class MarginOfTriplets(nn.Module):
    """The Margin loss of triplets that are given: [d_ap - β + 0.2]₊ + [β - d_an + 0.2]₊, β the anchor's class's, d = √(‖·‖² + 1e-8).

    Rows of a triplet may be the same: they get no gradient from each other, but their triplet counts.
    """

    def __init__(self, num_classes: int, beta: float = 1.2) -> None:
        super().__init__()
        self.beta = nn.Parameter(torch.full((num_classes,), beta))

    def forward(self, rows: Float[Tensor, "b d"], labels: Int[Tensor, " b"], triplets: Triplets) -> Float[Tensor, ""]:
        a, p, n = triplets
        with without_autocast(rows):
            z, beta = in_full(rows), self.beta[labels[a]]
            d_ap, d_an = ((z[a] - z[other]).square().sum(dim=1).add(1e-8).sqrt() for other in (p, n))
            terms = (d_ap - beta + MARGIN).relu() + (beta - d_an + MARGIN).relu()
            return terms.sum() / (terms > 0).sum().clamp(min=1)

    def parameter_groups(self) -> list[dict[str, Any]]:
        return [{"params": [self.beta], **OWN}]
