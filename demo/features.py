"""Frozen features of the built-in letters, computed once."""

from __future__ import annotations

import os
from pathlib import Path

from obdsd import cli
from obdsd.models import Embedder

FOLDER = Path(__file__).parent / "out"
SIZE = 64


def features() -> str:
    """The path of an embeddings file: letters through a network that was trained on photographs and came with pip."""
    file = FOLDER / "features.npz"
    if not file.exists():
        print(f"1. features of 7,840 letters by tf_efficientnet_lite0 at {SIZE} px (a minute or so)", flush=True)
        Embedder("tf_efficientnet_lite0", pretrained="offline", head="none", size=SIZE).save(FOLDER / "backbone")
        if cli.main(["embed", str(FOLDER / "backbone"), "glyphs", "--out", str(file), "--batch-size", "64"]):
            raise SystemExit("the features could not be computed")
    return os.path.relpath(file)
