"""A system: what learns and what it learns from. A training drives every system by the same few methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from obdsd.data.batches import Batches
from obdsd.errors import InputError
from obdsd.method.distillation import SelfDistillation
from obdsd.method.matching import Matching
from obdsd.method.stages import stage
from obdsd.method.targets import Targets
from obdsd.method.teachers import NoTeacher, Teacher, TeacherBatch
from obdsd.objectives.objective import parameter_groups_of

Embed = Callable[..., Tensor]
"""A model → its unit rows of the training set, in the order of the items and without augmentation; `embed(model, items)`: of these."""


class System(nn.Module):
    """The model, a base loss, and a teacher whose targets the model is drawn to (Eq. 7).

    Other systems override what differs: which rows of the model their loss needs (`rows`), the loss (`losses`), what else is trained
    (`parameter_groups`), and the hooks that an epoch and a step call. All state is in `state_dict`.

    Args:
        model: What is trained.
        objective: The base loss.
        teacher: Whom it learns from beside the labels; None for the plain loss.
        distill: How it learns from the teacher.

    Attributes:
        teaches: Whether anything is taught without a teacher.
        teaches_targets: Whether the targets say what that is.
        matches: Whether the matching says how the model is compared with its teacher.
        another_view: Whether `ask` is shown another crop of each image than the model.
    """

    teaches = False
    teaches_targets = True
    matches = True
    another_view = False

    def __init__(self, model: Any, objective: nn.Module, teacher: Teacher | None = None, distill: SelfDistillation | None = None) -> None:
        super().__init__()
        self.model = model
        self.objective = objective
        self.teacher = teacher or NoTeacher()
        self.distill = distill or SelfDistillation(0.0)
        if not isinstance(self.distill.targets, Targets):
            raise InputError(f"targets={self.distill.targets} must be obdsd.Targets in a training; make them a subclass")
        self.targets: Targets = self.distill.targets  # registers what state they have
        self.matching: Matching = self.distill.matching  # and what it trains

    def compile_model(self) -> None:
        """Compile what a step calls of the model."""
        self.model.compile()

    def check(self, items: int) -> None:
        """Refuse before the first step what cannot be taught; `items` is the size of the training set."""
        if self.another_view and self.model.preprocessing is None:
            raise InputError("compares two crops of each image, and rows of features have none; give images and frozen=False")
        if self.teacher.teaches:
            self.targets.check(items, self.objective, self.teacher)

    def batches(self, usual: Batches) -> Batches:
        """Which items are in which batch, given what the options say. What it depends on must be settled when an epoch begins."""
        return usual

    def begin(self, train_first: Callable[[], nn.Module]) -> None:
        """Called once, before the first step; `train_first` trains the plain loss to its end and returns the model."""
        self.teacher.begin(self.model, train_first)

    def begin_epoch(self, progress: float, embed: Embed, resumed: bool = False) -> None:
        """Called where an epoch begins, and where one goes on that was interrupted (`resumed`): state is back then, the rest is not."""
        if self.asks(progress) and not resumed:
            self.targets.begin_epoch(self.teacher, embed)

    def begin_step(self, step: int, indices: Int[Tensor, " b"]) -> None:
        """Called before each step with its number in the epoch and the items of the batch."""

    def asks(self, progress: float) -> bool:
        """Whether a step at this point of the training needs the teacher."""
        return self.teacher.teaches and self.distill.active(progress)

    def ask(self, inputs: Tensor, indices: Int[Tensor, " b"]) -> TeacherBatch:
        """What the teacher knows of these items."""
        return self.targets.ask(self.teacher, inputs, indices)

    def complete(self, batch: TeacherBatch, labels: Int[Tensor, " b"]) -> TeacherBatch:
        """The teacher's batch with what the targets need of the base loss, and the matching of the labels."""
        return self.matching.complete(self.targets.complete(batch, self.objective, labels), labels)

    def rows(self, inputs: Tensor) -> Float[Tensor, "b c"]:
        """What the loss needs of the model: unit rows, in the first `model.dim` columns."""
        return self.model(inputs)

    def base_loss(self, rows: Float[Tensor, "b d"], labels: Int[Tensor, " b"]) -> Tensor:
        """The loss of the rows and their labels alone."""
        return self.objective(rows, labels)

    def losses(
        self, rows: Float[Tensor, "b c"], labels: Int[Tensor, " b"], taught: TeacherBatch | None, progress: float
    ) -> tuple[Tensor, Tensor]:
        """The base loss, and the distillation: τ²·(t/T)·λ·KL(the teacher's targets ‖ student), or by another matching."""
        base = self.base_loss(rows, labels)
        if not self.asks(progress):
            return base, torch.zeros_like(base)
        with stage("targets"):
            return base, self.distill(rows[:, : self.model.dim], taught, progress)

    def after_step(self, indices: Int[Tensor, " b"], rows: Float[Tensor, "b d"]) -> None:
        """Called after an optimiser step with the items of the batch and the embeddings that they had before it."""
        self.teacher.observe(indices, rows)
        self.teacher.step(self.model)

    def end_epoch(self, reading: Mapping[str, float]) -> None:
        """Called where an epoch ends; `reading` tells of the distillation in its middle, such as its share of the gradient."""
        self.teacher.update(self.model)

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """What is trained beside the model, as optimiser groups; `lr` is the model's learning rate."""
        groups = parameter_groups_of(self.objective)
        if isinstance(self.matching, nn.Module) and (learned := [*self.matching.parameters()]):
            groups.append({"params": learned, "lr": lr, "weight_decay": 0.0, "at_base_lr": True})
        return groups

    def current_weight(self, progress: float) -> float:
        """λ times the ramp at this point of the training; 0 where nobody teaches."""
        return self.distill.current_weight(progress) if self.teaches or self.teacher.teaches else 0.0


def standard(model: Any, make_loss: Callable[[int], nn.Module], teacher: Teacher, distill: SelfDistillation) -> System:
    """One base loss, and one teacher if there is one: PSD, OBD-SD, born-again networks, …"""
    return System(model, make_loss(model.dim), teacher, distill)
