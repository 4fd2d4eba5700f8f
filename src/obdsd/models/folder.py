"""What an embedder is made of, and how it lies on disk: `model.safetensors` beside `model.json`. Reading trusts neither."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, get_args

import safetensors.torch
from torch import Tensor

from obdsd.errors import InputError
from obdsd.files import check_format, replacing, write_json
from obdsd.method.checks import refuse, require
from obdsd.method.pooling import Pooling
from obdsd.models.places import FEATURES, find
from obdsd.models.weights import read_tensors
from obdsd.preprocessing import LARGEST_IMAGE, Preprocessing, check_choice, check_length
from obdsd.provenance import TrainedOn, read_made_by

FORMAT = 8
EARLIER: dict[int, dict[str, Any]] = {7: {}}
EARLIER[6] = {**EARLIER[7], "branches": None}
EARLIER[5] = {**EARLIER[6], "feature_power": 1.0}
EARLIER[4] = {**EARLIER[5], "slices": 1, "slice_weights": []}
EARLIER[3] = {**EARLIER[4], "made_by": None}
EARLIER[2] = {**EARLIER[3], "unit_features": False}
EARLIER[1] = {**EARLIER[2], "trained_on": None}
"""Formats that are still read, with what they did not say."""
LONGEST_ROW = 65536  # a typing error must not allocate a terabyte
Head = Literal["linear", "two-layer", "composed", "relational", "none"]
BatchNorm = Literal["frozen", "train"]


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """An embedder without its weights and its preprocessing; `Embedder` explains the fields."""

    backbone: str
    features: int | None
    size: int | None
    pooling: Pooling
    head: Head
    hidden: int | None
    dim: int | None
    batchnorm: BatchNorm
    unit_features: bool
    slices: int = field(repr=False)  # a model without slices or branches keeps the digest that it had before there were any
    slice_weights: Sequence[float] = field(repr=False)  # () is 1 for all
    feature_power: float = field(repr=False)  # likewise
    branches: int | None = field(repr=False)

    def __post_init__(self) -> None:
        require(isinstance(self.backbone, str), "backbone", reprlib.repr(self.backbone), "must be a string", "give its name")
        check_choice("pooling", self.pooling, get_args(Pooling))
        check_choice("head", self.head, get_args(Head))
        check_choice("batchnorm", self.batchnorm, get_args(BatchNorm))
        for name, most in (("features", LONGEST_ROW), ("size", LARGEST_IMAGE), ("hidden", LONGEST_ROW), ("dim", LONGEST_ROW)):
            if getattr(self, name) is not None:
                check_length(name, getattr(self, name), most)
        is_bool = isinstance(self.unit_features, bool)
        require(is_bool, "unit_features", reprlib.repr(self.unit_features), "must be true or false", "save the model again")
        no_head = self.head == "none"
        require(no_head == (self.dim is None), "dim", self.dim, f"does not go with head={self.head}", "give a dim with a head, else None")
        fits = self.hidden is None or self.head == "two-layer"
        require(fits, "hidden", self.hidden, f"does not go with head={self.head}", "use head=two-layer or leave it out")
        self._check_slices()
        self._check_branches()
        power = type(self.feature_power) in (int, float) and 0 < self.feature_power <= 10
        require(power, "feature_power", reprlib.repr(self.feature_power), "must be a number above 0, 10 at most", "try 0.5")
        object.__setattr__(self, "feature_power", float(self.feature_power))
        rows = self.backbone == FEATURES
        require(rows == (self.features is not None), "features", self.features, f"goes with backbone={FEATURES}", "give both or neither")
        require(not rows or self.pooling == "avg", "pooling", self.pooling, "needs a map, features are rows", "leave pooling out")
        require(not rows or self.size is None, "size", self.size, "is of images, features are rows", "leave size out")

    def _check_slices(self) -> None:
        check_length("slices", self.slices, LONGEST_ROW)
        remedy = "use slices=1 or a head whose length can be divided"
        require(self.slices == 1 or (self.dim or 1) % self.slices == 0, "slices", self.slices, f"must divide dim={self.dim}", remedy)
        weights = self.slice_weights
        numbers = isinstance(weights, (list, tuple)) and all(type(each) in (int, float) and 1e-6 <= each <= 1e6 for each in weights)
        require(numbers, "slice_weights", reprlib.repr(weights), "must be positive numbers", "give one a slice, as 0.5,1,1,1")
        object.__setattr__(self, "slice_weights", tuple(map(float, weights)))
        mixes = self.head != "composed" or self.slices > 1
        require(mixes, "slices", self.slices, "leaves head=composed nothing to mix", "use slices=4")
        fits = not weights or 1 < self.slices == len(weights)
        require(fits, "slice_weights", reprlib.repr(weights), f"must be one a slice, of slices={self.slices}", "or leave it out: all are 1")

    def _check_branches(self) -> None:
        own, dim = self.branches, self.dim or 1
        fits = (own is not None) == (self.head == "relational")
        require(fits, "branches", own, f"does not go with head={self.head}", "give both branches and head=relational, or neither")
        if own is not None:
            check_length("branches", own, LONGEST_ROW)
            require(dim % own == 0, "branches", own, f"must divide dim={dim}", "use another number of branches")


@dataclass(frozen=True, kw_only=True)
class Description:
    """What model.json holds."""

    architecture: Architecture
    preprocessing: Preprocessing | None
    trained_on: TrainedOn | None
    made_by: dict[str, str | int] | None  # how the rows were made that a head takes


def write(folder: Path, model: Description, tensors: Mapping[str, Tensor]) -> None:
    """Write both files, each whole or not at all."""
    versions = {package: version(package) for package in ("obdsd", "torch", "timm")}
    parts = asdict(model)
    record = {"format": FORMAT, **parts.pop("architecture"), "versions": versions, **parts}
    on_cpu = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
    with replacing(folder / "model.safetensors") as file:
        file.write(safetensors.torch.save(on_cpu))
    write_json(folder / "model.json", record)


def check_pretrained(pretrained: str | None) -> None:
    """Refuse weights that are no word, no model folder and no file that can be read, before anything is built for them."""
    if pretrained not in (None, "none", "imagenet", "offline") and find(Path(pretrained).expanduser()) is None:
        read_tensors(Path(pretrained).expanduser())


def read(folder: Path) -> tuple[Description, dict[str, Tensor]]:
    """The checked content of a model folder."""
    path = folder / "model.json"
    if not path.is_file():
        raise InputError(f"{path}: no such file; give a folder that Embedder.save wrote")
    try:
        record = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as damage:
        raise InputError(f"{path}: is not JSON ({' '.join(str(damage).split())}); save the model again") from damage
    if isinstance(record, dict):
        if isinstance(record.get("format"), int) and record["format"] in EARLIER:
            record = {**record, **EARLIER[record["format"]], "format": FORMAT}
            if isinstance(record["trained_on"], dict) and record.get("preprocessing") is not None:  # image files were known by samples
                record["trained_on"] = {**record["trained_on"], "items": {}}
        check_format(path, "model", record, FORMAT, "save the model again")
    try:
        model = _checked(record)
    except InputError as mistake:
        raise InputError(f"{path}: {mistake}") from None
    return model, read_tensors(folder / "model.safetensors")


def _checked(record: object) -> Description:
    own = [field.name for field in fields(Architecture)]
    record = _exactly("model.json", record, ["format", *own, "preprocessing", "trained_on", "made_by", "versions"])
    architecture = Architecture(**{name: record[name] for name in own})
    images = record["preprocessing"]
    rows = architecture.backbone == FEATURES
    require(rows == (images is None), "preprocessing", reprlib.repr(images), "must be given for images only", "save the model again")
    preprocessing = None
    if images is not None:
        given = _exactly("preprocessing", images, [field.name for field in fields(Preprocessing)])
        values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
        preprocessing = Preprocessing(**values)
    seen, made_by = TrainedOn.read(record["trained_on"]), read_made_by(record["made_by"])
    return Description(architecture=architecture, preprocessing=preprocessing, trained_on=seen, made_by=made_by)


def _exactly(where: str, record: object, names: Sequence[str]) -> dict[str, Any]:
    """The record, if it is one with just these fields."""
    if not isinstance(record, dict):
        refuse(where, reprlib.repr(record), "must be an object with named fields", "save the model again")
    missing, unknown = [name for name in names if name not in record], sorted(set(record) - set(names))
    require(not missing, where, f"without {', '.join(missing)}", "is incomplete", "save the model again")
    require(not unknown, where, f"with {reprlib.repr(unknown)}", "has fields that are not known", "update obdsd or remove them")
    return record
