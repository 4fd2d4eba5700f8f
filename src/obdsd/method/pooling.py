"""From a map of local features to one row a sample. Maps are (b, f, h, w), or (b, n, f) tokens of which the first few are no patches."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float
from torch import Tensor

Pooling = Literal["avg", "avg+max", "gem", "token"]
GEM_POWER, SMALLEST = 3, 1e-6


def pool(features: Float[Tensor, "b ..."], pooling: Pooling = "avg", prefix_tokens: int = 0) -> Float[Tensor, "b f"]:
    """The average over places, the average plus the maximum (the paper's "+D"), the generalised mean (Σ x³ / places)^⅓, or the class
    token; rows stay as they are.

    >>> import torch
    >>> features = torch.tensor([[[1.0, 2.0], [3.0, 6.0]]])[None]  # one channel of 2 × 2
    >>> pool(features, "avg"), pool(features, "avg+max"), pool(features, "gem")  # 252 = 1 + 8 + 27 + 216
    (tensor([[3.]]), tensor([[9.]]), tensor([[3.9791]]))
    """
    if features.ndim == 2:
        return features
    if pooling == "token":
        return features[:, 0]
    places = features.flatten(2) if features.ndim == 4 else features[:, prefix_tokens:].transpose(1, 2)  # (b, f, places)
    if pooling == "gem":
        return places.clamp(min=SMALLEST).pow(GEM_POWER).mean(dim=2).pow(1 / GEM_POWER)
    average = places.mean(dim=2)
    return average + places.amax(dim=2) if pooling == "avg+max" else average
