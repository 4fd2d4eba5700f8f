"""What a backbone expects of an image. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """What a backbone expects of an image: (pixel · range/255 - mean) / std on a centre crop. It travels with the weights.

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
