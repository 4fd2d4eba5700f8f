"""Similarities, solves and losses run in float32 or better, whatever precision the model runs in."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

HALF = (torch.float16, torch.bfloat16)


def in_full(x: Tensor) -> Tensor:
    """x itself, or its float32 copy if it is of half precision."""
    return x.float() if x.dtype in HALF else x


def without_autocast(x: Tensor) -> AbstractContextManager[object]:
    """A context in which autocast does not lower the precision of operations on x's device."""
    device = x.device.type
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()
