"""Proxy-Anchor."""

from __future__ import annotations

from torch import nn

from obdsd.method.checks import check_number, require
from obdsd.objectives.objective import Objective, check_sizes, library, one_a_class, seeded


def proxy_anchor(num_classes: int, dim: int, seed: int = 0, alpha: float = 32.0, margin: float = 0.1) -> Objective:
    """Proxy-Anchor: one trained proxy a class with learning rate 1e-2.

    Embeddings and proxies are normalised inside, as its authors do.

    Args:
        num_classes: Classes of the training set.
        dim: Length of the embeddings.
        seed: Seed of the proxies.
        alpha: Scale α of the similarities.
        margin: Margin δ.
    """
    check_sizes(num_classes, dim)
    for name, value in (("alpha", alpha), ("margin", margin)):
        check_number(name, value)
    require(0 < alpha < float("inf"), "alpha", alpha, "must be positive and finite", "try 32")
    require(0 <= margin <= 2, "margin", margin, "must lie in [0, 2], as distances of cosines do", "try 0.1")
    initialise = seeded(nn.init.kaiming_normal_, seed, mode="fan_out")
    loss = library("losses").ProxyAnchorLoss(num_classes, dim, margin=margin, alpha=alpha, weight_init_func=initialise)
    return Objective(loss, unit_rows=True, num_classes=num_classes, dim=dim, optimiser={"lr": 1e-2}, proxies=one_a_class)
