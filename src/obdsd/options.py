"""The options of every command as frozen dataclasses: the command line is made of them. Imports no torch, so that --help is instant."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class InfoOptions:
    """Options of `obdsd info`.

    Args:
        format: A table for people or JSON for programs and bug reports.
    """

    format: Literal["table", "json"] = "table"


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Options of `obdsd data`.

    Args:
        action: What to do; `check` reads every item and names what is wrong.
        data: The collection, NAME:PATH (cub200, cars196, sop, inshop, folder, manifest, embeddings), glyphs, or an embeddings file.
        seed: Splits the classes where the data give no split.
        test_fraction: Share of the classes that test where the data give no split.
        allow_incomplete: Accept a benchmark with missing classes or files.
    """

    action: Literal["check"] = field(kw_only=False)
    data: str = field(kw_only=False)
    seed: int = 0
    test_fraction: float = 0.5
    allow_incomplete: bool = False


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """What a backbone expects of an image: (pixel · range/255 - mean) / std on a centre crop; it travels with the weights.

    Args:
        size: Side of the square that the model sees.
        resize: Length of the shorter side before the centre crop.
        mean: Subtracted from each channel, in the units of `range`.
        std: Divides each channel, in the units of `range`.
        channels: Order of the channels.
        range: Pixels run from 0 to this before mean and std.
        interpolation: How images are resized.
    """

    size: int = 224
    resize: int = 256
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    channels: Literal["rgb", "bgr"] = "rgb"
    range: float = 1.0
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
