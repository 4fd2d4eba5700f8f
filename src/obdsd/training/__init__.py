"""Training: the only room that knows the training engine. Names load on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from obdsd.errors import explain_missing

if TYPE_CHECKING:
    from obdsd.training.loop import train
    from obdsd.training.run_folder import RunRecord
    from obdsd.training.trainer import Trainer

__all__ = ["RunRecord", "Trainer", "train"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'obdsd.training' has no attribute {name!r}")
    with explain_missing():
        from obdsd.training import loop, run_folder, trainer
    return {"RunRecord": run_folder.RunRecord, "Trainer": trainer.Trainer, "train": loop.train}[name]
