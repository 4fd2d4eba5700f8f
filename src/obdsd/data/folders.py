"""Any tree of class folders."""

from __future__ import annotations

from pathlib import Path

from obdsd.data.benchmarks import class_folders
from obdsd.data.collection import Collection, collect
from obdsd.data.images import ImageFiles
from obdsd.errors import InputError


def folder(root: Path, seed: int = 0, test_fraction: float = 0.5) -> Collection:
    """`root/<class>/<image>`, split by classes with a seed; or `root/train/<class>/…` and `root/test/<class>/…` as they are."""
    if not root.is_dir():
        raise InputError(f"{root}: no such folder; give one that holds a folder for each class")
    given = [split for split in ("train", "val", "test", "query", "gallery") if (root / split).is_dir()]
    if "train" in given and len(given) > 1:
        rows = [
            (f"{split}/{path}", label, split) for split in given for label, paths in class_folders(root / split).items() for path in paths
        ]
        paths, labels, splits = zip(*rows, strict=True) if rows else ((), (), ())
        return collect(str(root), ImageFiles(root, paths), labels, splits)
    found = [(path, label) for label, paths in class_folders(root).items() for path in paths]
    if not found:
        raise InputError(f"{root}: no class folder with images; expected {root}/<class>/<image>")
    paths, labels = zip(*found, strict=True)
    return collect(str(root), ImageFiles(root, paths), labels, seed=seed, test_fraction=test_fraction)
