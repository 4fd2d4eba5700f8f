"""What a backbone expects of an image. Imports no torch."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from obdsd.errors import InputError

LARGEST_IMAGE = 4096  # a typing error must not allocate a terabyte


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

    def __post_init__(self) -> None:
        for name in ("size", "resize"):
            check_length(f"preprocessing.{name}", getattr(self, name), LARGEST_IMAGE)
        check_choice("preprocessing.channels", self.channels, ("rgb", "bgr"))
        check_choice("preprocessing.interpolation", self.interpolation, ("bilinear", "bicubic"))
        for name in ("mean", "std"):
            numbers = getattr(self, name)
            if not isinstance(numbers, tuple) or len(numbers) != 3:
                raise InputError(f"preprocessing.{name}={reprlib.repr(numbers)} must be three numbers; give one a channel")
            for number in numbers:
                _check_number(f"preprocessing.{name}", number, positive=name == "std")
        _check_number("preprocessing.range", self.range, positive=True)

    def at(self, size: int) -> Preprocessing:
        """The same at another size, with the same margin around the centre crop."""
        return replace(self, size=size, resize=size * self.resize // self.size)


def check_choice(field: str, value: object, choices: Sequence[str]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise InputError(f"{field}={reprlib.repr(value)} is no choice; use {' or '.join(choices)}")


def check_length(field: str, value: object, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise InputError(f"{field}={reprlib.repr(value)} must be a whole number in 1..{most}; try a power of two")


def _check_number(field: str, value: object, positive: bool) -> None:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not (1e-6 if positive else -1e6) <= value <= 1e6:
        raise InputError(f"{field}={reprlib.repr(value)} must be a {'positive ' if positive else ''}number; mend it")
