"""Where a model is: a model folder, a run, or a backbone with its weights. Imports no torch."""

from __future__ import annotations

from pathlib import Path

from obdsd.errors import InputError

FEATURES = "features"  # the backbone of rows that are given


def find(path: Path) -> Path | None:
    """The model folder that a path means: that folder, a run's, or the one that a model.safetensors lies in; None if there is none."""
    places = [path.parent] if path.name == "model.safetensors" else [path, path / "model"]
    return next((place for place in places if (place / "model.json").is_file()), None)


def located(source: str) -> Path | None:
    """The model folder that a source means; None for BACKBONE:WEIGHTS. Anything else is refused."""
    path = Path(source).expanduser()
    backbone, _, weights = source.partition(":")
    place = find(path)
    if place is not None or (weights and backbone != FEATURES and not path.exists()):
        return place
    what = "holds no model.json" if path.is_dir() else "is a file" if path.exists() else "does not exist"
    example = "resnet50" if path.exists() or "/" in source or weights else backbone
    raise InputError(f"model={source!r} {what}; it must be a model folder, a run folder, or BACKBONE:WEIGHTS, as {example}:imagenet")
