"""Loggers that people use, as extras; metrics.jsonl is written without them."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from obdsd.errors import InputError


def check_logger(name: str | None) -> None:
    """Refuse one whose package is not installed, before anything is begun."""
    if name is not None and importlib.util.find_spec(name) is None:
        raise InputError(f"logger={name} is not installed; pip install {name}")


def logger_of(name: str | None, folder: Path) -> Any:
    """A logger of Lightning's by name that writes into the run's folder, or None. Weights & Biases and MLflow heed their own
    environment variables (`WANDB_MODE`, `MLFLOW_TRACKING_URI`)."""
    if name is None:
        return None
    if name == "tensorboard":
        from lightning.fabric.loggers.tensorboard import TensorBoardLogger

        return TensorBoardLogger(folder, name="events", version="")
    from lightning.pytorch import loggers

    if name == "wandb":
        return loggers.WandbLogger(project="obdsd", name=folder.name, save_dir=folder)
    own = f"sqlite:///{(folder / 'mlflow.db').absolute()}"
    return loggers.MLFlowLogger("obdsd", run_name=folder.name, tracking_uri=os.environ.get("MLFLOW_TRACKING_URI", own))


def flat(line: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Nested numbers as `validation/recall@1`, for loggers."""
    numbers: dict[str, float] = {}
    for name, value in line.items():
        if isinstance(value, Mapping):
            numbers |= flat(value, f"{prefix}{name}/")
        elif isinstance(value, (int, float)):
            numbers[prefix + name] = value
    return numbers
