"""How many processes torchrun started, and which of them this is. Imports no torch."""

from __future__ import annotations

import os


def processes() -> int:
    """1 without torchrun."""
    return int(os.environ["WORLD_SIZE"]) if "LOCAL_RANK" in os.environ else 1


def rank() -> int:
    return int(os.environ["RANK"]) if processes() > 1 else 0


def first_process() -> bool:
    """Whether this one writes and prints."""
    return rank() == 0
