"""ProxyNCA++."""

from __future__ import annotations

from torch import nn

from obdsd.method.checks import check_number, require
from obdsd.objectives.objective import Objective, check_sizes, library, one_a_class, seeded


def proxy_nca(num_classes: int, dim: int, seed: int = 0, scale: float = 9.0) -> Objective:
    """ProxyNCA++: -log of the softmax of -scale·‖z-p‖² over all proxies, the positive one included, at its label's.

    The proxies' published learning rate, 400, goes with Adam's ε = 1, at which a step is as long as the gradient makes it, and with no
    weight decay; whoever changes the one has to change the other. Embeddings and proxies are normalised inside.

    Args:
        num_classes: Classes of the training set.
        dim: Length of the embeddings.
        seed: Seed of the proxies.
        scale: What squared distances are multiplied by.
    """
    check_sizes(num_classes, dim)
    check_number("scale", scale)
    require(0 < scale < float("inf"), "scale", scale, "must be above 0 and finite", "try 9")
    initialise = seeded(nn.init.normal_, seed, std=1 / 8)
    loss = library("losses").ProxyNCALoss(num_classes, dim, softmax_scale=scale, weight_init_func=initialise)
    optimiser = {"lr": 4e2, "eps": 1.0, "weight_decay": 0.0}
    return Objective(loss, unit_rows=True, num_classes=num_classes, dim=dim, optimiser=optimiser, proxies=one_a_class)
