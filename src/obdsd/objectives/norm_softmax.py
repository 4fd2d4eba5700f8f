"""Norm-Softmax: the cross-entropy of scaled cosines to one proxy a class."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from obdsd.method.checks import check_number, require
from obdsd.objectives.objective import Objective, check_sizes, one_a_class, seeded


def norm_softmax(num_classes: int, dim: int, seed: int = 0, scale: float = 23.0) -> Objective:
    """Norm-Softmax: -log softmax(scale·cos(z, p))_y over one trained proxy p a class, the mean over rows; no margin, no bias.

    ProxyNCA with the positive in its sum is the same loss: -s·‖z-p‖² and 2s·cos(z, p) differ by the same number for every proxy, so its
    scale s is the scale 2s here. Proxies are normalised inside and learn at rate 1e-2, with Adam's ε = 1e-2.

    Args:
        num_classes: Classes of the training set.
        dim: Length of the embeddings.
        seed: Seed of the proxies.
        scale: What cosines are multiplied by.
    """
    check_sizes(num_classes, dim)
    loss = NormSoftmax(num_classes, dim, seed, scale)
    return Objective(loss, unit_rows=True, num_classes=num_classes, dim=dim, optimiser={"lr": 1e-2, "eps": 1e-2}, proxies=one_a_class)


class NormSoftmax(nn.Module):
    """See `norm_softmax`."""

    def __init__(self, num_classes: int, dim: int, seed: int, scale: float) -> None:
        super().__init__()
        check_number("scale", scale)
        require(0 < scale < float("inf"), "scale", scale, "must be above 0 and finite", "try 23")
        self.scale = scale
        self.proxies = nn.Parameter(torch.empty(num_classes, dim))
        seeded(nn.init.kaiming_normal_, seed, mode="fan_out")(self.proxies)

    def forward(self, embeddings: Float[Tensor, "b d"], labels: Int[Tensor, " b"], indices_tuple: None = None) -> Float[Tensor, ""]:
        P = nn.functional.normalize(self.proxies.to(embeddings.dtype), dim=1)
        return nn.functional.cross_entropy(self.scale * embeddings @ P.mT, labels)
