"""How a model goes through items, and what a change of an index did. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

Progress = Callable[[str, int, int], None]
FEW = 32  # images that are embedded sooner than a model is made faster for them, and processes are started


def silent(stage: str, done: int, total: int) -> None:
    """No progress is shown."""


def unsaid(remark: str) -> None:
    """No remark is shown."""


def nothing(part: Any, device: Any) -> None:
    """No rows are known."""


@dataclass(frozen=True, kw_only=True)
class Pass:
    """How a model goes through items.

    Args:
        batch_size: Items at a time.
        workers: Processes that read items; default one a core, at most 8, for image files.
        device: Where the model runs; `auto` takes the accelerator if there is one.
        progress: Told the stage, how much of it is done, and of how much.
        tell: Told in a sentence what is in a collection and not taken into the index.
        known: Given a part and a device: its rows, if they were computed before, else None.
    """

    batch_size: int = 64
    workers: int | None = None
    device: str = "auto"
    progress: Progress = silent
    tell: Callable[[str], None] = unsaid
    known: Callable[[Any, Any], Any] = nothing


class Change(NamedTuple):
    """What a change did, in numbers of items: in the index now, new, changed, no longer there, and how many were embedded."""

    items: int
    new: int
    changed: int
    gone: int
    embedded: int
