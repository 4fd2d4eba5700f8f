"""The Margin loss with the paper's samplers, and its regularised form."""

from __future__ import annotations

from obdsd.method.checks import require
from obdsd.objectives.objective import Objective, library
from obdsd.objectives.samplers import Sampling, TripletSampler


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
    loss = losses.MarginLoss(margin=0.2, beta=beta, learn_beta=trained, num_classes=num_classes, distance=euclidean, reducer=active)
    own = {"lr": 5e-4, "weight_decay": 0.0}
    return Objective(loss, TripletSampler(sampling, seed), unit_rows=True, num_classes=num_classes, optimiser=own)


def r_margin(num_classes: int, beta: float = 0.6, seed: int = 0) -> Objective:
    """Regularised Margin: distance sampling, and one triplet in five pushes a true positive away.

    Args:
        num_classes: Classes of the training set.
        beta: Where every boundary β begins.
        seed: Seed of the sampling.
    """
    return margin(num_classes, beta, "regularised", seed)
