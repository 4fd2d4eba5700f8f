"""Built-in images without a download: letters in many faces, seeded distortions; train on Latin, test on scripts never seen."""

from __future__ import annotations

import itertools
import unicodedata
import warnings
import zipfile
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from obdsd.data.collection import Collection, split_parts, training_defaults
from obdsd.errors import InputError
from obdsd.files import cache_folder, replacing

VERSION = 1  # of the rendering; part of the cache file's name and of every seed
SIZE = 32
INSTANCES = 14
CLASSES = {"train": 240, "test": 320}
SCRIPTS = {"train": ("LATIN",), "test": ("GREEK", "CYRILLIC", "ARMENIAN", "GEORGIAN")}
LOOK_ALIKE = 0.89
"""Two letters look alike if their pixels correlate more than this: DejaVu Sans, fitted into the image, blurred by 1.5 pixels."""

_CANVAS = 3 * SIZE  # drawn large, then reduced
_COMMON = "DejaVuSans"
_UNICODE = ("DejaVuSans", "DejaVuSansMono", "DejaVuSerif", "STIXGeneral")
_TEX = ("cmb10", "cmmi10", "cmr10", "cmss10", "cmti10", "cmtt10")  # their layouts agree with Unicode on A-Z and a-z alone


@dataclass(frozen=True, eq=False)
class GlyphImages:
    """Rendered letters, grey, (n, 32, 32)."""

    pixels: NDArray[np.uint8]
    names: Sequence[str]

    def read(self, position: int) -> Image.Image:
        return Image.fromarray(self.pixels[position]).convert("RGB")

    def name(self, position: int) -> str:
        return self.names[position]

    def content(self, position: int) -> bytes:
        return self.pixels[position].tobytes()


@training_defaults(epochs=20, backbone="tiny-conv", lr=1e-3, crop=0.7, flip=False, weight=1.0)
def glyphs(cache: Path | None = None) -> Collection:
    """Built-in letters: 240 Latin classes train, 320 Greek, Cyrillic, Armenian and Georgian ones test; 14 images each, 32×32.

    They are rendered once, then read from `cache` (default: the user's cache folder).
    """
    file = (cache_folder() if cache is None else cache) / f"glyphs-v{VERSION}.npz"
    rendered = _load(file)
    if rendered is None:
        rendered = _render()
        try:
            with replacing(file) as archive:  # whole or not at all, also for a process that reads it now
                np.savez(archive, **rendered)  # type: ignore[arg-type]
        except InputError as problem:
            warnings.warn(f"glyphs are rendered anew each time: {problem}", stacklevel=2)
    letters = [chr(code) for code in rendered["codes"]]
    number = itertools.cycle(range(INSTANCES))
    names = [f"{_code(letter)}/{face}-{i:02d}" for letter, face, i in zip(letters, rendered["faces"], number, strict=False)]
    items = GlyphImages(rendered["pixels"], names)
    labels = [f"{_code(letter)} {unicodedata.name(letter)}" for letter in letters]
    splits = ["train" if _script(letter) in SCRIPTS["train"] else "test" for letter in letters]
    return Collection("glyphs", split_parts("glyphs", items, labels, splits, as_listed=True))


def _code(letter: str) -> str:
    return f"U+{ord(letter):04X}"


def _script(letter: str) -> str:
    return unicodedata.name(letter, "").split(" ")[0]


def _load(file: Path) -> dict[str, NDArray[Any]] | None:
    """The cached rendering, or None if there is none or it is damaged."""
    try:
        with zipfile.ZipFile(file) as archive:
            if archive.testzip() is not None:
                return None
        with np.load(file) as stored:
            return {key: stored[key] for key in ("pixels", "codes", "faces")}
    except (OSError, ValueError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile):  # what a damaged archive is known to raise
        return None


def _render() -> dict[str, NDArray[Any]]:
    faces = _faces()
    letters = _choose(faces)
    fonts = {name: _font(name) for name in faces}
    pixels, codes, names = [], [], []
    for letter in letters:
        own = [name for name, known in faces.items() if letter in known]
        order = np.random.default_rng([VERSION, ord(letter)]).permutation(len(own))
        for i in range(INSTANCES):
            name = own[order[i % len(own)]]
            pixels.append(_distorted(_draw(letter, fonts[name]), np.random.default_rng([VERSION, ord(letter), i])))
            codes.append(ord(letter))
            names.append(name)
    return {"pixels": np.stack(pixels), "codes": np.array(codes, dtype=np.int32), "faces": np.array(names)}


def _font_file(name: str) -> Path:
    import matplotlib

    return Path(matplotlib.get_data_path(), "fonts", "ttf", f"{name}.ttf")


def _font(name: str) -> ImageFont.FreeTypeFont:
    # the basic layout needs no library that some machines lack
    return ImageFont.truetype(_font_file(name), 96, layout_engine=ImageFont.Layout.BASIC)


def _faces() -> dict[str, set[str]]:
    """The letters that each of matplotlib's text faces truly has."""
    from fontTools.ttLib import TTFont

    faces = {}
    for file in sorted(_font_file("*").parent.glob("*.ttf")):
        family, tex = file.stem.split("-")[0], file.stem in _TEX
        if tex or family in _UNICODE or file.stem.startswith("STIXGeneral"):
            with TTFont(file, lazy=True) as font:
                letters = {chr(code) for code in font.getBestCmap()}
            faces[file.stem] = {c for c in letters if _is_letter(c) and (c.isascii() or not tex)}
    return faces


def _is_letter(c: str) -> bool:
    """A letter of our scripts in its own right: no small raised modifier, no ligature or other variant of a plain letter."""
    scripts = itertools.chain(*SCRIPTS.values())
    return unicodedata.category(c) in ("Lu", "Ll", "Lo") and _script(c) in scripts and not unicodedata.decomposition(c).startswith("<")


def _choose(faces: Mapping[str, set[str]]) -> list[str]:
    """Latin first, then the scripts of the test side in turn; within a script the letters in many faces first.

    A letter that looks like one chosen before it, on either side, is left out.
    """
    font = _font(_COMMON)
    common = sorted(faces[_COMMON], key=lambda c: (-sum(c in known for known in faces.values()), c))
    chosen: dict[str, NDArray[np.float32]] = {}

    def is_new(letter: str) -> bool:
        return not chosen or float(np.max(np.stack(list(chosen.values())) @ _shape(letter, font))) <= LOOK_ALIKE

    for part, scripts in SCRIPTS.items():
        most = len(chosen) + CLASSES[part]
        queues = deque(iter([c for c in common if _script(c) == script]) for script in scripts)
        while queues and len(chosen) < most:
            queue = queues.popleft()
            letter = next(filter(is_new, queue), None)
            if letter is not None:
                chosen[letter] = _shape(letter, font)
                queues.append(queue)
    return list(chosen)


def _shape(letter: str, font: ImageFont.FreeTypeFont) -> NDArray[np.float32]:
    """The undistorted letter as a unit vector around its mean: the product of two is their normalised cross-correlation."""
    ink = _place(_draw(letter, font), np.eye(2), fill=0.9, shift=np.zeros(2))
    blurred = np.asarray(Image.fromarray((ink * 255).round().astype(np.uint8)).filter(ImageFilter.GaussianBlur(1.5)), dtype=np.float32)
    every_other = blurred[::2, ::2].ravel()  # after the blur the rest tells nothing new
    centred = every_other - every_other.mean()
    return centred / np.linalg.norm(centred)


def _draw(letter: str, font: ImageFont.FreeTypeFont) -> Image.Image:
    """White on black, cropped to the ink."""
    left, top, right, bottom = font.getbbox(letter)
    image = Image.new("L", (int(right - left), int(bottom - top)))
    ImageDraw.Draw(image).text((-left, -top), letter, fill=255, font=font)
    return image.crop(image.getbbox())


def _place(glyph: Image.Image, shape: NDArray[np.float64], fill: float, shift: NDArray[np.float64]) -> NDArray[np.float64]:
    """The glyph under a 2×2 map, its longer side `fill` of the image, moved by `shift` (±1 touches the border): (32, 32) in 0..1."""
    size = np.array(glyph.size)
    extent = np.abs(shape) @ size
    scale = fill * _CANVAS / extent.max()
    centre = _CANVAS / 2 + shift * (_CANVAS - scale * extent) / 2
    inverse = np.linalg.inv(scale * shape)  # PIL asks for the way back, from the canvas to the glyph
    offset = size / 2 - inverse @ centre
    coefficients = (*inverse[0], offset[0], *inverse[1], offset[1])
    canvas = glyph.transform((_CANVAS, _CANVAS), Image.Transform.AFFINE, coefficients, Image.Resampling.BILINEAR)
    return np.asarray(canvas.reduce(_CANVAS // SIZE), dtype=np.float64) / 255


def _distorted(glyph: Image.Image, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Dark on light, rotated, sheared, stretched, resized, moved and noisy."""
    angle, shear, stretch = rng.uniform(-0.25, 0.25), rng.uniform(-0.25, 0.25), np.exp(rng.uniform(-0.15, 0.15))
    rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    shape = rotation @ np.array([[stretch, shear], [0, 1 / stretch]])
    ink = _place(glyph, shape, fill=rng.uniform(0.75, 1.0), shift=rng.uniform(-0.7, 0.7, size=2))
    paper, contrast = rng.uniform(0.75, 1.0), rng.uniform(0.5, 0.75)
    noisy = paper - contrast * ink + rng.normal(0, 0.08, size=ink.shape)
    return (noisy.clip(0, 1) * 255).round().astype(np.uint8)
