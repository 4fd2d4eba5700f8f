"""MIC, DCML and DiVA by their definitions, literally: loops over items, one number at a time, in the precision of the rows."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.oracles.losses import unit


def decorrelation(source: Tensor, target: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    """Without the reversal: what the regressor lowers."""
    terms = []
    for a, c in zip(source, target, strict=True):
        predicted, own = unit(w2 @ torch.relu(w1 @ unit(a) + b1) + b2), unit(c)
        terms += [(own[k] * predicted[k]) ** 2 for k in range(len(own))]
    return -torch.stack(terms).sum() / len(terms)
