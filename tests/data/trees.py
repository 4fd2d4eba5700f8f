"""Small made-up trees of files; the image files are empty, as the readers of layouts open none."""

from pathlib import Path

import numpy as np


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
    for part, items in collection.parts.items():
        found[part] = {}
        for i in range(len(items)):
            found[part].setdefault(items.class_names[items.labels[i]], []).append(items.name(i))
    return found


def annotations(rows: list[tuple[str, int]]) -> np.ndarray:
    """The struct array of `cars_annos.mat`."""
    made = np.zeros((1, len(rows)), dtype=[("relative_im_path", "O"), ("class", "O"), ("test", "O")])
    for i, (path, label) in enumerate(rows):
        made[0, i] = (path, label, 0)
    return made


def cell(names: list[str]) -> np.ndarray:
    """A MATLAB cell array of strings."""
    made = np.zeros((1, len(names)), dtype=object)
    made[0, :] = names
    return made
