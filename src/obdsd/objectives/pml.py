"""Any loss and miner of pytorch-metric-learning: as objects, or by their names."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from obdsd.errors import InputError
from obdsd.objectives.objective import Objective, library, one_a_class
from obdsd.objectives.soft_triple import several_a_class
from obdsd.parts import suggestion
from obdsd.spec import Spec


class LibraryObjective(Objective):
    """A loss of the library with whatever it may refuse: its complaint about a batch becomes one line."""

    def forward(self, *batch: Any, **more: Any) -> Any:
        try:
            return super().forward(*batch, **more)
        except InputError:
            raise
        except (ValueError, NotImplementedError, AssertionError) as fault:
            reason = " ".join(str(fault).split()) or type(fault).__name__
            raise InputError(f"{type(self.loss).__name__} of pytorch-metric-learning: {reason}") from fault


def from_pml(loss: nn.Module, miner: nn.Module | None = None, lr: float | None = None) -> Objective:
    """Any loss of pytorch-metric-learning, with any miner; `lr` is for the loss's own parameters (default: the optimiser's).

    >>> from pytorch_metric_learning import losses
    >>> objective = from_pml(losses.NTXentLoss(temperature=0.1))
    """
    losses = library("losses")
    for field, part in (("loss", loss), ("miner", miner)):
        if isinstance(part, type):
            raise InputError(f"{field}={part.__name__} is a class; make one of it, {part.__name__}()")
    if miner is not None and isinstance(loss, losses.CrossBatchMemory):
        raise InputError("miner=… beside CrossBatchMemory would mine the batch, not the memory; use CrossBatchMemory(…, miner=…)")
    kinds = {losses.ProxyAnchorLoss: one_a_class, losses.ProxyNCALoss: one_a_class, losses.SoftTripleLoss: several_a_class}
    proxies = next((proxies for kind, proxies in kinds.items() if isinstance(loss, kind)), None)
    return LibraryObjective(loss, miner, optimiser=None if lr is None else {"lr": lr}, proxies=proxies)


def pml(name: Spec, miner: Spec | None = None, *, num_classes: int, dim: int, seed: int = 0) -> Objective:
    """Any loss of pytorch-metric-learning by its class name: pml(TripletMarginLoss(margin=0.1), miner=BatchHardMiner).

    Args:
        name: Class of the loss, with arguments if it needs other than its defaults.
        miner: Class of a miner.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        loss = _made(library("losses"), Spec.parse(name), {"num_classes": num_classes, "embedding_size": dim})
        return from_pml(loss, None if miner is None else _made(library("miners"), Spec.parse(miner), {}))


def _made(library: Any, spec: Spec, sizes: dict[str, int]) -> nn.Module:
    """An object of the library, with the sizes that it asks for."""
    kinds: dict[str, Any] = {key: kind for key, kind in vars(library).items() if inspect.isclass(kind)}
    if spec.name not in kinds:
        raise InputError(
            f"{spec.name} is not in pytorch-metric-learning's {library.__name__.rpartition('.')[2]}; {suggestion(spec.name, kinds)}"
        )
    wanted = inspect.signature(kinds[spec.name]).parameters
    try:
        return kinds[spec.name](*spec.positional, **{**{k: size for k, size in sizes.items() if k in wanted}, **spec.settings})
    except (TypeError, ValueError, NotImplementedError) as fault:
        raise InputError(f"{spec} cannot be made ({' '.join(str(fault).split())[:120]}); see its arguments there") from fault
