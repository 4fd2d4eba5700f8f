"""A model on disk: `model.safetensors` beside `model.json`. Reading trusts neither and executes nothing."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from obdsd.errors import InputError
from obdsd.files import replacing, write_json
from obdsd.method.checks import refuse, require
from obdsd.models.architecture import LARGEST_IMAGE, Architecture, check_choice, check_length
from obdsd.models.backbones import FEATURES
from obdsd.models.weights import read_tensors
from obdsd.preprocessing import Preprocessing

FORMAT = 1


def write(folder: Path, architecture: Architecture, preprocessing: Preprocessing | None, tensors: Mapping[str, Tensor]) -> None:
    """Write both files, each whole or not at all."""
    versions = {package: version(package) for package in ("obdsd", "torch", "timm")}
    images = None if preprocessing is None else asdict(preprocessing)
    record = {"format": FORMAT, **asdict(architecture), "preprocessing": images, "versions": versions}
    on_cpu = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
    with replacing(folder / "model.safetensors") as file:
        file.write(safetensors.torch.save(on_cpu))
    write_json(folder / "model.json", record)


def read(folder: Path) -> tuple[Architecture, Preprocessing | None, dict[str, Tensor]]:
    """The checked content of a model folder."""
    path = folder / "model.json"
    if not path.is_file():
        raise InputError(f"{path}: no such file; give a folder that Embedder.save wrote")
    try:
        record = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as damage:
        raise InputError(f"{path}: is not JSON ({' '.join(str(damage).split())}); save the model again") from damage
    try:
        architecture, preprocessing = _checked(record)
    except InputError as mistake:
        raise InputError(f"{path}: {mistake}") from None
    tensors = read_tensors(folder / "model.safetensors")
    _check_head(architecture, tensors, folder)
    return architecture, preprocessing, tensors


def _checked(record: object) -> tuple[Architecture, Preprocessing | None]:
    own = [field.name for field in fields(Architecture)]
    record = _exactly("model.json", record, ["format", *own, "preprocessing", "versions"])
    require(record["format"] == FORMAT, "format", reprlib.repr(record["format"]), f"must be {FORMAT}", "update obdsd or save again")
    architecture = Architecture(**{name: record[name] for name in own})
    images = record["preprocessing"]
    rows = architecture.backbone == FEATURES
    require(rows == (images is None), "preprocessing", reprlib.repr(images), "must be given for images only", "save the model again")
    return architecture, None if images is None else _checked_preprocessing(images)


def _checked_preprocessing(record: object) -> Preprocessing:
    record = _exactly("preprocessing", record, [field.name for field in fields(Preprocessing)])
    for field in ("size", "resize"):
        check_length(f"preprocessing.{field}", record[field], LARGEST_IMAGE)
    for field in ("mean", "std"):
        numbers = record[field]
        three = isinstance(numbers, list) and len(numbers) == 3
        require(three, f"preprocessing.{field}", reprlib.repr(numbers), "must be three numbers", "give one a channel")
        for number in numbers:
            _check_number(f"preprocessing.{field}", number, positive=field == "std")
    _check_number("preprocessing.range", record["range"], positive=True)
    check_choice("preprocessing.channels", record["channels"], ("rgb", "bgr"))
    check_choice("preprocessing.interpolation", record["interpolation"], ("bilinear", "bicubic"))
    lists = {field: tuple(float(number) for number in record[field]) for field in ("mean", "std")}
    return Preprocessing(**{**record, **lists, "range": float(record["range"])})


def _exactly(where: str, record: object, names: Sequence[str]) -> dict[str, Any]:
    """The record, if it is one with just these fields."""
    if not isinstance(record, dict):
        refuse(where, reprlib.repr(record), "must be an object with named fields", "save the model again")
    missing, unknown = [name for name in names if name not in record], sorted(set(record) - set(names))
    require(not missing, where, f"without {', '.join(missing)}", "is incomplete", "save the model again")
    require(not unknown, where, f"with {reprlib.repr(unknown)}", "has fields that are not known", "update obdsd or remove them")
    return record


def _check_number(field: str, value: object, positive: bool) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    ok = number and (1e-6 if positive else -1e6) <= value <= 1e6  # type: ignore[operator]
    require(ok, field, reprlib.repr(value), "must be a positive number" if positive else "must be a number", "mend it")


def _check_head(architecture: Architecture, tensors: Mapping[str, Tensor], folder: Path) -> None:
    """The head's layers must be those of the file before any is built: sizes that only model.json claims would be allocated."""
    shapes = [tuple(tensor.shape) for key, tensor in tensors.items() if key.startswith("head.") and tensor.ndim == 2]
    layers = {"none": 0, "linear": 1, "two-layer": 2}[architecture.head]
    agree = len(shapes) == layers
    if agree and layers:
        agree = shapes[-1][0] == architecture.dim and architecture.features in (None, shapes[0][1])
        agree &= architecture.hidden in (None, shapes[0][0])
    if not agree:
        claim = f"head={architecture.head} hidden={architecture.hidden} dim={architecture.dim} features={architecture.features}"
        raise InputError(f"{folder}: model.json says {claim}, model.safetensors has head layers {shapes}; they must agree, save again")
