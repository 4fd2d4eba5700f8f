"""Between the weights at a training's beginning and those at its end: how far to go, by held-out classes (WiSE-FT)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from obdsd.errors import InputError
from obdsd.models import Embedder

SHARES = [tenth / 10 for tenth in range(11)]  # of the way


def check_interpolable(model: Embedder) -> None:
    """Refuse a model whose statistics change: between two networks they are neither's."""
    if model.architecture.batchnorm == "train" and any(isinstance(module, _BatchNorm) for module in model.modules()):
        raise InputError("interpolate=True needs BatchNorm that keeps its statistics; use batchnorm=frozen with it")


def between(start: Mapping[str, Tensor], end: Mapping[str, Tensor], share: float) -> dict[str, Tensor]:
    """(1-share)·start + share·end; counters are the end's.

    >>> between({"w": torch.zeros(2)}, {"w": torch.tensor([1.0, 2.0])}, 0.5)
    {'w': tensor([0.5000, 1.0000])}
    """
    return {name: torch.lerp(start[name], last, share) if last.is_floating_point() else last.clone() for name, last in end.items()}


def go_back(model: nn.Module, start: Mapping[str, Tensor], recall: Callable[[], float]) -> dict[str, Any]:
    """Give the model the weights on its way from the start whose Recall@1 is best; of equals those that are nearest to its own.

    `recall` measures the model as it stands. What was found: the share of the way, and the Recall@1 of each that was tried."""
    end = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    recalls = []
    for share in SHARES:
        model.load_state_dict(between(start, end, share))
        recalls.append(recall())
    best = max(range(len(SHARES)), key=lambda number: (recalls[number], number))
    model.load_state_dict(between(start, end, SHARES[best]))
    return {"share": SHARES[best], "shares": SHARES, "recall@1": recalls}


def told(found: Mapping[str, Any]) -> str:
    """What held-out classes chose, in a line.

    >>> told({"share": 0.5, "shares": [0.0, 0.5, 1.0], "recall@1": [0.5, 0.75, 0.7]})
    'weights 50 % of the way from the start to the end: Recall@1 75.0 on held-out classes, 50.0 at the start, 70.0 at the end'
    """
    first, *_, last = found["recall@1"]
    best = f"weights {100 * found['share']:.0f} % of the way from the start to the end: Recall@1 {100 * max(found['recall@1']):.1f}"
    return f"{best} on held-out classes, {100 * first:.1f} at the start, {100 * last:.1f} at the end"
