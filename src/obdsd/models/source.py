"""A model by what people write on a command line."""

from __future__ import annotations

import difflib
from pathlib import Path

import timm

from obdsd.errors import InputError
from obdsd.models.backbones import FEATURES, TINY_CONV
from obdsd.models.bn_inception import BN_INCEPTION
from obdsd.models.embedder import Embedder


def open_model(source: str) -> Embedder:
    """A model folder, a run folder (its `model/`), or `BACKBONE:WEIGHTS` (`tf_efficientnet_lite0:offline`, `resnet50:imagenet`,
    `resnet50:weights.pth`), whose pooled features are taken as they are; in eval mode."""
    folder = Path(source).expanduser()
    for place in (folder, folder / "model"):
        if (place / "model.json").is_file():
            return Embedder.load(place)
    backbone, _, weights = source.partition(":")
    if weights and backbone != FEATURES and not folder.exists():
        return Embedder(backbone, head="none", weights=str(Path(weights).expanduser())).eval()
    what = "holds no model.json" if folder.is_dir() else "is a file" if folder.exists() else "does not exist"
    rule = f"model={source!r} {what}; it must be a model folder, a run folder, or BACKBONE:WEIGHTS"
    close = difflib.get_close_matches(backbone, [TINY_CONV, BN_INCEPTION, *timm.list_models()], n=1)
    weights = "none" if close == [TINY_CONV] else "imagenet"
    raise InputError(f"{rule}, {f'did you mean {close[0]}:{weights}?' if close else 'such as resnet50:imagenet'}")
