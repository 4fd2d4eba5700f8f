"""Images to tensors: what a backbone expects, and the paper's augmentation with randomness that is a function, not a state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torchvision.transforms import InterpolationMode, v2

from obdsd.data.batches import Draw
from obdsd.data.part import Part
from obdsd.preprocessing import Preprocessing
from obdsd.seeds import seed_of


def evaluation_transform(preprocessing: Preprocessing) -> v2.Transform:
    """Resize the shorter side, centre crop, and the numbers that the backbone expects: no randomness."""
    how = InterpolationMode(preprocessing.interpolation)
    crop = [v2.Resize(preprocessing.resize, how, antialias=True), v2.CenterCrop(preprocessing.size)]
    return v2.Compose([v2.ToImage(), *crop, ToNumbers(preprocessing)])


def training_transform(preprocessing: Preprocessing, smallest: float = 0.08, flip: bool = True) -> v2.Transform:
    """Random resized crop (of at least `smallest` of the area; 1 keeps the whole image) and horizontal flip, as in the paper."""
    how, size = InterpolationMode(preprocessing.interpolation), preprocessing.size
    if smallest == 1:
        crop: v2.Transform = v2.Resize((size, size), how, antialias=True)
    else:
        crop = v2.RandomResizedCrop(size, scale=(smallest, 1.0), interpolation=how, antialias=True)
    return v2.Compose([v2.ToImage(), crop, *([v2.RandomHorizontalFlip()] if flip else []), ToNumbers(preprocessing)])


class ToNumbers(v2.Transform):
    """(pixel · range/255 - mean) / std in the backbone's order of channels, as float32."""

    def __init__(self, preprocessing: Preprocessing) -> None:
        super().__init__()
        self.scale = preprocessing.range / 255
        self.flipped = preprocessing.channels == "bgr"
        self.mean = torch.tensor(preprocessing.mean)[:, None, None]
        self.std = torch.tensor(preprocessing.std)[:, None, None]

    def transform(self, inpt: Any, params: dict[str, Any]) -> Float[Tensor, "3 h w"]:
        pixels = inpt.as_subclass(Tensor).to(torch.float32)
        return ((pixels.flip(0) if self.flipped else pixels) * self.scale - self.mean) / self.std


@dataclass(frozen=True, eq=False)
class Augmented:
    """A part whose items are asked for by `Draw`: (item, label, index), augmented by a randomness that depends on
    (seed, epoch, batch, position) alone, so that it is the same for any number of loader workers and ranks."""

    part: Part
    transform: Callable[[Any], Any]
    seed: int = 0

    def __len__(self) -> int:
        return len(self.part)

    def __getitem__(self, draw: Draw) -> tuple[Any, int, int]:
        item, label, index = self.part[draw.item]
        with torch.random.fork_rng(devices=[]):
            # torch.manual_seed would look for every kind of accelerator, for each image
            torch.default_generator.manual_seed(seed_of(self.seed, draw.epoch, draw.batch, draw.position))
            return self.transform(item), label, index
