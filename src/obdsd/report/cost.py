"""What a training step costs here. Steps of each run take turns with steps of the first: whatever slows the machine slows both."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from obdsd.experiments.timing import seconds_of
from obdsd.method.teachers import TeacherBatch
from obdsd.report.content import Cost
from obdsd.training import Trainer

SECONDS = 1.0  # spent on the steps of one run, but for the first turn, which is always taken
TURNS = 9  # at most


class Steps:
    """A training's own steps on one of its batches; its weights move. The first one, which warms up, tells the peak of memory."""

    def __init__(self, trainer: Trainer, beside: int = 0) -> None:
        """`beside` are the bytes on the device that are another run's."""
        self.trainer, self.device = trainer, trainer.device
        trainer.begin_epoch()
        self.batch = trainer.fabric.to_device(next(trainer.batches.epoch(trainer.place.epoch)))
        self.step = partial(trainer.step, *self.batch)
        self.peak_mib = peak_mib(self.step, self.device, beside)
        self.held = torch.cuda.memory_allocated(self.device) if self.device.type == "cuda" else 0

    def turn(self) -> tuple[float, float, float]:
        """Seconds of the teacher, of its targets, and of a whole step."""
        inputs, labels, indices, *shown = self.batch
        teaching, taught = seconds_of(partial(self.trainer.teach, shown[0] if shown else inputs, indices, labels), self.device)
        refining, _ = seconds_of(partial(_refine, self.trainer, taught), self.device)
        return teaching, refining, seconds_of(self.step, self.device)[0]


def cost_of(own: Steps, first: Steps | None = None, first_seconds: float = 0.0) -> Cost:
    """Of a step: medians over turns. Beside another run's, whose step takes `first_seconds`; alone, its fastest."""
    turns: list[tuple[float, float, float]] = []
    ratios: list[float] = []
    while not turns or (len(turns) < TURNS and sum(whole for *_, whole in turns) < SECONDS):
        turns.append(own.turn())
        ratios.append(turns[-1][2] / seconds_of(first.step, first.device)[0] if first else 1.0)
    ratio = float(np.median(ratios))
    shares = np.median([(teaching / whole, refining / whole) for teaching, refining, whole in turns], axis=0).tolist()
    teacher: float | None = None
    targets: float | None = None
    trainer = own.trainer
    if trainer.system.asks(trainer.progress):
        teacher = min(shares[0], 1.0)
        targets = min(shares[1], 1.0 - teacher)
    elif not trainer.system.current_weight(trainer.progress):  # else the teacher learns in the same pass
        teacher = targets = 0.0
    seconds = ratio * first_seconds if first else min(whole for *_, whole in turns)
    return Cost(seconds=seconds, ratio=ratio, teacher=teacher, targets=targets, memory_mib=own.peak_mib)


def _refine(trainer: Trainer, taught: TeacherBatch | None) -> None:
    """The targets alone, if there is anything to refine."""
    known = None if taught is None else taught.only_known()
    if known is not None and len(known.embeddings) > 1:
        trainer.system.distill.taught(known)


def peak_mib(step: Callable[[], object], device: torch.device, beside: int = 0) -> float | None:
    """The peak of a step on a GPU, without so many bytes that are another run's; other devices do not tell."""
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
    step()
    return (torch.cuda.max_memory_allocated(device) - beside) / 2**20 if on_gpu else None
