"""Multi-Similarity with its pair mining."""

from __future__ import annotations

from obdsd.objectives.objective import Objective, library


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
    distances, miners, reducers = map(library, ("distances", "miners", "reducers"))
    from obdsd.objectives.mined_pairs import MultiSimilarityLoss  # a class of the library's

    cosine = distances.DotProductSimilarity(normalize_embeddings=False)
    loss = MultiSimilarityLoss(alpha, beta, base, distance=cosine, reducer=reducers.AvgNonZeroReducer())
    return Objective(loss, miners.MultiSimilarityMiner(epsilon, distance=cosine), unit_rows=True)
