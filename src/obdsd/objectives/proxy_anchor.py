"""Proxy-Anchor."""

from __future__ import annotations

from torch import nn

from obdsd.objectives.objective import Objective, check_sizes, library, one_a_class, seeded


def proxy_anchor(num_classes: int, dim: int, seed: int = 0) -> Objective:
    """Proxy-Anchor: α = 32, δ = 0.1, one trained proxy a class with learning rate 1e-2.

    Embeddings and proxies are normalised inside, as its authors do.

    Args:
        num_classes: Classes of the training set.
        dim: Length of the embeddings.
        seed: Seed of the proxies.
    """
    check_sizes(num_classes, dim)
    initialise = seeded(nn.init.kaiming_normal_, seed, mode="fan_out")
    loss = library("losses").ProxyAnchorLoss(num_classes, dim, margin=0.1, alpha=32, weight_init_func=initialise)
    return Objective(loss, unit_rows=True, num_classes=num_classes, dim=dim, optimiser={"lr": 1e-2}, proxies=one_a_class)
