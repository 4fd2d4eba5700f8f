"""A made-up data set, loss, teacher, targets, matching, system and re-ranker."""

import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

import obdsd
from obdsd.data import collect, training_defaults
from obdsd.data.items import Rows


@training_defaults(epochs=2, backbone="features", batch_size=12, dim=4, lr=1e-3, omega=0.6)
def rings(seed: int = 0, test_fraction: float = 0.5):
    """Points around the centres of a dozen classes."""
    generator = np.random.default_rng(5)
    labels = np.repeat(np.arange(12), 8)
    rows = generator.standard_normal((12, 6))[labels] + generator.standard_normal((96, 6))
    return collect("rings", Rows(rows.astype(np.float32)), [f"ring {label}" for label in labels], seed=seed, test_fraction=test_fraction)


class Pull(nn.Module):
    """Draws a class together and pushes others apart.

    Args:
        strength: Weight of the drawing.
    """

    def __init__(self, num_classes: int, strength: float = 1.0) -> None:
        super().__init__()
        self.strength = strength
        self.margins = nn.Parameter(torch.zeros(num_classes))

    def forward(self, rows, labels):
        cosines, same = rows @ rows.T, labels[:, None] == labels
        return self.strength * (1 - cosines[same]).mean() + torch.relu(cosines - self.margins[labels][:, None])[~same].mean()


class Lagging(obdsd.Teacher):
    """The model as it was some epochs ago teaches.

    Args:
        every: Epochs between two copies.
    """

    def __init__(self, model: nn.Module, every: int = 1) -> None:
        super().__init__()
        self.model, self.every, self.epochs = copy.deepcopy(model).requires_grad_(False), every, 0
        self.train(False)

    @torch.no_grad()
    def forward(self, inputs, indices=None):
        return obdsd.TeacherBatch(self.model(inputs), indices=indices)

    def update(self, student: nn.Module) -> None:
        super().update(student)
        self.epochs += 1
        if self.epochs % self.every == 0:
            self.model.load_state_dict(student.state_dict())


@dataclass(frozen=True)
class Sharpened(obdsd.Targets):
    """The teacher's softmax raised to a power.

    Args:
        power: The power.
    """

    power: float = 2.0

    def __call__(self, teacher, temperature: float = 1.0):
        P = obdsd.PairwiseTargets()(teacher, temperature) ** self.power
        return P / P.sum(dim=1, keepdim=True)


class Squares(obdsd.Matching):
    """Squared differences of the student's softmax and the targets.

    Args:
        times: What multiplies them.
    """

    reads = ("targets",)

    def __init__(self, dim: int, teacher_dim: int | None, seed: int, times: float = 1.0) -> None:
        assert teacher_dim is None  # this teacher does not tell
        self.times = times * dim

    def __call__(self, student, teacher, targets, temperature):
        return self.times * ((student @ student.T).softmax(dim=1) - targets(teacher, temperature)).square().mean()


class Scaled(obdsd.System):
    """A system that gives the base loss another weight."""

    def losses(self, rows, labels, taught, progress):
        base, distillation = super().losses(rows, labels, taught, progress)
        return self.share * base, distillation


def scaled(model, make_loss, teacher, distill, share: float = 1.0) -> Scaled:
    """The standard system with another weight of the base loss.

    Args:
        share: Weight of the base loss.
    """
    system = Scaled(model, make_loss(model.dim), teacher, distill)
    system.share = share
    return system


class Backwards(obdsd.search.Reranker):
    """The order of the cosines, the other way round.

    Args:
        again: Whether that is turned round once more.
    """

    def __init__(self, again: bool = False) -> None:
        self.again = again

    def fit(self, rows, progress=None):
        return FittedBackwards(obdsd.search.reranker.unit_rows(rows), self.again)

    def restore(self, rows, arrays):
        return self.fit(rows)


class FittedBackwards(obdsd.search.Fitted):
    def __init__(self, rows, again) -> None:
        super().__init__(rows)
        self.sign = 1 if again else -1

    def _best(self, queries, k, own):
        scores = self.sign * (queries @ self.rows.T)
        if own is not None:
            scores[np.arange(len(own)), own] = -np.inf
        best = np.argsort(-scores, axis=1)[:, :k]
        return obdsd.search.Found(np.take_along_axis(scores, best, axis=1), best)


obdsd.register("data", "rings", rings)
obdsd.register("loss", "pull", Pull)
obdsd.register("teacher", "lagging", Lagging)
obdsd.register("targets", "sharpened", Sharpened)
obdsd.register("matching", "squares", Squares)
obdsd.register("system", "scaled", scaled)
obdsd.register("rerank", "backwards", Backwards)
