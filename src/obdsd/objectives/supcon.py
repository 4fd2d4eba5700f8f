"""The supervised contrastive loss."""

from __future__ import annotations

from obdsd.method.checks import check_temperature
from obdsd.objectives.objective import Objective, library


def supcon(temperature: float = 0.1) -> Objective:
    """SupCon: the cross-entropy of an item's softmax over the others to the distribution that is uniform over its class-mates.

    -(1/|P_i|) Σ_{p∈P_i} log softmax_{j≠i}(S_i/τ)_p, P_i the other items of i's class; the mean over all items. An item without class-mates
    counts as 0 in the mean.

    Args:
        temperature: Temperature of the softmax.

    >>> import torch
    >>> z = torch.nn.functional.normalize(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]), dim=1)
    >>> supcon(temperature=1.0)(z, torch.tensor([0, 1, 0, 1]))  # log(1 + 2/e)
    tensor(0.5514)
    """
    check_temperature(temperature)
    distances, losses, reducers = map(library, ("distances", "losses", "reducers"))
    cosine = distances.DotProductSimilarity(normalize_embeddings=False)
    return Objective(losses.SupConLoss(temperature, distance=cosine, reducer=reducers.MeanReducer()), unit_rows=True)
