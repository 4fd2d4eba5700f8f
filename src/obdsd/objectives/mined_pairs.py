"""Multi-Similarity of pytorch-metric-learning on the pairs that were mined, however few."""

from __future__ import annotations

from typing import Any

from pytorch_metric_learning import losses
from pytorch_metric_learning.utils.loss_and_miner_utils import convert_to_pairs
from torch import Tensor


class MultiSimilarityLoss(losses.MultiSimilarityLoss):
    """The library's, which takes one mined pair of a kind for none: here it counts."""

    def compute_loss(self, embeddings: Tensor, labels: Tensor, indices_tuple: Any, ref_emb: Tensor, ref_labels: Tensor) -> Any:
        return self.mat_based_loss(self.distance(embeddings, ref_emb), convert_to_pairs(indices_tuple, labels, ref_labels))
