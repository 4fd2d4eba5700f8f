"""DAS, densely anchored sampling: rows that are produced around those of a batch join it before any base loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from obdsd.data.part import Part
from obdsd.errors import InputError
from obdsd.method.checks import check_number, require
from obdsd.method.distillation import SelfDistillation
from obdsd.method.precision import in_full, without_autocast
from obdsd.method.teachers import Teacher
from obdsd.objectives.no_loss import NoLoss
from obdsd.objectives.system import System
from obdsd.seeds import seed_of


class DAS(System):
    """DAS: every row is joined by `copies` produced ones of its class, in any base loss; they are anchors, positives and negatives alike.

    A produced row is normalise(z ⊙ m + moved·(z_a - z_b)). m multiplies the coordinates that are most often large in the class by factors
    drawn from [low, high); all others it leaves alone. z_a - z_b is drawn from the latest differences of two rows of the class in a batch.
    What is often large and the differences are remembered from batch to batch.

    Args:
        copies: Produced rows for each row of the batch.
        scaled: Coordinates that are multiplied, and that count as large in a row.
        low: The smallest factor.
        high: The largest factor.
        moved: What a difference is multiplied by.
        constant: Whether produced rows are constants; else the gradient flows through the factors into their row.
        bank: Differences that are remembered of each class.
        both: Whether the loss of the batch as it is is added to the loss with the produced rows.
    """

    frequency: Tensor
    differences: Tensor
    pointer: Tensor

    def __init__(
        self,
        model: Any,
        make_loss: Callable[[int], nn.Module],
        teacher: Teacher,
        distill: SelfDistillation,
        part: Part,
        seed: int = 0,
        *,
        copies: int = 3,
        scaled: int = 4,
        low: float = 0.99,
        high: float = 1.01,
        moved: float = 0.01,
        constant: bool = True,
        bank: int = 10,
        both: bool = False,
    ) -> None:
        super().__init__(model, make_loss(model.dim), teacher, distill)
        for field, value in (("low", low), ("high", high), ("moved", moved)):
            check_number(field, value)
        require(copies >= 1, "copies", copies, "must be 1 or more", "try 3, or system=standard for none")
        require(1 <= scaled <= model.dim, "scaled", scaled, f"must lie in 1..{model.dim}, the length of the rows", "try 4")
        require(bank >= 1, "bank", bank, "must be 1 or more", "try 10")
        require(0 < low <= high < float("inf"), "low, high", (low, high), "must be factors above 0, the larger one last", "try 0.99, 1.01")
        require(0 <= moved < float("inf"), "moved", moved, "must be 0 or more and finite", "try 0.01")
        self.copies, self.scaled, self.low, self.high, self.moved = copies, scaled, low, high, moved
        self.constant, self.both, self.seed, self.step = constant, both, seed, 0
        self.register_buffer("frequency", torch.zeros(len(part.class_names), model.dim, dtype=torch.long))
        self.register_buffer("differences", torch.zeros(len(part.class_names), bank, model.dim))
        self.register_buffer("pointer", torch.zeros(len(part.class_names), dtype=torch.long))

    def check(self, items: int) -> None:
        super().check(items)
        if isinstance(self.objective, NoLoss):
            raise InputError("adds rows to a base loss, and there is none; use a loss beside it, as multi-similarity")

    def base_loss(self, rows: Float[Tensor, "b d"], labels: Int[Tensor, " b"]) -> Tensor:
        z = in_full(rows)
        self.see(z.detach(), labels)
        loss = self.objective(torch.cat([z, self.produced(z, labels)]), labels.repeat(1 + self.copies))
        return loss + self.objective(z, labels) if self.both else loss

    @torch.no_grad()
    def see(self, z: Float[Tensor, "b d"], labels: Int[Tensor, " b"]) -> None:
        """Count the largest coordinates of the rows, and remember their differences: of each class in a ring, in the order a, b."""
        large = z.topk(self.scaled, dim=1).indices
        self.frequency.index_put_((labels[:, None], large), torch.ones_like(large), accumulate=True)
        a, b = (labels[:, None] == labels).nonzero().unbind(1)
        new = z[a] - z[b]
        some = new.any(dim=1)  # of copies of one image there is nothing to learn
        order, of, place, count = _in_their_class(labels[a[some]])
        new = new[some][order]
        capacity = self.differences.shape[1]
        many = count > capacity
        slot = torch.where(many, place - (count - capacity), (self.pointer[of] + place) % capacity)
        kept = slot >= 0
        self.differences[of[kept], slot[kept]] = new[kept].to(self.differences)
        self.pointer[of] = torch.where(many, self.pointer[of], (self.pointer[of] + count) % capacity)

    def produced(self, z: Float[Tensor, "b d"], labels: Int[Tensor, " b"]) -> Float[Tensor, "t d"]:
        """`copies` rows for each of z, drawn by (seed, training step)."""
        generator = torch.Generator(z.device).manual_seed(seed_of(self.seed, self.step))
        self.step += self.training
        random: dict[str, Any] = {"generator": generator, "device": z.device, "dtype": z.dtype}
        factors = self.low + (self.high - self.low) * torch.rand(self.copies, len(z), self.scaled, **random)
        share = torch.rand(self.copies, len(z), **random)
        made = produce(z, self.frequent(labels), factors, self.moved * self.drawn(labels, share))
        return made.detach() if self.constant else made

    def frequent(self, labels: Int[Tensor, " b"]) -> Int[Tensor, "b k"]:
        """The coordinates that were most often large in the class of each row; of equals the first, on every device."""
        d = self.frequency.shape[1]
        order = self.frequency[labels] * d - torch.arange(d, device=labels.device)
        return order.topk(self.scaled, dim=1).indices

    def drawn(self, labels: Int[Tensor, " b"], share: Float[Tensor, "t b"]) -> Float[Tensor, "t b d"]:
        """For each row and copy the difference of its class that lies at this share of those that are there; 0 if there is none."""
        there = self.differences.any(dim=2).sum(dim=1)[labels]  # the first of the ring
        return self.differences[labels, (share * there).long()]

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.step)

    def set_extra_state(self, state: Tensor) -> None:
        self.step = int(state)


def produce(
    z: Float[Tensor, "b d"], coordinates: Int[Tensor, "b k"], factors: Float[Tensor, "t b k"], moves: Float[Tensor, "t b d"]
) -> Float[Tensor, "tb d"]:
    """The rows with some of their coordinates multiplied, moved, and at unit length again.

    >>> z, zero = torch.tensor([[0.6, 0.8]]), torch.zeros(1, 1, 2)
    >>> produce(z, torch.tensor([[0]]), torch.tensor([[[0.0]]]), zero), produce(z, torch.tensor([[0]]), torch.ones(1, 1, 1), zero)
    (tensor([[0., 1.]]), tensor([[0.6000, 0.8000]]))
    """
    copies, many = len(factors), z.new_ones(len(factors), *z.shape)
    multiplied = many.scatter(2, coordinates.expand(copies, -1, -1), factors.to(z))
    with without_autocast(z):
        return nn.functional.normalize(z * multiplied + moves.to(z), dim=2).flatten(0, 1)


def _in_their_class(labels: Int[Tensor, " n"]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """An order in which those of a class stand together, and in it: the class, the place within it, and how many the class has."""
    order = labels.argsort(stable=True)
    _, group, counts = torch.unique(labels[order], return_inverse=True, return_counts=True)
    first = counts.cumsum(0) - counts
    return order, labels[order], torch.arange(len(order), device=labels.device) - first[group], counts[group]
