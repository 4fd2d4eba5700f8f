"""Parts that the paper does not have: targets, and systems that begin or train in another way. Importing this module registers them.

Those that helped became parts of the package; the others stay here. All take part in checkpoints, so that an interrupted run goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from obdsd.catalogue import register
from obdsd.method.diffusion import diffuse, inner_products, symmetric_transition
from obdsd.method.distillation import SelfDistillation
from obdsd.method.targets import Targets
from obdsd.method.teachers import TableTeacher, TeacherBatch
from obdsd.objectives import System
from obdsd.objectives.system import Embed
from study.variants import BEGINNINGS


@dataclass(frozen=True)
class SparseWalk(Targets):
    """The symmetric walk on a sharper graph: affinities to a power, only those of the nearest few (mutual or not) kept."""

    omega: float
    power: float = 3.0
    neighbours: int = 5

    def __call__(self, teacher: Any, temperature: float = 1.0) -> Tensor:
        Z = teacher.embeddings
        D = inner_products(Z, Z)
        W = D.clamp(min=0).pow(self.power).fill_diagonal_(0)
        near = torch.zeros_like(W).scatter_(1, W.topk(self.neighbours, dim=1).indices, 1.0)
        S = symmetric_transition(W * torch.maximum(near, near.mT))
        return torch.softmax(diffuse(D, S, self.omega, symmetric=True) / temperature, dim=1)


@dataclass(frozen=True)
class LabelledWalk(Targets):
    """The symmetric walk, but only `within` the classes or only across them."""

    omega: float
    within: bool

    def complete(self, batch: TeacherBatch, objective: nn.Module, labels: Tensor) -> TeacherBatch:
        return replace(batch, labels=labels)

    def __call__(self, teacher: Any, temperature: float = 1.0) -> Tensor:
        Z, y = teacher.embeddings, teacher.labels
        D = inner_products(Z, Z)
        allowed = (y[:, None] == y[None, :]) == self.within
        return torch.softmax(diffuse(D, symmetric_transition(D * allowed), self.omega, symmetric=True) / temperature, dim=1)


@dataclass(frozen=True)
class EvenEntropy(Targets):
    """A temperature for every row such that all rows of the targets have the same perplexity, as in t-SNE."""

    perplexity: float

    def __call__(self, teacher: Any, temperature: float = 1.0) -> Tensor:
        D = inner_products(teacher.embeddings, teacher.embeddings)
        low, high = D.new_full((len(D), 1), -7.0), D.new_full((len(D), 1), 5.0)  # logarithms of the temperature
        for _ in range(24):
            middle = (low + high) / 2
            P = torch.softmax(D / middle.exp(), dim=1)
            flat = -torch.special.xlogy(P, P).sum(dim=1, keepdim=True) > D.new_tensor(self.perplexity).log()
            low, high = torch.where(flat, low, middle), torch.where(flat, middle, high)
        return torch.softmax(D / middle.exp(), dim=1)


class WithoutDiagonal(SelfDistillation):
    """No row is compared with itself: both distributions are over the other rows."""

    def __call__(self, student: Tensor, teacher: Any, progress: float) -> Tensor:
        P = self.taught(teacher).fill_diagonal_(0)
        P = P / P.sum(dim=1, keepdim=True)
        log_q = torch.log_softmax((inner_products(student, student) / self.temperature).fill_diagonal_(float("-inf")), dim=1)
        kl = (torch.special.xlogy(P, P) - P * log_q.masked_fill(torch.eye(len(P), dtype=torch.bool), 0)).sum(dim=1).mean()
        return self.temperature**2 * self.current_weight(progress) * kl


def no_diagonal(model: Any, make_loss: Callable[[int], nn.Module], teacher: Any, distill: SelfDistillation) -> System:
    """No row is compared with itself."""
    return System(model, make_loss(model.dim), teacher, WithoutDiagonal(**vars(distill)))


def random_rows(num_samples: int, dim: int) -> TableTeacher:
    """A control for any teacher: fixed random rows, which know nothing."""
    rows = torch.randn(num_samples, dim, generator=torch.Generator().manual_seed(0))
    return TableTeacher(nn.functional.normalize(rows, dim=1))


class ShareKeeper(System):
    """λ follows the base loss: after each epoch it is set so that the distillation would have had this share of the gradient."""

    weight: Tensor

    def __init__(self, model: Any, make_loss: Callable[[int], nn.Module], teacher: Any, distill: SelfDistillation, share: float) -> None:
        super().__init__(model, make_loss(model.dim), teacher, distill)
        self.share = share
        self.register_buffer("weight", torch.tensor(distill.weight, dtype=torch.float64))

    def begin_epoch(self, progress: float, embed: Embed, resumed: bool = False) -> None:
        self.distill = replace(self.distill, weight=float(self.weight))
        super().begin_epoch(progress, embed, resumed)

    def end_epoch(self, reading: Mapping[str, float]) -> None:
        super().end_epoch(reading)
        share = reading.get("gradient_share", 0.0)
        if 0 < share < 1:
            change = (self.share / (1 - self.share)) / (share / (1 - share))
            self.weight *= min(4.0, max(0.25, change))


class Scheduled(System):
    """The distillation is a function of how much of the training is done."""

    def __init__(self, model: Any, objective: nn.Module, teacher: Any, schedule: Callable[[float], SelfDistillation]) -> None:
        super().__init__(model, objective, teacher, schedule(0.0))
        self.schedule = schedule

    def begin_epoch(self, progress: float, embed: Embed, resumed: bool = False) -> None:
        self.distill = self.schedule(progress)
        super().begin_epoch(progress, embed, resumed)


def omega_schedule(model: Any, make_loss: Callable[[int], nn.Module], teacher: Any, distill: Any, start: float, end: float) -> System:
    """ω of the targets goes linearly from `start` to `end`."""

    def schedule(done: float) -> SelfDistillation:
        return replace(distill, targets=replace(distill.targets, omega=start * (1 - done) + end * done))

    return Scheduled(model, make_loss(model.dim), teacher, schedule)


def temperature_schedule(
    model: Any, make_loss: Callable[[int], nn.Module], teacher: Any, distill: SelfDistillation, start: float, end: float
) -> System:
    """τ goes from `start` to `end`, by the same factor each epoch."""
    return Scheduled(model, make_loss(model.dim), teacher, lambda done: replace(distill, temperature=start ** (1 - done) * end**done))


class OldTeacher(System):
    """The teacher is renewed after every tenth epoch only, or after every so many."""

    ended: Tensor

    def __init__(self, model: Any, make_loss: Callable[[int], nn.Module], teacher: Any, distill: SelfDistillation, every: int = 10) -> None:
        super().__init__(model, make_loss(model.dim), teacher, distill)
        self.every = every
        self.register_buffer("ended", torch.tensor(0))  # epochs

    def end_epoch(self, reading: Mapping[str, float]) -> None:
        self.ended += 1
        if self.ended % self.every == 0:
            super().end_epoch(reading)


class Beginning(System):
    """A head that would begin as the projection begins as one of `BEGINNINGS` instead, without a bias."""

    def __init__(self, model: Any, make_loss: Callable[[int], nn.Module], teacher: Any, distill: SelfDistillation, head: str) -> None:
        super().__init__(model, make_loss(model.dim), teacher, distill)
        self.head, self.drawn = head, model.head.weight.detach().clone()

    @torch.no_grad()
    def begin(self, train_first: Callable[[], nn.Module]) -> None:
        weight = self.model.head.weight
        weight.copy_(BEGINNINGS[self.head](self.drawn.to(weight), weight.clone()))
        super().begin(train_first)


register("teacher", "random", random_rows)
register("targets", "sparse-walk", SparseWalk)
register("targets", "labelled-walk", LabelledWalk)
register("targets", "even-entropy", EvenEntropy)
register("system", "no-diagonal", no_diagonal)
register("system", "share-keeper", ShareKeeper)
register("system", "omega-schedule", omega_schedule)
register("system", "temperature-schedule", temperature_schedule)
register("system", "old-teacher", OldTeacher)
register("system", "beginning", Beginning)
