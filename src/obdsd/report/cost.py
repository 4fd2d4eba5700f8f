"""What a step of a run costs on this machine: measured anew on one of its batches, on a copy of its model."""

from __future__ import annotations

import copy
import statistics
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from obdsd.data import Part
from obdsd.experiments.reporting.runs import Finished
from obdsd.experiments.timing import seconds_of
from obdsd.method.global_diffusion import GlobalDiffusion
from obdsd.method.teachers import Teacher, TeacherBatch
from obdsd.models import Embedder
from obdsd.objectives import S2SD
from obdsd.report.content import Cost
from obdsd.settings import TrainOptions
from obdsd.training import assembly, systems
from obdsd.training.batches import TrainingBatches
from obdsd.training.gradient import ask, backward
from obdsd.training.systems import System

SECONDS = 1.0  # spent on steps of one run, but for the first two, which are always taken
STEPS = 9  # at most


class Step:
    """A step of the paper's algorithm, its costly parts apart; the model that it moves is a copy."""

    def __init__(self, run: Finished, model: Embedder, teacher: Teacher, part: Part, device: torch.device) -> None:
        self.options: TrainOptions = run.options
        self.device = device
        model = copy.deepcopy(model).train()
        objective = systems.objective_of(run.options, len(part.class_names), model).to(device)
        few = min(run.options.neighbours, run.options.batch_size - 1)
        self.system = System(model, objective, systems.distillation_of(replace(run.options, neighbours=few)), teacher)
        self.optimizer = assembly.optimizer_of(run.options, model, objective)
        batches = TrainingBatches(replace(run.options, workers=0), part, model)
        self.inputs, self.labels, self.indices = (values.to(device) for values in next(batches.epoch(run.last_epoch)))
        targets = self.system.distill.targets
        if isinstance(targets, GlobalDiffusion):  # walks once an epoch, no part of a step: a short one will do
            with self._precision():
                targets.fit(ask(teacher, self.inputs, self.indices, run.options.micro_batch).embeddings)
            self.indices = torch.arange(len(self.labels), device=device)

    def teach(self) -> TeacherBatch | None:
        """The teacher's word on the batch, if it has one beside the loss."""
        if not self.system.distill.active(1.0):
            return None
        with self._precision():
            said = self.system.said(self.inputs, self.indices, self.options.micro_batch)
        return self.system.among_proxies(said, self.labels)

    @torch.no_grad()
    def words(self, said: TeacherBatch | None) -> list[TeacherBatch]:
        """All that is refined in a step: the teacher's word, or those of S2SD's heads; of items that it knows."""
        if isinstance(self.system.objective, S2SD):
            features = self._forward(self.inputs)[:, self.system.model.dim :]
            return [TeacherBatch(head(features)) for head in self.system.objective.heads]
        return [] if said is None or (said.known is not None and int(said.known.sum()) < 2) else [said.only_known()]

    @torch.no_grad()
    def refine(self, words: list[TeacherBatch]) -> None:
        """The targets alone."""
        for word in words:
            self.system.distilling.taught(word)

    def learn(self, said: TeacherBatch | None) -> None:
        """Forwards, backwards, and the optimiser."""

        def loss_of(rows: Tensor) -> Tensor:
            base, distillation = self.system.losses(rows, self.labels, said, 1.0)
            return base + distillation

        self.optimizer.zero_grad()
        backward(self._forward, self.inputs, loss_of, self.options.micro_batch, Tensor.backward)
        self.optimizer.step()

    def _forward(self, inputs: Tensor) -> Tensor:
        with self._precision():
            return self.system.rows(inputs)

    def _precision(self) -> AbstractContextManager[Any]:
        kind = torch.float16 if self.options.precision == "16" else torch.bfloat16
        return torch.autocast(self.device.type, kind, enabled=self.options.precision != "32")


def cost_of(run: Finished, model: Embedder, teacher: Teacher, part: Part, device: torch.device) -> Cost:
    """Medians over a few steps, after one that warms up and tells the memory."""
    step = Step(run, model, teacher, part, device)
    memory = _peak_memory(step, device)
    plain = None
    if isinstance(step.system.objective, S2SD):  # its teachers learn in the same pass: what they cost is what a step without them lacks
        plain = Step(replace(run, options=replace(run.options, teacher="none")), model, teacher, part, device)
        plain.learn(None)
    timed: list[tuple[float, float, float]] = []
    while not timed or (len(timed) < STEPS and sum(map(sum, timed)) < SECONDS):
        taught, said = seconds_of(step.teach, device)
        refined, _ = seconds_of(partial(step.refine, step.words(said)), device)
        learnt, _ = seconds_of(partial(step.learn, said), device)  # refines too
        if plain is not None:
            alone, _ = seconds_of(partial(plain.learn, None), device)
            taught = max(learnt - alone - refined, 0.0)
            learnt -= taught
        timed.append((taught, refined, learnt))
    teaching, refining, learning = (statistics.median(column) for column in zip(*timed, strict=True))
    whole = teaching + learning
    return Cost(
        seconds=whole,
        teacher=teaching / whole if step.system.distilling.active(1.0) else 0.0,
        targets=min(refining / whole, 1 - teaching / whole) if step.system.distilling.active(1.0) else 0.0,
        memory_mib=memory,
        training_seconds=float(run.result["seconds"]),
    )


def _peak_memory(step: Step, device: torch.device) -> float:
    """MiB that a step holds at its peak: weights, their gradients and averages, the teacher, the batch, and what the backward pass keeps
    of the forward pass. A GPU says what came on top of weights, teacher and batch; other runs' models may lie there too."""
    trained, teacher = [*step.system.parameters()], step.system.teacher
    there = [*trained, *step.system.model.buffers(), *teacher.parameters(), *teacher.buffers(), step.inputs]
    kept: dict[int, int] = {}  # bytes by storage: several tensors may share one

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        step.learn(step.teach())
        for tensor in there:
            keep(tensor)
        return (sum(kept.values()) + torch.cuda.max_memory_allocated(device) - before) / 2**20
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        step.learn(step.teach())
    averages = [value for state in step.optimizer.state.values() for value in state.values() if isinstance(value, Tensor)]
    gradients = [parameter.grad for parameter in trained if parameter.grad is not None]
    for tensor in [*there, *averages, *gradients]:
        keep(tensor)
    return sum(kept.values()) / 2**20
