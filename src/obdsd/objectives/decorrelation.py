"""Adversarial decorrelation: two embeddings of one item that shall say different things (MIC, DiVA)."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from obdsd.method.precision import in_full, without_autocast
from obdsd.objectives.heads import two_layers, unit_rows


class _Reversed(torch.autograd.Function):
    """Its input; the gradient of it with the other sign."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return -gradients[0]


def reversed_gradient(x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    """x, whose gradient comes back with the other sign.

    >>> x = torch.ones(2, requires_grad=True)
    >>> reversed_gradient(3 * x).sum().backward()
    >>> x.grad
    tensor([-3., -3.])
    """
    return _Reversed.apply(x)


class Decorrelation(nn.Module):
    """L = -mean over items and coordinates of (ĉ ⊙ R̂(â))², hats for unit length; R learns to predict c from a.

    R makes L small: it makes c and its prediction alike. Rows a and c get the opposite gradient, they flee from what R finds. Values lie
    near -1/d² for rows of length d, so its weight is large.

    Args:
        source: Length of a, which is predicted from.
        target: Length of c, which is predicted.
        generator: For R's initialisation.
        hidden: Width of R between its layers.
    """

    def __init__(self, source: int, target: int, generator: torch.Generator, hidden: int = 512) -> None:
        super().__init__()
        self.regressor = two_layers(source, hidden, target, generator)

    def forward(self, source: Float[Tensor, "b s"], target: Float[Tensor, "b t"]) -> Float[Tensor, ""]:
        with without_autocast(source):
            a, c = (unit_rows(reversed_gradient(in_full(rows))) for rows in (source, target))
            return -(c * unit_rows(self.regressor(a))).square().mean()
