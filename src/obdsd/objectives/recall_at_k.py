"""The Recall@k surrogate: Recall@k with logistic functions for its steps."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from obdsd.method.checks import check_temperature, require
from obdsd.method.distillation import differentiable_zero
from obdsd.objectives.objective import Objective


def recall_at_k(
    ks: list[int] = [1, 2, 4, 8, 16],  # noqa: B006
    temperature: float = 0.01,
    rank_temperature: float = 1.0,
    itself: bool = False,
) -> Objective:
    """Recall@k surrogate: 1 - the mean over queries and depths k of a Recall@k whose steps are logistic functions.

    With σ the logistic function, a positive p of query q has the rank r = 1 + Σ_j σ((S_qj - S_qp)/τ) over the other rows j, and
    recall_k = min(Σ_p σ((k - r)/τ_r), k) / min(k, number of positives). Depths are cut to the batch's size; a query without positives is
    left out.

    Args:
        ks: Depths k.
        temperature: Temperature τ of the similarities.
        rank_temperature: Temperature τ_r of the ranks.
        itself: Whether the query stands in its own ranking, as in the published code; it then takes the first rank.

    >>> z = torch.eye(3)[[0, 0, 1, 1, 2, 2]]
    >>> recall_at_k(ks=[2])(z, torch.arange(3).repeat_interleave(2)).round(decimals=4)  # rank 1 everywhere: 1 - σ(1)
    tensor(0.2689)
    """
    return Objective(RecallAtK(ks, temperature, rank_temperature, itself), unit_rows=True)


class RecallAtK(nn.Module):
    """See `recall_at_k`."""

    def __init__(self, ks: Sequence[int], temperature: float, rank_temperature: float, itself: bool) -> None:
        super().__init__()
        fits = len(ks) > 0 and all(isinstance(k, int) and k >= 1 for k in ks)
        require(fits, "ks", ks, "must be depths of 1 or more", "try [1, 2, 4, 8, 16]")
        check_temperature(temperature)
        check_temperature(rank_temperature, "rank_temperature")
        self.ks, self.temperature, self.rank_temperature, self.itself = tuple(ks), temperature, rank_temperature, itself

    def forward(self, embeddings: Float[Tensor, "b d"], labels: Int[Tensor, " b"], indices_tuple: None = None) -> Float[Tensor, ""]:
        S = embeddings @ embeddings.mT
        same = (labels[:, None] == labels).fill_diagonal_(False)
        query, positive = same.nonzero(as_tuple=True)
        if not len(query):
            return differentiable_zero(embeddings)
        before = torch.sigmoid((S[query] - S[query, positive][:, None]) / self.temperature)  # (pairs, batch)
        before = before.scatter(1, positive[:, None], 0.0)
        if not self.itself:
            before = before.scatter(1, query[:, None], 0.0)
        rank = 1 + before.sum(dim=1, keepdim=True)
        k = S.new_tensor(self.ks).clamp(max=len(S))
        hits = torch.sigmoid((k - rank) / self.rank_temperature)  # (pairs, depths)
        found = S.new_zeros(len(S), len(k)).index_add(0, query, hits)
        positives = same.sum(dim=1, keepdim=True)
        asked = positives.squeeze(1) > 0
        recall = torch.minimum(found, k)[asked] / torch.minimum(k, positives[asked])
        return 1 - recall.mean()
