"""A base loss with its miner behind one small interface: (embeddings, labels) → scalar.

Two defaults of pytorch-metric-learning make other losses at the same weight: it normalises embeddings again (which changes the gradient
of unit rows), and it averages over all anchors or active pairs. Here Multi-Similarity and Margin do not normalise inside, and the
average is over the anchors or the triplets that contribute.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from obdsd.errors import explain_missing
from obdsd.method.checks import check_rows, check_unit_length, refuse, require, whole
from obdsd.method.precision import in_full, without_autocast


def library(module: str) -> Any:
    """A module of pytorch-metric-learning, imported where a loss is built: that takes a second, and a mistake is told without it."""
    with explain_missing():
        return import_module(f"pytorch_metric_learning.{module}")


class Objective(nn.Module):
    """A loss of pytorch-metric-learning, with its miner, as (embeddings, labels) → scalar; computed in float32 or better.

    Args:
        loss: The loss.
        miner: Chooses the pairs or triplets of a batch.
        unit_rows: Refuse rows that are not of unit length.
        num_classes: Refuse labels beyond this number.
        dim: Refuse rows of another length.
        optimiser: Settings of the optimiser for the loss's own parameters, such as `lr`.
        proxies: Of a proxy loss: the loss → its proxies (classes, proxies a class, dim).
    """

    def __init__(
        self,
        loss: nn.Module,
        miner: nn.Module | None = None,
        *,
        unit_rows: bool = False,
        num_classes: int | None = None,
        dim: int | None = None,
        optimiser: dict[str, float] | None = None,
        proxies: Callable[[Any], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.loss = loss
        self.miner = miner
        self.unit_rows = unit_rows
        self.num_classes = num_classes
        self.dim = dim
        self.optimiser = optimiser or {}
        self.proxies = proxies

    def forward(
        self, embeddings: Float[Tensor, "b d"], labels: Int[Tensor, " b"], indices_tuple: tuple[Tensor, ...] | None = None
    ) -> Float[Tensor, ""]:
        """`indices_tuple` stands for the miner's pairs or triplets."""
        labels = self._checked(embeddings, labels)
        with without_autocast(embeddings):
            embeddings = in_full(embeddings)
            if indices_tuple is None and self.miner is not None:
                indices_tuple = self.miner(embeddings, labels)
            return self.loss(embeddings, labels, indices_tuple)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The objective's own trainable parameters (β, proxies) as optimiser groups; none if it has none.

        >>> from obdsd import objectives
        >>> [(len(group["params"]), group["lr"]) for group in objectives.margin(num_classes=5).parameter_groups()]
        [(1, 0.0005)]
        """
        parameters = [p for p in self.parameters() if p.requires_grad]
        return [{"params": parameters, **self.optimiser}] if parameters else []

    def proxies_of(self, labels: Int[Tensor, " b"]) -> Float[Tensor, "p d"] | None:
        """Unit rows of the proxies (or of all centres) of the classes that occur in `labels`, by ascending class; None without proxies.

        >>> from obdsd import objectives
        >>> objectives.proxy_anchor(num_classes=5, dim=3).proxies_of(torch.tensor([4, 1, 4])).shape
        torch.Size([2, 3])
        """
        if self.proxies is None:
            return None
        table, labels = self.proxies(self.loss).detach(), whole("labels", labels)
        _check_range(labels, len(table))
        return nn.functional.normalize(in_full(table[torch.unique(labels).to(table.device)]).flatten(0, 1), dim=1)

    def _checked(self, rows: Tensor, labels: Tensor) -> Tensor:
        """The labels as int64."""
        labels = whole("labels", labels)
        fewest = 1 if self.proxies is not None else 2  # one row has its class's proxy
        check_rows("embeddings", rows, fewest if self.unit_rows else 0)
        if self.unit_rows:
            check_unit_length("embeddings", torch.linalg.vector_norm(in_full(rows.detach()), dim=1), rows.dtype)
        if self.dim is not None and rows.shape[1] != self.dim:
            refuse("embeddings.shape", tuple(rows.shape), f"must be (batch, {self.dim})", "make the objective for the model's dimension")
        if labels.shape != rows.shape[:1]:
            refuse("labels.shape", tuple(labels.shape), f"must be ({len(rows)},)", "give one label a row of embeddings")
        if self.num_classes is not None:
            _check_range(labels, self.num_classes)
        return labels


def parameter_groups_of(loss: nn.Module) -> list[dict[str, Any]]:
    """The trained parameters of any loss as optimiser groups: its own `parameter_groups()` if it has them, as an `Objective` has."""
    if hasattr(loss, "parameter_groups"):
        return loss.parameter_groups()  # type: ignore[operator]
    parameters = [p for p in loss.parameters() if p.requires_grad]
    return [{"params": parameters}] if parameters else []


def check_sizes(num_classes: int, dim: int) -> None:
    """Refuse sizes for which no proxies can be made."""
    require(num_classes >= 1 and dim >= 1, "num_classes, dim", (num_classes, dim), "must be 1 or more", "pass the training set's")


def seeded(initialise: Callable[..., Tensor], seed: int, **settings: Any) -> Callable[[Tensor], Tensor]:
    """An initialisation of torch that draws from the seed alone; it can be pickled, as losses keep it."""
    return partial(_initialise, initialise, seed, settings)


def _initialise(initialise: Callable[..., Tensor], seed: int, settings: dict[str, Any], weights: Tensor) -> Tensor:
    return initialise(weights, generator=torch.Generator().manual_seed(seed), **settings)


def one_a_class(loss: Any) -> Float[Tensor, "c 1 d"]:
    """The proxies of a loss that has one for each class."""
    return loss.proxies[:, None]


def _check_range(labels: Tensor, num_classes: int) -> None:
    if labels.is_cpu and len(labels):
        low, high = int(labels.min()), int(labels.max())
        inside = 0 <= low and high < num_classes
        require(inside, "labels", f"{low}..{high}", f"must lie in 0..{num_classes - 1}", "renumber them or raise num_classes")
