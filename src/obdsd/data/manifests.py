"""A table of images: CSV or Parquet with the columns path and label, and optional others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from obdsd.data.collection import Collection, collect, numbered
from obdsd.data.items import Box, ImageFiles
from obdsd.data.tables import cells, read_table
from obdsd.errors import InputError

BOX = ("x1", "y1", "x2", "y2")
REQUIRED = ("path", "label")
KNOWN = (*REQUIRED, "split", "is_query", "is_gallery", *BOX, "group")


def manifest(path: Path, seed: int = 0, test_fraction: float = 0.5) -> Collection:
    """A table of images: CSV or Parquet with the columns `path` and `label`.

    Optional: `split` (train, val, test, query, gallery), or `is_query` and `is_gallery` beside it (rows of neither train); a crop box
    `x1 y1 x2 y2` in pixels; `group`, whose mutual hits retrieval ignores. Paths are relative to the manifest's folder and stay inside
    it. Without a split, classes are split with a seed.
    """
    table = read_table(path, lambda names: _wanted(path, names))
    columns = {name: cells(path, name, table[name]) for name in table.column_names}
    for required in REQUIRED:
        for row, value in enumerate(columns[required]):
            if value is None or value == "":
                raise InputError(f"{path}: row {row + 1} has no {required}; fill it or remove the row")
    items = ImageFiles(path.parent, _inside(path, columns["path"]), _boxes(path, columns))
    groups = numbered(columns["group"])[1] if "group" in columns else None
    labels = [str(label) for label in columns["label"]]
    return collect(str(path), items, labels, _splits(path, columns), groups=groups, seed=seed, test_fraction=test_fraction)


def _wanted(path: Path, names: list[str]) -> list[str]:
    for required in REQUIRED:
        if required not in names:
            raise InputError(f"{path}: has no column {required!r}; it has {', '.join(map(repr, names)) or 'none'}")
    return [name for name in KNOWN if name in names]


def _inside(manifest: Path, names: list[Any]) -> list[str]:
    """The paths as they stand below the manifest's folder; one that leaves the folder, also by a link, is refused."""
    paths = [os.path.normpath(str(name)) for name in names]
    home = os.path.realpath(manifest.parent)
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
            raise InputError(f"{manifest}: row {row + 1}: path={names[row]!r} leaves the manifest's folder; use paths below it")
    return paths


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
    splits = [str(split) for split in columns.get("split", ["train"] * rows)]
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
