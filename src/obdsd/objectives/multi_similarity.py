"""Multi-Similarity with its pair mining."""

from __future__ import annotations

from typing import Any

from pytorch_metric_learning import distances, losses, miners, reducers
from pytorch_metric_learning.utils.loss_and_miner_utils import convert_to_pairs
from torch import Tensor

from obdsd.objectives.objective import Objective


def multi_similarity(alpha: float = 2.0, beta: float = 40.0, base: float = 0.5, epsilon: float = 0.1) -> Objective:
    """Multi-Similarity with its pair mining, averaged over the anchors that kept a pair.

    Args:
        alpha: Weight of the positive pairs.
        beta: Weight of the negative pairs.
        base: Similarity at which pairs begin to count.
        epsilon: Margin of the mining.

    >>> import torch
    >>> z = torch.nn.functional.normalize(torch.randn(8, 4), dim=1)
    >>> multi_similarity()(z, torch.arange(4).repeat(2)).shape
    torch.Size([])
    """
    cosine = distances.DotProductSimilarity(normalize_embeddings=False)
    loss = _MultiSimilarity(alpha, beta, base, distance=cosine, reducer=reducers.AvgNonZeroReducer())
    return Objective(loss, miners.MultiSimilarityMiner(epsilon, distance=cosine), unit_rows=True)


class _MultiSimilarity(losses.MultiSimilarityLoss):
    """The library's, which takes one mined pair of a kind for none: here it counts."""

    def compute_loss(self, embeddings: Tensor, labels: Tensor, indices_tuple: Any, ref_emb: Tensor, ref_labels: Tensor) -> Any:
        return self.mat_based_loss(self.distance(embeddings, ref_emb), convert_to_pairs(indices_tuple, labels, ref_labels))
