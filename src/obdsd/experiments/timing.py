"""How long a training takes beside another: their steps take turns, so that whatever slows the machine slows both."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from obdsd.options import TrainOptions
from obdsd.training import Trainer
from obdsd.training.build import collection_of

WARM_UP = 3  # a memory that knows its rows, moments that exist
TURNS = 30  # of each training, at most
FEWEST, SECONDS = 3, 2.0  # turns are ended early after so many, and so long


class Pace:
    """A training in its last epoch, on one batch of its data; nothing is written."""

    first: Pace | None = None  # the training of a teacher that is trained before

    def __init__(self, options: TrainOptions) -> None:
        self.options = options.replace(workers=0, reference=False)
        self.trainer = trainer = Trainer(self.options, collection_of(options))
        trainer.system.begin(self._train_first)
        trainer.place.epoch = options.epochs - 1
        beginning, _ = seconds_of(trainer.begin_epoch, trainer.device)
        self.batch = trainer.fabric.to_device(next(trainer.batches.epoch(trainer.place.epoch)))
        self.once = beginning / len(trainer.batches)  # a step's share of what is done once an epoch
        for _ in range(WARM_UP):
            self.step()

    def _train_first(self) -> nn.Module:
        self.first = Pace(self.options.first())
        return self.first.trainer.model

    def step(self) -> None:
        self.trainer.step(*self.batch)

    def turn(self) -> float:
        """Seconds of a step; of one in each generation if there are two."""
        step, _ = seconds_of(self.step, self.trainer.device)
        return step + self.once + (self.first.turn() if self.first else 0.0)


def relative_time(own: TrainOptions, other: TrainOptions, turns: int = TURNS, seconds: float = math.inf) -> float:
    """Seconds that one training takes for a second of the other, the loading of images and evaluation apart.

    The median over the ratios of so many turns; of fewer, if these take more than so many seconds.
    """
    ours, theirs = Pace(own), Pace(other)
    ratios: list[float] = []
    ends = time.monotonic() + seconds
    while len(ratios) < turns and (len(ratios) < FEWEST or time.monotonic() < ends):
        ratios.append(ours.turn() / theirs.turn())
    return statistics.median(ratios)


def seconds_of(act: Callable[[], Any], device: torch.device) -> tuple[float, Any]:
    """How long it takes until the device has done it, and what it returns."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda _: None
    wait(device)
    start = time.perf_counter()
    result = act()
    wait(device)
    return time.perf_counter() - start, result
