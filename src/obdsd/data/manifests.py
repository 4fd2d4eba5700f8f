"""A table of images: CSV or Parquet with the columns path and label, and optional others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from obdsd.data.collection import Collection, collect, numbered
from obdsd.data.items import Box, ImageFiles
from obdsd.errors import InputError

BOX = ("x1", "y1", "x2", "y2")
KNOWN = ("path", "label", "split", "is_query", "is_gallery", *BOX, "group")


def manifest(path: Path, seed: int = 0, test_fraction: float = 0.5) -> Collection:
    """A table of images: CSV or Parquet with the columns `path` and `label`.

    Optional: `split` (train, val, test, query, gallery), or `is_query` and `is_gallery` beside it (rows of neither train); a crop box
    `x1 y1 x2 y2` in pixels; `group`, whose mutual hits retrieval ignores. Paths are relative to the manifest's folder and stay inside
    it. Without a split, classes are split with a seed.
    """
    table = read_table(path)
    columns = {name: table[name].to_pylist() for name in KNOWN if name in table.column_names}
    for required in ("path", "label"):
        if required not in columns:
            raise InputError(f"{path}: has no column {required!r}; it has {', '.join(map(repr, table.column_names)) or 'none'}")
        for row, value in enumerate(columns[required]):
            if value is None or value == "":
                raise InputError(f"{path}: row {row + 1} has no {required}; fill it or remove the row")
    files = [_inside(path, row, str(name)) for row, name in enumerate(columns["path"])]
    items = ImageFiles(path.parent, files, _boxes(path, columns))
    groups = numbered(columns["group"])[1] if "group" in columns else None
    labels = [str(label) for label in columns["label"]]
    return collect(str(path), items, labels, _splits(path, columns), groups=groups, seed=seed, test_fraction=test_fraction)


def read_table(path: Path) -> pa.Table:
    """A CSV file with text columns, or a Parquet file."""
    try:
        if path.suffix.lower() == ".parquet":
            return pa.parquet.read_table(path)
        layout = pa.csv.ParseOptions(newlines_in_values=True)
        names = pa.csv.read_csv(path, parse_options=layout).column_names
        as_text = pa.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False)
        return pa.csv.read_csv(path, convert_options=as_text, parse_options=layout)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (pa.ArrowException, OSError, UnicodeError) as fault:
        raise InputError(
            f"{path}: cannot be read as a table ({' '.join(str(fault).split())[:200]}); expected UTF-8 CSV or Parquet"
        ) from fault


def _inside(manifest: Path, row: int, name: str) -> str:
    """The path as it stands below the manifest's folder; one that leaves the folder is refused."""
    normal = os.path.normpath(name)
    if os.path.isabs(normal) or normal.split(os.sep)[0] == ".." or "\0" in normal:
        raise InputError(f"{manifest}: row {row + 1}: path={name!r} leaves the manifest's folder; use paths below it")
    return normal


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
