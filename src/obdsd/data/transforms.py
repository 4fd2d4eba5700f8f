"""Images to tensors: what a backbone expects, and the paper's augmentation with randomness that is a function, not a state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms.v2.functional import center_crop_image, resize_image, resized_crop_image

from obdsd.data.batches import Draw
from obdsd.data.part import Part
from obdsd.preprocessing import Preprocessing
from obdsd.seeds import seed_of


def evaluation_transform(preprocessing: Preprocessing) -> Prepared:
    """Resize the shorter side, centre crop, and the numbers that the backbone expects: no randomness."""
    return Prepared(CentreCrop(preprocessing), ToNumbers(preprocessing))


def training_transform(preprocessing: Preprocessing, smallest: float = 0.08, flip: bool = True) -> Prepared:
    """A random crop as the numbers that the backbone expects."""
    return Prepared(RandomCrop(preprocessing, smallest, flip), ToNumbers(preprocessing))


class CentreCrop:
    """The middle of the image, resized: what a model sees at a test, as pixels."""

    def __init__(self, preprocessing: Preprocessing) -> None:
        self.preprocessing = preprocessing

    def __call__(self, image: Any) -> UInt8[Tensor, "3 h w"]:
        how = self.preprocessing
        return center_crop_image(resized(pixels_of(image), how.resize, how.interpolation), [how.size, how.size])


class RandomCrop:
    """Random resized crop (of at least `smallest` of the area; 1 keeps the whole image) and horizontal flip, as in the paper."""

    def __init__(self, preprocessing: Preprocessing, smallest: float = 0.08, flip: bool = True) -> None:
        self.smallest, self.flip = smallest, flip
        self.how: dict[str, Any] = {"size": [preprocessing.size] * 2, "interpolation": InterpolationMode(preprocessing.interpolation)}
        self.crop = v2.RandomResizedCrop(preprocessing.size, scale=(smallest, 1.0))

    def __call__(self, image: Any) -> UInt8[Tensor, "3 h w"]:
        pixels = resize_image(pixels_of(image), **self.how) if self.smallest == 1 else self._cropped(image)
        return pixels.flip(-1) if self.flip and torch.rand(1) < 0.5 else pixels

    def _cropped(self, image: Any) -> UInt8[Tensor, "3 h w"]:
        pixels = pixels_of(image)
        if not isinstance(image, Shrunk):
            return resized_crop_image(pixels, **self.crop.make_params([pixels]), **self.how)
        drawn = self.crop.make_params([pixels[:, :1, :1].expand(3, image.height, image.width)])  # as in the whole image
        top, height = _scaled(drawn["top"], drawn["height"], pixels.shape[1] / image.height)
        left, width = _scaled(drawn["left"], drawn["width"], pixels.shape[2] / image.width)
        return resized_crop_image(pixels, top, left, height, width, **self.how)


def _scaled(start: int, length: int, factor: float) -> tuple[int, int]:
    """A stretch of pixels in an image of another size: its start and its length."""
    first, end = round(start * factor), round((start + length) * factor)
    return min(first, end - 1) if end else 0, max(1, end - first)


class Shrunk(NamedTuple):
    """Pixels of an image that has more of them: so high and so wide is the whole."""

    pixels: Tensor
    height: int
    width: int


def pixels_of(image: Any) -> UInt8[Tensor, "3 h w"]:
    """The pixels of a PIL image; pixels stay as they are."""
    if isinstance(image, Shrunk):
        return image.pixels
    return image if isinstance(image, Tensor) else torch.from_numpy(np.array(image)).permute(2, 0, 1)


def resized(pixels: UInt8[Tensor, "3 h w"], side: int, interpolation: str) -> UInt8[Tensor, "3 h2 w2"]:
    """With a shorter side of that length."""
    return resize_image(pixels, [side], InterpolationMode(interpolation))


class ToNumbers:
    """(pixel · range/255 - mean) / std in the backbone's order of channels, as float32: of an image, or of a batch at once."""

    def __init__(self, preprocessing: Preprocessing) -> None:
        self.scale = preprocessing.range / 255
        self.flipped = preprocessing.channels == "bgr"
        self.mean = torch.tensor(preprocessing.mean)[:, None, None]
        self.std = torch.tensor(preprocessing.std)[:, None, None]

    def __call__(self, pixels: UInt8[Tensor, "*b 3 h w"]) -> Float[Tensor, "*b 3 h w"]:
        numbers = (pixels.flip(-3) if self.flipped else pixels).to(torch.float32, copy=True)
        return numbers.mul_(self.scale).sub_(self.mean.to(pixels.device)).div_(self.std.to(pixels.device))  # in place: memory is slow


@dataclass(frozen=True)
class Prepared:
    """A crop, as numbers."""

    crop: Callable[[Any], Tensor]
    numbers: ToNumbers

    def __call__(self, image: Any) -> Float[Tensor, "3 h w"]:
        return self.numbers(self.crop(image))


@dataclass(frozen=True, eq=False)
class Augmented:
    """A part whose items are asked for by `Draw`: (item, label, index), augmented by a randomness that depends on
    (seed, epoch, batch, position) alone, so that it is the same for any number of loader workers and ranks."""

    part: Part
    transform: Callable[[Any], Any]
    seed: int = 0
    shown: Callable[[Any], Any] | None = None
    """What a teacher sees of the item, if not what the student sees: a fourth entry."""
    another: bool = False
    """Whether that is drawn anew, or the student's own crop and flip."""

    def __len__(self) -> int:
        return len(self.part)

    def __getitem__(self, draw: Draw) -> tuple[Any, ...]:
        item, label, index = self.part[draw.item]
        place = self.seed, draw.epoch, draw.batch, draw.position
        drawn = _with_seed(seed_of(*place), self.transform, item), label, index
        if self.shown is None:
            return drawn
        return *drawn, _with_seed(seed_of(*place, *[1] * self.another), self.shown, item)


def _with_seed(seed: int, transform: Callable[[Any], Any], item: Any) -> Any:
    """What a transform makes of an item with torch's generator at a seed; then the generator is as it was before."""
    generator = torch.default_generator  # torch.manual_seed and fork_rng would look for every kind of accelerator, for each image
    before = generator.get_state()
    try:
        generator.manual_seed(seed)
        return transform(item)
    finally:
        generator.set_state(before)
