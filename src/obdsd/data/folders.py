"""Class folders: a folder of images for each class."""

from __future__ import annotations

import os
from pathlib import Path

from obdsd.data.collection import SPLITS, Collection, collect
from obdsd.data.items import ImageFiles
from obdsd.errors import InputError

Classes = dict[str, list[str]]
"""Class name → paths of its images below a folder."""

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")


def folder(path: Path, seed: int = 0, test_fraction: float = 0.5) -> Collection:
    """Any folder with a folder of images for each class.

    `photos/<class>/<image>` is split by class with a seed; `photos/train/<class>/<image>` and `photos/test/…` are taken as they are.
    """
    if not path.is_dir():
        raise InputError(f"{path}: no such folder; give one that holds a folder for each class")
    given = [split for split in SPLITS if (path / split).is_dir()]
    is_split = "train" in given and len(given) > 1
    found = {split: class_folders(path / split) for split in (given if is_split else [""])}
    rows = [(os.path.join(split, image), c, split) for split, classes in found.items() for c, images in classes.items() for image in images]
    if not rows:
        raise InputError(f"{path}: no class folder with images; expected {path}/<class>/<image>")
    images, labels, splits = zip(*rows, strict=True)
    return collect(str(path), ImageFiles(path, images), labels, splits if is_split else None, seed=seed, test_fraction=test_fraction)


def class_folders(root: Path) -> Classes:
    """Each folder directly below `root` is a class: its images at any depth, sorted, as paths below `root`.

    Hidden files, and files that are no images by their suffix, are ignored; a class without images is kept, with none.
    """
    classes: Classes = {}
    for name in sorted(entry.name for entry in os.scandir(root) if entry.is_dir()):
        if name.startswith(".") or name == "__MACOSX":
            continue
        paths: list[str] = []
        classes[_utf8(name, root)] = paths
        for folder, below, files in os.walk(root / name):
            below[:] = [b for b in below if not b.startswith(".")]
            images = [f for f in files if f.lower().endswith(SUFFIXES) and not f.startswith(".")]
            paths.extend(_utf8(os.path.relpath(os.path.join(folder, f), root), root).replace(os.sep, "/") for f in images)
        paths.sort()
    return classes


def merged_class_folders(base: Path) -> Classes:
    """The class folders in `images/`, else in the folder itself. Where they lie in `train/`, `test/` and `val/`, these are merged."""
    for holder in (base / "images", base):
        if not holder.is_dir():
            continue
        halves = [holder / name for name in ("train", "test", "val", "valid") if (holder / name).is_dir()]
        merged: Classes = {}
        for folder in halves or [holder]:
            prefix = "" if folder == base else folder.relative_to(base).as_posix() + "/"
            for name, paths in class_folders(folder).items():
                merged.setdefault(name, []).extend(prefix + path for path in paths)
        if any(merged.values()):
            # folders without images that carry no class number (attributes/, parts/) are no classes
            return {name: paths for name, paths in merged.items() if paths or name[:1].isdigit()}
    return {}


def _utf8(name: str, root: Path) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(name).decode("utf-8", "backslashreplace")
        raise InputError(f"{root}: the file name '{shown}' is not UTF-8; rename it") from None
    return name
