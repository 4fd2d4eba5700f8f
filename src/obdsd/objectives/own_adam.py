"""Adam for a small network that learns beside the model, each by a loss of its own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class OwnAdam(nn.Module):
    """Adam (β 0.9 and 0.999, ε 1e-8) whose moments are buffers: they are in the state of whatever has it, and so in the checkpoint.

    Args:
        parameters: What it will train, always given in this order.
        lr: Learning rate.
    """

    first: Tensor
    second: Tensor
    count: Tensor

    def __init__(self, parameters: Sequence[Tensor], lr: float) -> None:
        super().__init__()
        self.lr = lr
        size = sum(parameter.numel() for parameter in parameters)
        self.register_buffer("first", torch.zeros(size))
        self.register_buffer("second", torch.zeros(size))
        self.register_buffer("count", torch.tensor(0.0))

    @torch.no_grad()
    def step(self, parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
        """Move the parameters against their gradients."""
        gradient = torch.cat([each.flatten() for each in gradients]).to(self.first)
        self.count += 1
        self.first.lerp_(gradient, 1 - 0.9)
        self.second.lerp_(gradient.square(), 1 - 0.999)
        mean, square = self.first / (1 - 0.9**self.count), self.second / (1 - 0.999**self.count)
        steps = torch.split(self.lr * mean / (square.sqrt() + 1e-8), [each.numel() for each in parameters])
        for parameter, step in zip(parameters, steps, strict=True):
            parameter -= step.view_as(parameter)
