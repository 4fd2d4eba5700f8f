"""Small made-up trees of files (the image files are empty, as the readers of layouts open none)."""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


def refused(*parts):
    """An error of one line that holds the parts in this order."""
    return pytest.raises(ValueError, match=r"(?s)\A[^\n]*" + "[^\n]*".join(map(re.escape, parts)) + r"[^\n]*\Z")


def touch(root: Path, *paths: str) -> Path:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    return root


def write(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


def split_of(collection) -> dict[str, dict[str, list[str]]]:
    """part → class name → file names, to compare with what was made."""
    found = {}
    for name, part in collection.parts.items():
        found[name] = {}
        for i, label in enumerate(part.classes.tolist()):
            found[name].setdefault(label, []).append(part.name(i))
    return found


def picture(seed=0, size=(40, 30)) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (*size[::-1], 3), dtype=np.uint8))
