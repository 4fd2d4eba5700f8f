"""EPSHN: each anchor's easiest positive against its hardest negative."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from obdsd.method.checks import check_temperature, require
from obdsd.method.distillation import differentiable_zero
from obdsd.objectives.objective import Objective

SAME_IMAGE = 0.9999  # a positive that is more similar is the anchor's own image, drawn twice


def epshn(negatives: Literal["semi-hard", "hard"] = "semi-hard", temperature: float = 0.1) -> Objective:
    """EPSHN: log(1 + exp((S_an - S_ap)/τ)), p the easiest positive and n the hardest negative below it; the mean over anchors.

    p is the most similar other item of the class and n the most similar item of another class, with `semi-hard` among those that are not
    more similar than p. Anchors whose p or n has a similarity of 0 or less, or that have none, are left out. Rows are normalised inside.

    Args:
        negatives: Whether a negative must be less similar than the positive (EPSHN) or not (EPHN).
        temperature: Temperature τ of the similarities.

    >>> z = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8]])
    >>> epshn(temperature=0.2)(z, torch.tensor([0, 0, 1]))  # anchor 1's negative is too similar: log(1 + exp(-0.2/0.2)) of anchor 0
    tensor(0.3133)
    """
    return Objective(EasyPositive(negatives, temperature), unit_rows=True)


class EasyPositive(nn.Module):
    """See `epshn`."""

    def __init__(self, negatives: str, temperature: float) -> None:
        super().__init__()
        require(negatives in ("semi-hard", "hard"), "negatives", repr(negatives), "is unknown", "use 'semi-hard' or 'hard'")
        check_temperature(temperature)
        self.semi_hard, self.temperature = negatives == "semi-hard", temperature

    def forward(self, embeddings: Float[Tensor, "b d"], labels: Int[Tensor, " b"], indices_tuple: None = None) -> Float[Tensor, ""]:
        z = nn.functional.normalize(embeddings, dim=1)
        S, same = z @ z.mT, labels[:, None] == labels
        positives = same & ~torch.eye(len(S), dtype=torch.bool, device=S.device) & (S <= SAME_IMAGE)
        p = S.masked_fill(~positives, -1).max(dim=1).values  # of equals one, and its gradient whole
        negatives = ~same & (S <= p[:, None]) if self.semi_hard else ~same
        n = S.masked_fill(~negatives, -1).max(dim=1).values
        kept = (p > 0) & (n > 0)
        if not bool(kept.any()):
            return differentiable_zero(embeddings)
        return nn.functional.softplus((n - p)[kept] / self.temperature).mean()
