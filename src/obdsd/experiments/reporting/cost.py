"""What a step of a run costs on this machine: measured anew on one of its batches, on a copy of its model."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from obdsd.data import Part
from obdsd.experiments.reporting.runs import Finished
from obdsd.method.distillation import SelfDistillation
from obdsd.method.global_diffusion import GlobalDiffusion
from obdsd.method.precision import in_full
from obdsd.method.proxy_diffusion import ProxyDiffusion
from obdsd.method.teachers import Teacher, TeacherBatch
from obdsd.models import Embedder
from obdsd.objectives import S2SD, Objective
from obdsd.report.content import Cost
from obdsd.settings import TrainOptions
from obdsd.training import assembly, systems
from obdsd.training.batches import TrainingBatches
from obdsd.training.gradient import ask, backward

SECONDS = 1.0  # spent on steps of one run, but for the first two, which are always taken
STEPS = 9  # at most


class Step:
    """A step of the paper's algorithm, its costly parts apart; the model that it moves is a copy."""

    def __init__(self, run: Finished, model: Embedder, teacher: Teacher, part: Part, device: torch.device) -> None:
        self.options: TrainOptions = run.options
        self.device, self.teacher = device, teacher
        self.model = copy.deepcopy(model).train()
        self.objective: Objective | S2SD = systems.objective_of(run.options, len(part.class_names), self.model).to(device)
        few = min(run.options.neighbours, run.options.batch_size - 1)
        self.distill: SelfDistillation = systems.distillation_of(replace(run.options, neighbours=few))
        self.optimizer = assembly.optimizer_of(run.options, self.model, self.objective)
        batches = TrainingBatches(replace(run.options, workers=0), part, self.model)
        self.inputs, self.labels, self.indices = (values.to(device) for values in next(batches.epoch(run.last_epoch)))
        if isinstance(self.distill.targets, GlobalDiffusion):  # the walk is taken once an epoch, no part of a step: a short one will do
            self.distill.targets.fit(self._said().embeddings)

    def teach(self) -> TeacherBatch | None:
        """The teacher's word on the batch, if it has one."""
        if not self.distill.active(1.0):
            return None
        if isinstance(self.distill.targets, GlobalDiffusion):
            return self.distill.targets.batch(torch.arange(len(self.labels), device=self.device))
        said = self._said()
        if isinstance(self.distill.targets, ProxyDiffusion) and not isinstance(self.objective, S2SD):
            said = replace(said, proxies=self.objective.proxies_of(self.labels))
        return said

    @torch.no_grad()
    def refine(self, said: TeacherBatch | None) -> None:
        """The targets alone, of rows that the teacher knows."""
        if said is not None and (said.known is None or int(said.known.sum()) > 1):
            self.distill.targets(said.only_known(), self.distill.temperature)

    def learn(self, said: TeacherBatch | None) -> None:
        """Forwards, backwards, and the optimiser."""

        def loss_of(rows: Tensor) -> Tensor:
            z, features = rows[:, : self.model.dim], rows[:, self.model.dim :]
            if isinstance(self.objective, S2SD):
                return sum(self.objective.parts(features, z, self.labels, 1.0))  # type: ignore[return-value]
            return self.objective(z, self.labels) + self.distill(z, said, 1.0)

        self.optimizer.zero_grad()
        backward(self._forward, self.inputs, loss_of, self.options.micro_batch, Tensor.backward)
        self.optimizer.step()

    def _said(self) -> TeacherBatch:
        with self._precision():
            return ask(self.teacher, self.inputs, self.indices, self.options.micro_batch)

    def _forward(self, inputs: Tensor) -> Tensor:
        with self._precision():
            if not isinstance(self.objective, S2SD):
                return self.model(inputs)
            local = self.model.feature_map(inputs)
            return torch.cat([self.model.embed(self.model.pool(local)), in_full(self.objective.pool(local))], dim=1)

    def _precision(self) -> AbstractContextManager[Any]:
        kind = torch.float16 if self.options.precision == "16" else torch.bfloat16
        return torch.autocast(self.device.type, kind, enabled=self.options.precision != "32")


def cost_of(run: Finished, model: Embedder, teacher: Teacher, part: Part, device: torch.device) -> Cost:
    """Medians over a few steps, after one that warms up and tells the memory."""
    step = Step(run, model, teacher, part, device)
    memory = _peak_memory(step, device)
    timed: list[tuple[float, float, float]] = []
    while not timed or (len(timed) < STEPS and sum(map(sum, timed)) < SECONDS):
        taught, said = _seconds(step.teach, device)
        refined, _ = _seconds(partial(step.refine, said), device)
        learnt, _ = _seconds(partial(step.learn, said), device)  # refines too
        timed.append((taught, refined, learnt))
    teaching, refining, learning = (statistics.median(column) for column in zip(*timed, strict=True))
    whole = teaching + learning
    return Cost(
        seconds=whole,
        teacher=teaching / whole if step.distill.active(1.0) else 0.0,
        targets=min(refining / whole, 1 - teaching / whole) if step.distill.active(1.0) else 0.0,
        memory_mib=memory,
        training_seconds=float(run.result["seconds"]),
    )


def _seconds(act: Callable[[], Any], device: torch.device) -> tuple[float, Any]:
    _wait(device)
    start = time.perf_counter()
    found = act()
    _wait(device)
    return time.perf_counter() - start, found


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _peak_memory(step: Step, device: torch.device) -> float:
    """MiB that a step holds at its peak; without a GPU to ask: weights, their gradients and averages, the teacher, the batch, and what
    the backward pass keeps of the forward pass."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        step.learn(step.teach())
        return torch.cuda.max_memory_allocated(device) / 2**20
    kept: dict[int, int] = {}  # bytes by storage: several tensors may share one

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        step.learn(step.teach())
    trained = [*step.model.parameters(), *step.objective.parameters()]
    averages = [value for state in step.optimizer.state.values() for value in state.values() if isinstance(value, Tensor)]
    gradients = [parameter.grad for parameter in trained if parameter.grad is not None]
    for tensor in [
        *trained,
        *step.model.buffers(),
        *averages,
        *gradients,
        *step.teacher.parameters(),
        *step.teacher.buffers(),
        step.inputs,
    ]:
        keep(tensor)
    return sum(kept.values()) / 2**20
