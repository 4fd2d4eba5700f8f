"""MemVir, memory-based virtual classes: the classes as they were some steps ago are classes of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from obdsd.data.batches import Batches
from obdsd.data.part import Part
from obdsd.errors import InputError
from obdsd.method.checks import require
from obdsd.method.distillation import SelfDistillation
from obdsd.method.precision import in_full, without_autocast
from obdsd.method.teachers import Teacher
from obdsd.objectives.norm_softmax import NormSoftmax
from obdsd.objectives.objective import library
from obdsd.objectives.system import Embed, System

NOBODY = -1  # the label of a place in the memory that holds no row


class MemVir(System):
    """MemVir: the rows and the proxies of past steps join a proxy loss as virtual classes.

    Step t meets the steps t-(M+1), t-2(M+1), …, N of them at most. The n-th brings its batch with the labels y + n·C, and its proxies as
    those of the classes n·C to (n+1)·C - 1. The loss is the base loss of all rows against all proxies. What is past is constant; the
    proxies of now learn as negatives of the past rows, too. The first steps have fewer virtual classes, which is the curriculum.

    Published with norm-softmax and with ProxyNCA. With Proxy-Anchor it is ours: the positive sum is divided by the number of real and
    virtual classes in the batch, the negative one by that of all. The memory holds N·(M+1) batches and as many copies of the proxies.

    Args:
        sets: Past steps that take part, at most (N).
        gap: Steps that are left out between them (M).
        warm: First epochs of the base loss alone; nothing is remembered in them.
    """

    objective: Any
    past_rows: Tensor
    past_labels: Tensor
    past_proxies: Tensor

    def __init__(
        self,
        model: Any,
        make_loss: Callable[[int], nn.Module],
        teacher: Teacher,
        distill: SelfDistillation,
        part: Part,
        epochs: int,
        *,
        sets: int = 45,
        gap: int = 10,
        warm: int = 40,
    ) -> None:
        super().__init__(model, make_loss(model.dim), teacher, distill)
        require(sets >= 1, "sets", sets, "must be 1 or more", "try 45, or system=standard for none")
        require(gap >= 0, "gap", gap, "must be 0 or more", "try 10")
        require(warm >= 0, "warm", warm, "must be 0 or more", "use 0 to begin at once")
        rule = f"leaves no epoch of {epochs} in which the past takes part"
        require(warm < epochs, "warm", warm, rule, f"try {epochs // 50}, or train longer")
        self.sets, self.gap, self.warm = sets, gap, warm
        self.num_classes, self.epochs = len(part.class_names), epochs
        self.remembers, self.step = False, 0  # steps that were remembered

    def check(self, items: int) -> None:
        super().check(items)
        if not isinstance(getattr(self.objective, "loss", None), _kinds()):
            raise InputError("remembers one proxy a class, and this loss has none; use loss=norm-softmax, proxy-nca or proxy-anchor")

    def batches(self, usual: Batches) -> Batches:
        self.make_room(usual.batch_size)
        return usual

    def make_room(self, batch_size: int) -> None:
        """An empty memory for batches of this size."""
        length, proxies = self.sets * (self.gap + 1), self.objective.loss.proxies
        self.step = 0
        self.register_buffer("past_rows", proxies.new_zeros(length, batch_size, proxies.shape[1]))
        self.register_buffer("past_labels", torch.full((length, batch_size), NOBODY, device=proxies.device))
        self.register_buffer("past_proxies", proxies.new_zeros(length, *proxies.shape))

    def begin_epoch(self, progress: float, embed: Embed, resumed: bool = False) -> None:
        super().begin_epoch(progress, embed, resumed)
        self.remembers = round(progress * self.epochs) >= self.warm

    def base_loss(self, rows: Float[Tensor, "b d"], labels: Int[Tensor, " b"]) -> Tensor:
        if not self.remembers:
            return super().base_loss(rows, labels)
        z, loss = in_full(rows), self.objective.loss
        before = self.recall()  # of this step nothing yet
        self.remember(z.detach(), labels)
        with without_autocast(z):
            return extended(loss, *map(torch.cat, zip((z, labels, loss.proxies.to(z)), before, strict=True)))

    def recall(self) -> tuple[Float[Tensor, "r d"], Int[Tensor, " r"], Float[Tensor, "p d"]]:
        """The rows of the past steps that take part, their virtual labels, and the virtual classes' proxies."""
        length = len(self.past_labels)
        ages = [n * (self.gap + 1) for n in range(1, self.sets + 1) if n * (self.gap + 1) <= self.step]
        places = torch.tensor([(self.step - age) % length for age in ages], dtype=torch.long, device=self.past_labels.device)
        labels = self.past_labels[places]
        virtual = labels + self.num_classes * torch.arange(1, len(ages) + 1, device=labels.device)[:, None]
        there = labels != NOBODY
        return self.past_rows[places][there], virtual[there], self.past_proxies[places].flatten(0, 1)

    @torch.no_grad()
    def remember(self, z: Float[Tensor, "b d"], labels: Int[Tensor, " b"]) -> None:
        """Put this step's batch and the proxies as they are in the place of the oldest."""
        place = self.step % len(self.past_labels)
        self.past_rows[place, : len(z)] = z.to(self.past_rows)
        self.past_labels[place] = NOBODY
        self.past_labels[place, : len(z)] = labels
        self.past_proxies[place] = self.objective.loss.proxies
        self.step += 1

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.step)

    def set_extra_state(self, state: Tensor) -> None:
        self.step = int(state)


def extended(loss: Any, z: Float[Tensor, "b d"], labels: Int[Tensor, " b"], proxies: Float[Tensor, "p d"]) -> Float[Tensor, ""]:
    """The base loss of unit rows with any number of proxies in the place of its own."""
    softmax, nca, _ = _kinds()
    S = z @ nn.functional.normalize(proxies, dim=1).mT  # (rows, proxies)
    if isinstance(loss, softmax):
        return nn.functional.cross_entropy(loss.scale * S, labels)
    if isinstance(loss, nca):  # -‖z-p‖² is 2S, but for a number that is the same for all proxies
        return nn.functional.cross_entropy(2 * loss.softmax_scale * S, labels)
    return anchored(S, labels, loss.alpha, loss.margin)


def anchored(S: Float[Tensor, "b p"], labels: Int[Tensor, " b"], alpha: float, margin: float) -> Float[Tensor, ""]:
    """Proxy-Anchor: (1/|P⁺|) Σ_p log(1 + Σ_{z of p} exp(-α(S-δ))) + (1/|P|) Σ_p log(1 + Σ_{others} exp(α(S+δ))).

    >>> anchored(torch.zeros(1, 2), torch.tensor([0]), alpha=1.0, margin=0.0)  # log 2 + log(2)/2
    tensor(1.0397)
    """
    own = labels[:, None] == torch.arange(S.shape[1], device=S.device)
    nothing = S.new_zeros(1, S.shape[1])

    def over(scores: Tensor, those: Tensor) -> Tensor:
        return torch.cat([nothing, scores.masked_fill(~those, -torch.inf)]).logsumexp(dim=0)

    drawn, pushed = over(-alpha * (S - margin), own), over(alpha * (S + margin), ~own)
    return drawn.sum() / own.any(dim=0).sum() + pushed.mean()


def _kinds() -> tuple[Any, ...]:
    """The losses with one proxy a class whose extension is known."""
    losses = library("losses")
    return NormSoftmax, losses.ProxyNCALoss, losses.ProxyAnchorLoss
