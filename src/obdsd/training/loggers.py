"""Loggers that people use, as extras; metrics.jsonl is written without them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from obdsd.errors import InputError


def logger_of(name: str | None, folder: Path) -> Any:
    """A logger of Lightning's by name, or None; one whose package is missing is refused."""
    if name is None:
        return None
    try:
        if name == "tensorboard":
            from lightning.fabric.loggers.tensorboard import TensorBoardLogger

            return TensorBoardLogger(folder, name="events", version="")
        if name == "wandb":
            from lightning.pytorch.loggers import WandbLogger

            return WandbLogger(project="obdsd", name=folder.name, save_dir=folder)
        from lightning.pytorch.loggers import MLFlowLogger

        return MLFlowLogger("obdsd", run_name=folder.name, save_dir=str(folder / "mlruns"))
    except ModuleNotFoundError as missing:
        raise InputError(f'logger={name} is not installed; pip install "obdsd[loggers]"') from missing
