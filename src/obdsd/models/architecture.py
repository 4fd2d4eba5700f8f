"""What an embedder is made of, as plain values with their rules: the same for arguments and for a model.json."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from obdsd.method.checks import require
from obdsd.method.pooling import Pooling
from obdsd.models.backbones import FEATURES

Head = Literal["linear", "two-layer", "none"]
BatchNorm = Literal["frozen", "train"]
# A typing error must not allocate a terabyte.
LONGEST_ROW = 65536
LARGEST_IMAGE = 4096


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

    def __post_init__(self) -> None:
        require(isinstance(self.backbone, str), "backbone", reprlib.repr(self.backbone), "must be a string", "give its name")
        check_choice("pooling", self.pooling, get_args(Pooling))
        check_choice("head", self.head, get_args(Head))
        check_choice("batchnorm", self.batchnorm, get_args(BatchNorm))
        for field, most in (("features", LONGEST_ROW), ("size", LARGEST_IMAGE), ("hidden", LONGEST_ROW), ("dim", LONGEST_ROW)):
            if getattr(self, field) is not None:
                check_length(field, getattr(self, field), most)
        no_head = self.head == "none"
        require(no_head == (self.dim is None), "dim", self.dim, f"does not go with head={self.head}", "give a dim with a head, else None")
        fits = self.hidden is None or self.head == "two-layer"
        require(fits, "hidden", self.hidden, f"does not go with head={self.head}", "use head=two-layer or leave it out")
        rows = self.backbone == FEATURES
        require(rows == (self.features is not None), "features", self.features, f"goes with backbone={FEATURES}", "give both or neither")
        require(not rows or self.pooling == "avg", "pooling", self.pooling, "needs a map, features are rows", "leave pooling out")
        require(not rows or self.size is None, "size", self.size, "is of images, features are rows", "leave size out")


def check_choice(field: str, value: object, choices: Sequence[str]) -> None:
    require(isinstance(value, str) and value in choices, field, reprlib.repr(value), "is no choice", f"use {' or '.join(choices)}")


def check_length(field: str, value: object, most: int) -> None:
    fits = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most
    require(fits, field, reprlib.repr(value), f"must be a whole number in 1..{most}", "try a power of two")
