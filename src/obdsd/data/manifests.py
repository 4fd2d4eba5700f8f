"""A table of images: CSV or Parquet with a column of paths, perhaps one of labels, and optional others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from obdsd.data.collection import Collection, collect, collect_unlabelled, grouped
from obdsd.data.columns import column_for, missing, part_meant
from obdsd.data.items import Box, ImageFiles
from obdsd.data.tables import cells, read_table
from obdsd.errors import InputError

BOX = ("x1", "y1", "x2", "y2")
KNOWN = ("path", "label", "split", "is_query", "is_gallery", *BOX, "group")


def manifest(path: Path, seed: int = 0, test_fraction: float = 0.5, root: Path | None = None) -> Collection:
    """A table of images: CSV (with , or ; or tabs) or Parquet with a column of paths and one of labels.

    Columns are known by what they are usually called, in any case: `path`, `file`, `filename`, `image`, …; `label`, `class`,
    `category`, …. Optional: `split` (train, val, test, query, gallery), or `is_query` and `is_gallery` beside it (rows of neither train);
    a crop box `x1 y1 x2 y2` in pixels; `group`, whose mutual hits retrieval ignores. Paths are below `root`, by default the manifest's
    folder, and stay inside it. Without a split, classes are split with a seed.
    """
    there: list[str] = []  # all columns, for a message

    def choose(names: list[str]) -> list[str]:
        there.extend(names)
        return list(_meanings(path, names).values())

    table = read_table(path, choose)
    columns = {meaning: cells(path, name, table[name]) for meaning, name in _meanings(path, table.column_names).items()}
    for required in ("path", "label"):
        for row, value in enumerate(columns.get(required, [])):
            if value is None or value == "":
                raise InputError(f"{path}: row {row + 1} has no {required}; fill it or remove the row")
    home = path.parent if root is None else root
    items = ImageFiles(home, _inside(path, home, columns["path"]), _boxes(path, columns))
    groups = grouped(columns["group"]) if "group" in columns else None
    splits = _splits(path, columns)
    if "label" not in columns:
        return collect_unlabelled(str(path), items, splits or ["test"] * len(columns["path"]), missing(there, "label"), groups)
    labels = [str(label) for label in columns["label"]]
    return collect(str(path), items, labels, splits, groups=groups, seed=seed, test_fraction=test_fraction)


def _meanings(path: Path, names: list[str]) -> dict[str, str]:
    """The columns that are used, by what they mean."""
    found = {meaning: column_for(path, names, meaning) for meaning in KNOWN}
    if found["path"] is None:
        raise InputError(f"{path}: {missing(names, 'path')}")
    return {meaning: name for meaning, name in found.items() if name is not None}


def _inside(manifest: Path, root: Path, names: list[Any]) -> list[str]:
    """The paths as they stand below the root; one that leaves it, also by a link, is refused."""
    home = os.path.realpath(root)
    paths = [_below(os.path.normpath(str(name)), os.path.abspath(root), home) for name in names]
    folders: dict[str, str] = {}  # where each is, links followed
    for row, path in enumerate(paths):
        leaves = os.path.isabs(path) or path.split(os.sep)[0] == ".." or "\0" in path
        if not leaves:
            folder, name = os.path.split(path)
            if folder not in folders:
                folders[folder] = os.path.realpath(os.path.join(home, folder))
            place = os.path.join(folders[folder], name)
            leaves = not (os.path.realpath(place) if os.path.islink(place) else place).startswith(os.path.join(home, ""))
        if leaves:
            remedy = "give the folder that holds all images with --root, or use paths below it"
            raise InputError(f"{manifest}: row {row + 1}: path={names[row]!r} leaves {root}; {remedy}")
    return paths


def _below(path: str, *roots: str) -> str:
    """An absolute path in one of the roots as a path below it; any other as it is."""
    root = next((root for root in roots if path.startswith(os.path.join(root, ""))), None)
    return path if root is None else os.path.relpath(path, root)


def _boxes(path: Path, columns: dict[str, list[Any]]) -> list[Box | None] | None:
    present = [name for name in BOX if name in columns]
    if not present:
        return None
    if len(present) < 4:
        raise InputError(f"{path}: has {', '.join(present)} but not all of {', '.join(BOX)}; give all four or none")
    boxes: list[Box | None] = []
    for row, corners in enumerate(zip(*(columns[name] for name in BOX), strict=True)):
        if all(corner in (None, "") for corner in corners):
            boxes.append(None)
            continue
        try:
            x1, y1, x2, y2 = (int(float(corner)) for corner in corners)
        except (TypeError, ValueError, OverflowError):
            raise InputError(f"{path}: row {row + 1}: box={corners} must be four numbers; or leave all four empty") from None
        if not (0 <= x1 < x2 and 0 <= y1 < y2):
            raise InputError(f"{path}: row {row + 1}: box={(x1, y1, x2, y2)} must have 0 <= x1 < x2 and 0 <= y1 < y2")
        boxes.append((x1, y1, x2, y2))
    return boxes


def _splits(path: Path, columns: dict[str, list[Any]]) -> list[str] | None:
    rows = len(columns["path"])
    splits = [part_meant(str(split)) for split in columns.get("split", ["train"] * rows)]
    asks, is_asked = (_flags(path, name, columns.get(name, [False] * rows)) for name in ("is_query", "is_gallery"))
    for row in range(rows):
        if asks[row] and is_asked[row]:
            raise InputError(f"{path}: row {row + 1} is both query and gallery; where each is both, use split=test")
        splits[row] = "query" if asks[row] else "gallery" if is_asked[row] else splits[row]
    return splits if columns.keys() & {"split", "is_query", "is_gallery"} else None


def _flags(path: Path, name: str, values: list[Any]) -> list[bool]:
    meaning = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False, "": False, "none": False, "nan": False}
    for row, value in enumerate(values):
        if str(value).lower() not in meaning:
            raise InputError(f"{path}: row {row + 1}: {name}={value!r} must be true or false")
    return [meaning[str(value).lower()] for value in values]
