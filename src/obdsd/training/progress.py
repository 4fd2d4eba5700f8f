"""How far a training is."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Progress:
    """How far a training is; with the weights, all its state. Randomness is a function of the place and needs none."""

    epoch: int = 0  # the one under way
    step: int = 0  # batches of it that are done
    items: int = 0  # in them
    sums: dict[str, float] = field(default_factory=dict)  # of the loss's parts over them
    reading: dict[str, float] = field(default_factory=dict)  # of the distillation, in the middle of the epoch
    epoch_seconds: float = 0.0
    seconds: float = 0.0  # of all epochs before
    best: float = -1.0
    best_epoch: int = -1
    stale: int = 0  # evaluations since the best


def seed_of(*place: int) -> int:
    """A generator's seed for a place in the training: neighbouring places must not give related streams."""
    return int.from_bytes(hashlib.blake2b(repr(place).encode(), digest_size=7).digest(), "little")


def flat(line: dict[str, Any], prefix: str = "") -> dict[str, float]:
    """Nested numbers as `validation/recall/1`, for loggers."""
    found: dict[str, float] = {}
    for name, value in line.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{name}/")
        elif isinstance(value, (int, float)):
            found[prefix + name] = value
    return found
