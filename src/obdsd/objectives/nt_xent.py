"""NT-Xent, for telling instances apart."""

from __future__ import annotations

from obdsd.method.checks import check_temperature
from obdsd.objectives.objective import Objective, library


def nt_xent(temperature: float = 0.1) -> Objective:
    """NT-Xent: for every positive pair, -log of its softmax among the anchor's negatives. Labels mark the views of one instance.

    Args:
        temperature: Temperature of the softmax.

    >>> import torch
    >>> views = torch.nn.functional.normalize(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]), dim=1)
    >>> nt_xent(temperature=1.0)(views, torch.tensor([0, 1, 0, 1]))  # log(1 + 2/e)
    tensor(0.5514)
    """
    check_temperature(temperature)
    distances, losses = map(library, ("distances", "losses"))
    return Objective(losses.NTXentLoss(temperature, distance=distances.DotProductSimilarity(normalize_embeddings=False)), unit_rows=True)
