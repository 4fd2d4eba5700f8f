"""From a map of local features to one row a sample. Maps are (b, f, h, w), or (b, n, f) tokens of which the first few are no patches."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float
from torch import Tensor

Pooling = Literal["avg", "avg+max", "token"]


def pool(features: Float[Tensor, "b ..."], pooling: Pooling = "avg", prefix_tokens: int = 0) -> Float[Tensor, "b f"]:
    """The average over places, the average plus the maximum (the paper's "+D"), or the class token; rows stay as they are.

    >>> import torch
    >>> features = torch.tensor([[[1.0, 2.0], [3.0, 6.0]]])[None]  # one channel of 2 × 2
    >>> pool(features, "avg"), pool(features, "avg+max")
    (tensor([[3.]]), tensor([[9.]]))
    """
    if features.ndim == 2:
        return features
    if pooling == "token":
        return features[:, 0]
    places = features.flatten(2) if features.ndim == 4 else features[:, prefix_tokens:].transpose(1, 2)  # (b, f, places)
    average = places.mean(dim=2)
    return average + places.amax(dim=2) if pooling == "avg+max" else average
