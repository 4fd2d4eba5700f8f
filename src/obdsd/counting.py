"""How long work tells how far it is. Imports nothing."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Told the stage, how much of it is done, and of how much: 1 where it cannot be counted."""


def counted(progress: Progress, stage: str, total: int) -> Callable[[int], None]:
    """A function to be told how many of a stage were done since it was last told."""
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        progress(stage, done, total)

    advance(0)
    return advance
