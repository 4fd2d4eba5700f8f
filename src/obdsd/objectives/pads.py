"""PADS: a policy learns from which distances the Margin loss should draw its negatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from obdsd.data.batches import Batches, ClassBatches
from obdsd.errors import InputError
from obdsd.method.checks import check_number, require, whole
from obdsd.method.distillation import SelfDistillation
from obdsd.method.precision import in_full
from obdsd.method.teachers import Teacher
from obdsd.objectives.negative_policy import METRICS, Critic, NegativePolicy
from obdsd.objectives.samplers import Labels, Triplets
from obdsd.objectives.system import Embed, System
from obdsd.seeds import seed_of

NEAREST, FARTHEST, BINS = 0.1, 1.4, 29
BEGINNING = (0.3, 0.7)  # the bins whose middle lies there share the probability at the start
RARE, LIMIT = 1e-15, 1e25  # what the others begin with; p stays within 1/LIMIT and LIMIT
FEWEST = 10  # images that can say how well a model does


class BinnedSampler(nn.Module):
    """A miner: an anchor's negative is drawn with a probability ∝ p[bin of its distance], its positive uniformly from its class.

    Bins are 29 equal parts of [0.1, 1.4]; what is nearer or farther falls into the first and the last. As published, the negative is drawn
    from *all* rows, also from the anchor's class, and the positive may be the anchor. `p` is not normalised; `step` counts training calls.
    """

    p: Tensor
    edges: Tensor

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed, self.step = seed, 0
        support = torch.linspace(NEAREST, FARTHEST, BINS + 1)
        self.register_buffer("edges", support[1:-1], persistent=False)
        middle = (support[1:] + support[:-1]) / 2
        inside = (BEGINNING[0] <= middle) & (middle <= BEGINNING[1])
        p = torch.where(inside, 1.0, RARE)
        self.register_buffer("p", p / p.sum())

    @torch.no_grad()
    def forward(self, embeddings: Float[Tensor, "b d"], labels: Labels, ref_emb: None = None, ref_labels: None = None) -> Triplets:
        generator = torch.Generator(embeddings.device).manual_seed(seed_of(self.seed, self.step))
        self.step += self.training
        labels, rows = whole("labels", labels), in_full(embeddings)
        same = (labels[:, None] == labels).float()
        positives = torch.multinomial(same, 1, generator=generator).squeeze(1)
        negatives = torch.multinomial(self.weights(torch.cdist(rows, rows)), 1, generator=generator).squeeze(1)
        return torch.arange(len(labels), device=labels.device), positives, negatives

    def weights(self, distances: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        """p of each distance's bin."""
        return self.p[torch.bucketize(distances, self.edges.to(distances))]

    @torch.no_grad()
    def adjust(self, factors: Float[Tensor, " k"]) -> None:
        self.p.mul_(factors).clamp_(1 / LIMIT, LIMIT)

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.step)

    def set_extra_state(self, state: Tensor) -> None:
        self.step = int(state)


class PADS(System):
    """PADS: the Margin loss's negatives are drawn from bins of distance, whose probabilities a policy adjusts by how held-out images fare.

    Some training images are never trained on. Every so many steps the model embeds them; the policy (`NegativePolicy`, PPO) sees their
    scores and multiplies the probability of each bin by 0.8, 1 or 1.25. Its weights, its optimiser, what it has seen and the probabilities
    are state.

    Args:
        held_out: Share of the images of each class that is held out for the policy, 2 at least; classes of fewer than 4 give none.
        of_classes: Whether whole classes are held out instead, the last ones.
        every: Steps from one adjustment to the next.
        with_nmi: Whether the mean of Recall@1 and NMI is to rise, not Recall@1 alone.
        critic: What the policy's critic learns: the return, or the metric as in the published code.
        policy_lr: Learning rate of the policy's own Adam.
    """

    objective: Any
    embed: Embed | None

    def __init__(
        self,
        model: Any,
        make_loss: Callable[[int], nn.Module],
        teacher: Teacher,
        distill: SelfDistillation,
        seed: int = 0,
        *,
        held_out: float = 0.15,
        of_classes: bool = False,
        every: int = 30,
        with_nmi: bool = False,
        critic: Critic = "return",
        policy_lr: float = 0.01,
    ) -> None:
        check_number("held_out", held_out)
        check_number("policy_lr", policy_lr)
        require(0 < held_out <= 0.5, "held_out", held_out, "must be a share above 0, 0.5 at most", "try 0.15")
        require(every >= 1, "every", every, "must be 1 or more", "try 30")
        require(0 < policy_lr < float("inf"), "policy_lr", policy_lr, "must be a positive finite number", "try 0.01")
        super().__init__(model, make_loss(model.dim), teacher, distill)
        self.seed, self.held_out, self.of_classes, self.every, self.with_nmi = seed, held_out, of_classes, every, with_nmi
        self.sampling = getattr(getattr(self.objective, "miner", None), "sampling", None)
        self.objective.miner = BinnedSampler(seed)
        self.policy = NegativePolicy(BINS, seed, policy_lr, critic)
        self.watched: list[NDArray[np.int64]] = []  # the items that are held out, by class
        self.progress, self.embed = 0.0, None  # until an epoch begins

    @property
    def sampler(self) -> BinnedSampler:
        return self.objective.miner

    def check(self, items: int) -> None:
        if self.sampling != "distance":
            raise InputError("learns how the Margin loss draws its negatives; use loss=margin, without a sampling of its own")
        super().check(items)

    def batches(self, usual: Batches) -> Batches:
        """The usual ones without the images that are held out."""
        if not isinstance(usual, ClassBatches):
            raise InputError("system=pads: holds images of each class out; use supervision=labels and batches=drawn")
        self.watched = held_out(usual.members, self.held_out, self.of_classes, self.seed)
        items = sum(map(len, self.watched))
        if items < FEWEST or len(self.watched) < 2:
            few = f"{items} images of {len(self.watched)} classes can be held out, {FEWEST} of 2 are needed to judge by"
            raise InputError(f"system=pads: held_out={self.held_out}: {few}; raise it, or give classes of 4 images or more")
        return usual.without(np.concatenate(self.watched))

    def begin_epoch(self, progress: float, embed: Embed, resumed: bool = False) -> None:
        super().begin_epoch(progress, embed, resumed)
        self.progress, self.embed = progress, embed

    def begin_step(self, step: int, indices: Int[Tensor, " b"]) -> None:
        if self.sampler.step and self.sampler.step % self.every == 0:
            measured = self.measured()
            recall, nmi = measured[0], measured[-1]
            metric = (recall + nmi) / 2 if self.with_nmi else recall
            self.sampler.adjust(self.policy(measured, metric, self.sampler.p, self.progress))

    def measured(self) -> Float[Tensor, " m"]:
        """How the held-out images fare with the model as it is."""
        from obdsd.evaluation import evaluate  # seconds of imports, which --help and mistakes must not wait for

        assert self.embed is not None
        rows = self.embed(self.model, np.concatenate(self.watched).tolist())
        labels = np.repeat(np.arange(len(self.watched)), [*map(len, self.watched)])
        scores = evaluate(rows.cpu().numpy(), labels, (1, 2, 4, 8), self.seed)
        return torch.tensor([scores[name] or 0.0 for name in METRICS]).nan_to_num().to(self.sampler.p)


def held_out(members: Sequence[NDArray[np.int64]], share: float, of_classes: bool, seed: int) -> list[NDArray[np.int64]]:
    """The items of each class that are never trained on: the same share of each, drawn by the seed, or all of the last classes.

    >>> [len(items) for items in held_out([np.arange(20), np.arange(20, 25), np.arange(25, 28)], 0.15, False, 0)]
    [3, 2]
    """
    if of_classes:
        return [*members[-max(2, round(share * len(members))) :]]
    random = np.random.default_rng((seed, len(members)))
    counts = [max(2, round(share * len(items))) for items in members]
    return [
        np.sort(random.choice(items, count, replace=False)) for items, count in zip(members, counts, strict=True) if len(items) >= count + 2
    ]
