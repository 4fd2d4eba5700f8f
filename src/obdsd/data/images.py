"""Image files, read with care: any mode becomes RGB, and what cannot be read names its file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from obdsd.errors import InputError

Box = tuple[int, int, int, int]


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Files below a folder, each with an optional crop box (x1, y1, x2, y2)."""

    root: Path
    paths: Sequence[str]
    boxes: Sequence[Box | None] | None = None

    def __len__(self) -> int:
        return len(self.paths)

    def name(self, position: int) -> str:
        return self.paths[position]

    def read(self, position: int) -> Image.Image:
        image = read_image(self.root / self.paths[position])
        box = None if self.boxes is None else self.boxes[position]
        return image if box is None else image.crop(box)


def read_image(path: Path) -> Image.Image:
    """An RGB image: the first frame of an animation, 16 bits scaled to 8, transparency on white, upright as its camera says."""
    try:
        with Image.open(path) as image:
            image.load()
            return _to_rgb(ImageOps.exif_transpose(image))
    except FileNotFoundError:
        raise InputError(f"{path}: no such image; check the path or the manifest") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as damage:
        raise InputError(f"{path}: cannot be read as an image ({' '.join(str(damage).split())}); replace or remove it") from damage


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16") or image.mode in ("I", "F"):
        values = np.asarray(image).astype(np.float64)
        top = 65535.0 if image.mode.startswith("I;16") or values.max(initial=0) > 255 else 255.0  # 32-bit files do not say
        return Image.fromarray((values.clip(0, top) / top * 255).round().astype(np.uint8)).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        layer = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
    return image.convert("RGB")
