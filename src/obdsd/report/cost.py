"""What a step of a run costs on this machine: the trainer's own step, taken anew on one of its batches."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial

import torch

from obdsd.experiments.timing import seconds_of
from obdsd.method.teachers import TeacherBatch
from obdsd.report.content import Cost
from obdsd.training import Trainer

SECONDS = 1.0  # spent on steps of one run, but for the first two, which are always taken
STEPS = 9  # at most


def cost_of(trainer: Trainer) -> Cost:
    """Medians over a few steps, after one that warms up. The trainer's weights move."""
    trainer.begin_epoch()
    batch = inputs, labels, indices = trainer.fabric.to_device(next(trainer.batches.epoch(trainer.place.epoch)))
    memory = _peak_mib(partial(trainer.step, *batch), trainer.device)
    whole: list[float] = []
    teaching: list[float] = []
    refining: list[float] = []
    while not whole or (len(whole) < STEPS and sum(whole) < SECONDS):
        seconds, taught = seconds_of(partial(trainer.teach, inputs, indices, labels), trainer.device)
        teaching.append(seconds)
        refining.append(seconds_of(partial(_refine, trainer, taught), trainer.device)[0])
        whole.append(seconds_of(partial(trainer.step, *batch), trainer.device)[0])
    step = statistics.median(whole)
    teacher: float | None = None
    targets: float | None = None
    if trainer.system.asks(trainer.progress):
        teacher = min(statistics.median(teaching) / step, 1.0)
        targets = min(statistics.median(refining) / step, 1.0 - teacher)
    elif not trainer.system.current_weight(trainer.progress):  # else the teacher learns in the same pass
        teacher = targets = 0.0
    return Cost(seconds=step, teacher=teacher, targets=targets, memory_mib=memory)


def _refine(trainer: Trainer, taught: TeacherBatch | None) -> None:
    """The targets alone, if there is anything to refine."""
    known = None if taught is None else taught.only_known()
    if known is not None and len(known.embeddings) > 1:
        trainer.system.distill.taught(known)


def _peak_mib(step: Callable[[], object], device: torch.device) -> float | None:
    """The peak of a step on a GPU; other devices do not tell."""
    if device.type != "cuda":
        step()
        return None
    torch.cuda.reset_peak_memory_stats(device)
    step()
    return torch.cuda.max_memory_allocated(device) / 2**20
