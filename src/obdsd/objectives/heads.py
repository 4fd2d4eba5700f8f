"""Heads that a system trains beside the model's own, on the same pooled features; they are no part of the model that is kept."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from obdsd.method.precision import in_full, without_autocast


def linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    """A linear layer, initialised as torch initialises it, but from a generator."""
    layer = nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")  # draws nothing from the global generator
    bound = inputs**-0.5
    nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
    nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
    return layer


def two_layers(inputs: int, hidden: int, outputs: int, generator: torch.Generator) -> nn.Sequential:
    """Linear-ReLU-Linear."""
    return nn.Sequential(linear(inputs, hidden, generator), nn.ReLU(), linear(hidden, outputs, generator))


def unit_rows(rows: Float[Tensor, "b d"]) -> Float[Tensor, "b d"]:
    with without_autocast(rows):
        return nn.functional.normalize(in_full(rows), dim=1)
