"""Any tree of class folders."""

from __future__ import annotations

from pathlib import Path

from obdsd.data.class_folders import class_folders
from obdsd.data.collection import SPLITS, Collection, collect
from obdsd.data.images import ImageFiles
from obdsd.errors import InputError


def folder(path: Path, seed: int = 0, test_fraction: float = 0.5) -> Collection:
    """Any folder with a folder of images for each class.

    `photos/<class>/<image>` is split by class with a seed; `photos/train/<class>/<image>` and `photos/test/…` are taken as they are.
    """
    if not path.is_dir():
        raise InputError(f"{path}: no such folder; give one that holds a folder for each class")
    given = [split for split in SPLITS if (path / split).is_dir()]
    if "train" in given and len(given) > 1:
        rows = [(f"{split}/{image}", c, split) for split in given for c, images in class_folders(path / split).items() for image in images]
        images, labels, splits = zip(*rows, strict=True) if rows else ((), (), ())
        return collect(str(path), ImageFiles(path, images), labels, splits)
    found = [(image, c) for c, images in class_folders(path).items() for image in images]
    if not found:
        raise InputError(f"{path}: no class folder with images; expected {path}/<class>/<image>")
    images, labels = zip(*found, strict=True)
    return collect(str(path), ImageFiles(path, images), labels, seed=seed, test_fraction=test_fraction)
