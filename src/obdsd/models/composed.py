"""A head of composites: several linear maps of the features, mixed anew for each item (DCML)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Composed(nn.Module):
    """m_c = Σ_k p_ck e_k: e_k are linear maps of the features, p_c is the softmax of a linear map of all e, which get no gradient from p.

    Args:
        features: Length of the features.
        dim: Length of all composites side by side.
        parts: How many maps there are, and composites.
    """

    def __init__(self, features: int, dim: int, parts: int) -> None:
        super().__init__()
        self.parts = parts
        self.ensemble = nn.Linear(features, dim)
        self.compositors = nn.Linear(dim, parts * parts)

    def forward(self, features: Float[Tensor, "b f"]) -> Float[Tensor, "b d"]:
        raw = self.ensemble(features)
        return (self._shares(raw) @ raw.unflatten(1, (self.parts, -1))).flatten(1)

    @torch.no_grad()
    def take_one_each(self) -> None:
        """Let each composite begin as nearly one map alone. At random all begin as nearly the mean of the maps, and much is lost."""
        self.compositors.bias.copy_(5 * torch.eye(self.parts).flatten())

    def shares(self, features: Float[Tensor, "b f"]) -> Float[Tensor, "b c e"]:
        """p: what each composite takes of each map."""
        return self._shares(self.ensemble(features))

    def _shares(self, raw: Float[Tensor, "b d"]) -> Float[Tensor, "b c e"]:
        return self.compositors(raw.detach()).unflatten(1, (self.parts, self.parts)).softmax(dim=2)
