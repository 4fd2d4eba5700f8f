"""Learning rates as a function of the place in the training: nothing to save."""

from __future__ import annotations

import math

import torch

from obdsd.options import TrainOptions


def lr_factor(options: TrainOptions, epoch: int, done: float) -> float:
    """What multiplies every learning rate when the share `done` in (0, 1] of an epoch is reached.

    >>> [lr_factor(TrainOptions("x.npz", schedule="steps", lr_steps=(2, 3), lr_gamma=0.5), epoch, 0.5) for epoch in range(5)]
    [1.0, 1.0, 0.5, 0.25, 0.25]
    """
    factor = min(1.0, (epoch + done) / options.warmup_epochs) if options.warmup_epochs else 1.0
    if options.schedule == "steps":
        factor *= options.lr_gamma ** sum(epoch >= step for step in options.lr_steps)
    elif options.schedule == "cosine":
        factor *= (1 + math.cos(math.pi * (epoch + done) / options.epochs)) / 2
    return factor


def set_learning_rates(optimizer: torch.optim.Optimizer, factor: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = group["base_lr"] * factor
