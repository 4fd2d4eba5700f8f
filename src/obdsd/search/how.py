"""How a model goes through items, and what a change of an index did. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from obdsd.errors import InputError

Progress = Callable[[str, int, int], None]
TORCH, ONNX = "torch", "onnx"
FEW = 32  # images that are embedded sooner than a model is made faster for them, and processes are started


def silent(stage: str, done: int, total: int) -> None:
    """No progress is shown."""


def unsaid(remark: str) -> None:
    """No remark is shown."""


def nothing(part: Any, device: Any) -> None:
    """No rows are known."""


def check_engine(engine: str, device: str) -> None:
    """Refuse what is no engine: `torch`; `onnx`, by which onnxruntime runs the model on the CPU; or the same by a file of the model that
    `obdsd export` wrote."""
    if engine not in (TORCH, ONNX) and not engine.endswith(".onnx"):
        raise InputError(f"engine={engine!r} must be torch, onnx, or a file that obdsd export wrote, such as model.onnx")
    if engine != TORCH and device not in ("auto", "cpu"):
        raise InputError(f"device={device} is for engine=torch, onnxruntime runs on the CPU here; leave one of them out")


@dataclass(frozen=True, kw_only=True)
class Pass:
    """How a model goes through items.

    Args:
        batch_size: Items at a time.
        workers: Processes that read items; default one a core, at most 8, for image files.
        device: Where the model runs; `auto` takes the accelerator if there is one.
        engine: What runs it, as `check_engine` says.
        progress: Told the stage, how much of it is done, and of how much.
        tell: Told in a sentence what is in a collection and not taken into the index.
        known: Given a part and a device: its rows, if they were computed before, else None.
    """

    batch_size: int = 64
    workers: int | None = None
    device: str = "auto"
    engine: str = TORCH
    progress: Progress = silent
    tell: Callable[[str], None] = unsaid
    known: Callable[[Any, Any], Any] = nothing

    def __post_init__(self) -> None:
        check_engine(self.engine, self.device)
        if self.engine != TORCH:
            object.__setattr__(self, "device", "cpu")


class Change(NamedTuple):
    """What a change did, in numbers of items: in the index now, new, changed, no longer there, and how many were embedded."""

    items: int
    new: int
    changed: int
    gone: int
    embedded: int
