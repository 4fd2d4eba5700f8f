"""The mean-field contrastive loss: a contrastive loss between items and one trained vector a class."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from obdsd.method.checks import check_number, require
from obdsd.objectives.objective import Objective, check_sizes, one_a_class


def mean_field(num_classes: int, dim: int, seed: int = 0, positive: float = 0.02, negative: float = 0.3, apart: float = 0.0) -> Objective:
    """Mean-field contrastive: one trained vector a class stands for its items in a contrastive loss.

    With d = 1 - cosine, m_c the class's vectors and y_i the class of row i, it is the mean over rows of
    max(d(z_i, m_y) - positive, 0) + Σ_{c≠y} max(negative - d(z_i, m_c), 0), plus `apart` times the mean over classes of
    Σ_{c'≠c} max(negative - d(m_c, m_c'), 0)². Rows and vectors are normalised inside; the vectors learn at rate 0.2.

    Args:
        num_classes: Classes of the training set.
        dim: Length of the embeddings.
        seed: Seed of the vectors.
        positive: Distance from its class's vector below which a row is near enough.
        negative: Distance from other classes' vectors above which a row is far enough.
        apart: Weight at which the classes' vectors are kept apart from each other.
    """
    check_sizes(num_classes, dim)
    loss = MeanField(num_classes, dim, seed, positive, negative, apart)
    return Objective(loss, unit_rows=True, num_classes=num_classes, dim=dim, optimiser={"lr": 0.2}, proxies=one_a_class)


class MeanField(nn.Module):
    """See `mean_field`."""

    def __init__(self, num_classes: int, dim: int, seed: int, positive: float, negative: float, apart: float) -> None:
        super().__init__()
        for name, value in (("positive", positive), ("negative", negative), ("apart", apart)):
            check_number(name, value)
            require(0 <= value < float("inf"), name, value, "must be 0 or more and finite", "try 0.02, 0.3 and 0, as published")
        self.positive, self.negative, self.apart = positive, negative, apart
        self.proxies = nn.Parameter(torch.randn(num_classes, dim, generator=torch.Generator().manual_seed(seed)))

    def forward(self, embeddings: Float[Tensor, "b d"], labels: Int[Tensor, " b"], indices_tuple: None = None) -> Float[Tensor, ""]:
        z, m = nn.functional.normalize(embeddings, dim=1), nn.functional.normalize(self.proxies.to(embeddings.dtype), dim=1)
        d = 1 - z @ m.mT  # (batch, classes)
        own = nn.functional.one_hot(labels, len(m)).bool()
        pairs = torch.where(own, d - self.positive, self.negative - d).relu().sum(dim=1).mean()
        if not self.apart:
            return pairs
        between = (self.negative - (1 - m @ m.mT)).relu().square()
        return pairs + self.apart * between.fill_diagonal_(0).sum(dim=1).mean()
