"""Where the items of a collection come from: image files and rows of a matrix. (Rendered letters are in `glyphs.py`.)"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from obdsd.errors import InputError
from obdsd.files import check_file, file_digest

Box = tuple[int, int, int, int]


@runtime_checkable
class Items(Protocol):
    """What a collection asks of its items, by their positions."""

    def read(self, position: int) -> Any:
        """The item itself: an RGB image (PIL) or a float32 tensor (dim,). A damaged one raises an `InputError` that names it."""

    def name(self, position: int) -> str:
        """What people call it: its path below the collection's folder, or its row."""

    def content(self, position: int) -> bytes:
        """What it is made of, which tells it from others whatever they are called; of a large file a sample."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a matrix as items."""

    matrix: NDArray[np.float32]
    names: NDArray[Any] | None = None

    def read(self, position: int) -> Any:
        import torch  # only here: opening data, and reading the settings that fit it, needs no torch

        return torch.from_numpy(self.matrix[position])

    def name(self, position: int) -> str:
        return f"row {position}" if self.names is None else str(self.names[position])

    def content(self, position: int) -> bytes:
        return self.matrix[position].tobytes()


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Files below a folder, each with an optional crop box (x1, y1, x2, y2)."""

    root: Path
    paths: Sequence[str]
    boxes: Sequence[Box | None] | None = None
    on_disk = True  # reading them is work for processes of their own

    def name(self, position: int) -> str:
        """The path; crops of one image are told apart by their boxes."""
        path, box = self.paths[position], self._box(position)
        return path if box is None or self._uses[path] == 1 else f"{path} {box}"

    def read(self, position: int) -> Image.Image:
        path, box = self.root / self.paths[position], self._box(position)
        image = read_image(path)
        if box is None:
            return image
        if box[2] > image.width or box[3] > image.height:
            raise InputError(f"{path}: box={box} reaches beyond the image of {image.width} x {image.height} pixels; mend the box")
        return image.crop(box)

    def check(self, position: int) -> None:
        """Raise what `read` raises, in a fraction of its time."""
        if self._box(position) is None:
            read_image(self.root / self.paths[position], side=1)
        else:
            self.read(position)

    def _box(self, position: int) -> Box | None:
        return None if self.boxes is None else self.boxes[position]

    @cached_property
    def _uses(self) -> Counter[str]:
        return Counter(self.paths)

    def content(self, position: int) -> bytes:
        """A digest of the box and the whole file: of parts of a file, plain margins may be alike in different pictures."""
        path = self.root / self.paths[position]
        check_file(path)
        return file_digest(path, repr(self._box(position)).encode())


def read_image(path: Path, side: int | None = None) -> Image.Image:
    """An image in its usual form (see `upright_rgb`).

    A large JPEG may be asked for smaller, with sides of at least `side` or an eighth of its own: all its bytes are decoded, few pixels are
    made."""
    check_file(path)
    try:
        with Image.open(path) as image:
            if side is not None:
                image.draft(None, (side, side))
            return upright_rgb(image)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as damage:
        reason = " ".join(str(damage).split()).removesuffix(" (0 bytes not processed)")
        raise InputError(f"{path}: cannot be read as an image ({reason}); replace or remove it") from damage


def upright_rgb(image: Image.Image) -> Image.Image:
    """An RGB image: the first frame of an animation, 16 bits scaled to 8, transparency on white, upright as its camera says."""
    image.load()
    ImageOps.exif_transpose(image, in_place=True)
    return _to_rgb(image)


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16") or image.mode in ("I", "F"):
        values = np.asarray(image).astype(np.float64)
        top = 65535.0 if image.mode.startswith("I;16") or values.max(initial=0) > 255 else 255.0  # 32-bit files do not say
        return Image.fromarray((values.clip(0, top) / top * 255).round().astype(np.uint8)).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        layer = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
    return image.convert("RGB")
