"""What else might help: targets, teachers and weights that the paper does not have, tried on held-out classes only.

Each variant changes the objects of an ordinary training. Those that helped became options of the package, the others stay here.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from obdsd.method.diffusion import diffuse, inner_products, symmetric_transition
from obdsd.method.distillation import SelfDistillation
from obdsd.method.targets import BatchDiffusion, PairwiseTargets
from obdsd.method.teachers import TeacherBatch
from obdsd.presets import preset
from obdsd.settings import TrainOptions
from obdsd.training import assembly
from obdsd.training.display import Display, display_for
from obdsd.training.loop import Training
from obdsd.training.run import data_record
from obdsd.training.runs import RunFolder
from study.plan import FOLDS, SEARCH_SEED
from study.records import SCRATCH, keep, recorded
from study.search import features

SETTINGS: dict[str, dict[str, Any]] = {
    "linear": {"head": "linear", "head_init": "random", "epochs": 40, "lr": 5e-4},
    "two-layer": {"head": "two-layer", "hidden": 512, "head_init": "random", "epochs": 40, "lr": 1e-4},
}
HELD_OUT: dict[str, Any] = {"reference": False, "evaluate_every": 0, "score": "validation", "seed": SEARCH_SEED}
WEIGHTS = (100.0, 1000.0)


@dataclass(frozen=True)
class SparseWalk:
    """The symmetric walk on a sharper graph: affinities to a power, only those of the nearest few (mutual or not) kept."""

    omega: float
    power: float = 3.0
    neighbours: int = 5

    def __call__(self, teacher: TeacherBatch, temperature: float = 1.0) -> Tensor:
        Z = teacher.embeddings
        D = inner_products(Z, Z)
        W = D.clamp(min=0).pow(self.power).fill_diagonal_(0)
        near = torch.zeros_like(W).scatter_(1, W.topk(self.neighbours, dim=1).indices, 1.0)
        S = symmetric_transition(W * torch.maximum(near, near.mT))
        return torch.softmax(diffuse(D, S, self.omega, symmetric=True) / temperature, dim=1)


@dataclass(frozen=True)
class LabelledWalk:
    """The symmetric walk, but only `within` the classes or only across them; the labels are those of the training set."""

    omega: float
    labels: Tensor
    within: bool

    def __call__(self, teacher: TeacherBatch, temperature: float = 1.0) -> Tensor:
        Z = teacher.embeddings
        y = self.labels[teacher.indices]
        D = inner_products(Z, Z)
        allowed = (y[:, None] == y[None, :]) == self.within
        return torch.softmax(diffuse(D, symmetric_transition(D * allowed), self.omega, symmetric=True) / temperature, dim=1)


@dataclass(frozen=True)
class EvenEntropy:
    """A temperature for every row such that all rows of the targets have the same perplexity, as in t-SNE."""

    perplexity: float

    def __call__(self, teacher: TeacherBatch, temperature: float = 1.0) -> Tensor:
        D = inner_products(teacher.embeddings, teacher.embeddings)
        low, high = torch.full((len(D), 1), -7.0), torch.full((len(D), 1), 5.0)  # logarithms of the temperature
        for _ in range(24):
            middle = (low + high) / 2
            P = torch.softmax(D / middle.exp(), dim=1)
            flat = -torch.special.xlogy(P, P).sum(dim=1, keepdim=True) > torch.tensor(self.perplexity).log()
            low, high = torch.where(flat, low, middle), torch.where(flat, middle, high)
        return torch.softmax(D / middle.exp(), dim=1)


@dataclass(frozen=True)
class WithoutDiagonal(SelfDistillation):
    """No row is compared with itself: both distributions are over the other rows."""

    def __call__(self, student: Tensor, teacher: Any, progress: float) -> Tensor:
        weight = self.current_weight(progress)
        if weight == 0 or teacher is None:
            return super().__call__(student, teacher, progress)
        with torch.no_grad():
            P = self.targets(teacher, self.temperature).fill_diagonal_(0)
            P = P / P.sum(dim=1, keepdim=True)
        log_q = torch.log_softmax((inner_products(student, student) / self.temperature).fill_diagonal_(float("-inf")), dim=1)
        kl = (torch.special.xlogy(P, P) - P * log_q.masked_fill(torch.eye(len(P), dtype=torch.bool), 0)).sum(dim=1).mean()
        return self.temperature**2 * weight * kl


class ShareKeeper(Training):
    """λ follows the base loss: after each epoch it is set so that the distillation would have had this share of the gradient."""

    share = 0.5

    def _evaluate(self) -> dict[str, Any]:
        found = self.progress.reading.get("gradient_share", 0.0)
        if 0 < found < 1:
            change = (self.share / (1 - self.share)) / (found / (1 - found))
            distill = self.system.distill
            self.system.distill = replace(distill, weight=distill.weight * min(4.0, max(0.25, change)))
        return super()._evaluate()


class Scheduled(Training):
    """Targets and temperature change from epoch to epoch, by how much of the training is done."""

    @staticmethod
    def distilled(distill: SelfDistillation, done: float) -> SelfDistillation:
        raise NotImplementedError

    def _run_epoch(self, display: Display) -> None:
        self.system.distill = self.distilled(self.system.distill, self.progress.epoch / self.options.epochs)
        super()._run_epoch(display)


class OmegaFalls(Scheduled):
    @staticmethod
    def distilled(distill: SelfDistillation, done: float) -> SelfDistillation:
        return replace(distill, targets=BatchDiffusion(0.9 * (1 - done)))


class OmegaRises(Scheduled):
    @staticmethod
    def distilled(distill: SelfDistillation, done: float) -> SelfDistillation:
        return replace(distill, targets=BatchDiffusion(0.9 * done))


class TemperatureFalls(Scheduled):
    @staticmethod
    def distilled(distill: SelfDistillation, done: float) -> SelfDistillation:
        return replace(distill, temperature=0.1**done)


class TemperatureRises(Scheduled):
    @staticmethod
    def distilled(distill: SelfDistillation, done: float) -> SelfDistillation:
        return replace(distill, temperature=0.1 ** (1 - done))


class OldTeacher(Training):
    """The teacher is renewed after every tenth epoch only."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        renew = self.system.teacher.update
        self.system.teacher.update = lambda model: None if (self.progress.epoch + 1) % 10 else renew(model)  # type: ignore[method-assign]


Distill = Callable[[TrainOptions, Tensor], SelfDistillation]


def _targets(make: Callable[[TrainOptions, Tensor], Any]) -> Distill:
    return lambda options, labels: SelfDistillation(options.weight, options.temperature, make(options, labels), options.ramp)


@dataclass(frozen=True)
class Variant:
    """A preset with changes, and what replaces its distillation or its loop."""

    start: str
    changes: dict[str, Any]
    distill: Distill | None = None
    loop: type[Training] = Training


FEATURES = {"teacher": "features", "ramp": "constant"}
VARIANTS: dict[str, Variant] = {
    "ms": Variant("ms", {}),
    "psd": Variant("ms+psd", {}),
    "obd-sd": Variant("ms+obd-sd", {}),
    "obd-sd τ=0.1": Variant("ms+obd-sd", {"temperature": 0.1}),
    "sharp walk": Variant("ms+obd-sd-softmax", {"walk_temperature": 0.05}),
    "sparse walk": Variant("ms+obd-sd", {}, _targets(lambda options, _: SparseWalk(options.omega))),
    "sparse walk ω=0.9": Variant("ms+obd-sd", {"omega": 0.9}, _targets(lambda options, _: SparseWalk(options.omega))),
    "walk within classes": Variant("ms+obd-sd", {"omega": 0.9}, _targets(lambda o, labels: LabelledWalk(o.omega, labels, True))),
    "walk across classes": Variant("ms+obd-sd", {}, _targets(lambda o, labels: LabelledWalk(o.omega, labels, False))),
    "even entropy 60": Variant("ms+psd", {}, _targets(lambda options, _: EvenEntropy(60.0))),
    "balanced": Variant("ms+psd-balanced", {}),
    "balanced walk": Variant("ms+obd-sd", {"balanced": True}),
    "no diagonal": Variant("ms+psd", {}, lambda o, _: WithoutDiagonal(o.weight, o.temperature, PairwiseTargets(), o.ramp)),
    "no diagonal, walk": Variant("ms+obd-sd", {}, lambda o, _: WithoutDiagonal(o.weight, o.temperature, BatchDiffusion(o.omega), o.ramp)),
    "share 0.5": Variant("ms+psd-constant", {}, loop=ShareKeeper),
    "share 0.5, walk": Variant("ms+obd-sd", {"ramp": "constant"}, loop=ShareKeeper),
    "ema 0.999": Variant("ms+psd-constant", {"teacher": "ema"}),
    "ω falls, 0.9 to 0": Variant("ms+obd-sd", {}, loop=OmegaFalls),
    "ω rises, 0 to 0.9": Variant("ms+obd-sd", {}, loop=OmegaRises),
    "τ falls, 1 to 0.1": Variant("ms+psd", {}, loop=TemperatureFalls),
    "τ rises, 0.1 to 1": Variant("ms+psd", {}, loop=TemperatureRises),
    "old teacher": Variant("ms+psd", {}, loop=OldTeacher),
    "old teacher, walk": Variant("ms+obd-sd", {}, loop=OldTeacher),
    "features": Variant("ms+psd", FEATURES),
    "features, walk": Variant("ms+obd-sd", FEATURES),
    "features, sparse walk": Variant("ms+obd-sd", FEATURES, _targets(lambda options, _: SparseWalk(options.omega))),
    "features, within classes": Variant("ms+obd-sd", FEATURES, _targets(lambda o, labels: LabelledWalk(o.omega, labels, True))),
    "features, across classes": Variant("ms+obd-sd", FEATURES, _targets(lambda o, labels: LabelledWalk(o.omega, labels, False))),
    "features, no diagonal": Variant("ms+psd", FEATURES, lambda o, _: WithoutDiagonal(o.weight, o.temperature, PairwiseTargets(), o.ramp)),
    "features, share 0.5": Variant("ms+psd", FEATURES, loop=ShareKeeper),
}


def run_variants(head: str = "linear", jobs: int = 1) -> None:
    """Train variants that the paper does not have, with two weights, on held-out classes."""
    plan, data = {}, features()
    for name, variant in VARIANTS.items():
        for weight in WEIGHTS if variant.start != "ms" else (0.0,):
            for fold, held_out in enumerate(FOLDS):
                changes = {**SETTINGS[head], **HELD_OUT, "val_fold": held_out, **variant.changes, "weight": weight}
                plan[f"variants/{head}/{name}/weight={weight:g}/fold-{fold}"] = (name, preset(variant.start, data, **changes))
    run_changed(_run, plan, jobs)


def _run(record: str, name: str, options: TrainOptions) -> float:
    return train_changed(record, options, VARIANTS[name].loop, VARIANTS[name].distill)


def run_changed(run: Callable[[str, str, TrainOptions], float], plan: Mapping[str, tuple[str, TrainOptions]], jobs: int) -> None:
    """Run every entry of the plan, a name and options, that has no record yet."""
    due = {record: (name, replace(todo, out=str(SCRATCH / record))) for record, (name, todo) in plan.items() if not recorded(record, todo)}
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        for record, score in zip(due, pool.map(run, due, *zip(*due.values(), strict=True)), strict=True) if due else ():
            print(f"{100 * score:6.2f} %  {record}", flush=True)


def train_changed(record: str, options: TrainOptions, loop: type[Training], distill: Distill | None = None) -> float:
    """Run a training with parts of its own, keep its record, return its Recall@1."""
    folder, collection = RunFolder(Path(str(options.out))), assembly.collection_of(options)
    options = replace(options, resume=(folder.path / "config.yaml").exists())
    training = loop(options, collection, folder)
    state, _ = folder.open(options, data_record(collection), training.here)
    if distill is not None:
        training.system.distill = distill(options, torch.from_numpy(collection["train"].labels))
    with display_for(False)(options.epochs, len(training.batches), 0) as display:
        if options.head_init == "projection" and state is None:
            training.project_head(display)
        training.restore(state)
        training.run(display)
        score = training.finish(display).scores.recall[1]
    keep(record, options)
    return score
