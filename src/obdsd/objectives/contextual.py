"""The contextual loss: items whose neighbours are the same should be of one class, and others not."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from obdsd.method.checks import check_number, refuse, require
from obdsd.objectives.objective import Objective

SLOPE = 10.0  # what the gradient takes for the slope of every step
POSITIVE, NEGATIVE = 0.75, 0.6  # similarities beyond which pairs do not count
SPREAD, MEAN = 0.1, 0.3  # weight of the mean similarity's distance from its target


def contextual(neighbours: int = 4, slack: float = 0.05, share: float = 0.2) -> Objective:
    """Contextual: the share of neighbours that two items have in common should be 1 in a class and 0 between classes.

    λ·L_contrastive + (1-λ)·L_context + 0.1·(mean of S - 0.3)². The contrastive part is the mean of the positive max(0.75-S, 0) in a class
    plus the mean of the positive max(S-0.6, 0) between classes. N_ij is 1 where j's squared distance from i is at most `slack` above that
    of i's k-th neighbour, i itself being the first. J_ij is the share of neighbours that i and j have in common, averaged over i's mutual
    neighbours among the k/2 nearest, and made symmetric; L_context is the mean of (1-J)² in a class and of J² between classes. Steps have
    a gradient of 10 everywhere. Rows are normalised inside.

    Args:
        neighbours: Neighbours k of an item, itself included; its authors take the number of a class's items in a batch.
        slack: How far beyond the k-th neighbour others still count.
        share: Share λ of the contrastive part.
    """
    return Objective(Contextual(neighbours, slack, share), unit_rows=True)


class Contextual(nn.Module):
    """See `contextual`."""

    def __init__(self, neighbours: int, slack: float, share: float) -> None:
        super().__init__()
        for name, value in (("slack", slack), ("share", share)):
            check_number(name, value)
        require(neighbours >= 2, "neighbours", neighbours, "must be 2 or more, an item and another", "try 4")
        require(0 <= slack < float("inf"), "slack", slack, "must be 0 or more and finite", "try 0.05")
        require(0 <= share <= 1, "share", share, "must lie in [0, 1]", "try 0.2")
        self.neighbours, self.slack, self.share = neighbours, slack, share

    def forward(self, embeddings: Float[Tensor, "b d"], labels: Int[Tensor, " b"], indices_tuple: None = None) -> Float[Tensor, ""]:
        if len(embeddings) < self.neighbours:
            rule = f"has fewer rows than neighbours={self.neighbours}"
            refuse("embeddings.shape", tuple(embeddings.shape), rule, "ask for fewer neighbours, or use a larger batch")
        z = nn.functional.normalize(embeddings, dim=1)
        S, same = z @ z.mT, labels[:, None] == labels
        spread = (S.mean() - MEAN).square()
        return self.share * _contrastive(S, same) + (1 - self.share) * self._context(S, same) + SPREAD * spread

    def _context(self, S: Float[Tensor, "b b"], same: Bool[Tensor, "b b"]) -> Float[Tensor, ""]:
        D = (2 - 2 * S).clamp(min=0)
        J = self._shared(D)
        J = (J + J.mT) / 2
        missing = torch.where(same, 1 - J, J).square()
        return missing.fill_diagonal_(0).mean()

    def _shared(self, D: Float[Tensor, "b b"]) -> Float[Tensor, "b b"]:
        """Which share of their neighbours items have in common, averaged over the mutual neighbours of one of them."""
        N, near = self._near(D, self.neighbours), self._near(D, self.neighbours // 2)
        count = N.detach().sum(dim=1, keepdim=True)
        far = (len(D) - count).clamp(min=1)  # of all rows, if there is none
        W = (N @ N.mT / count + (1 - N) @ (1 - N).mT / far) / 2 * N
        mutual = near * near.mT
        return mutual @ W / mutual.sum(dim=1, keepdim=True)

    def _near(self, D: Float[Tensor, "b b"], k: int) -> Float[Tensor, "b b"]:
        """1 where a row is among the k nearest, within the slack; its gradient is that of -10·D."""
        limit = D.detach().kthvalue(k, dim=1, keepdim=True).values + self.slack
        return (D.detach() <= limit).to(D) - SLOPE * (D - D.detach())


def _contrastive(S: Float[Tensor, "b b"], same: Bool[Tensor, "b b"]) -> Float[Tensor, ""]:
    return _mean_of_positive((POSITIVE - S)[same]) + _mean_of_positive((S - NEGATIVE)[~same])


def _mean_of_positive(values: Float[Tensor, " n"]) -> Float[Tensor, ""]:
    return values.relu().sum() / (values > 0).sum().clamp(min=1)
