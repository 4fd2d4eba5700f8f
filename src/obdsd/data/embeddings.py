"""Embeddings that people already have (CLIP, DINOv2, …): a head can be trained on them with no image code involved.

Files of labelled vectors (`.npz`, `.npy`, Parquet) are read with suspicion, and written whole or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet
from numpy.typing import NDArray

from obdsd.data.collection import Collection, Part, collect, numbered, split_parts, training_defaults
from obdsd.data.items import Rows
from obdsd.data.manifests import read_table
from obdsd.errors import InputError
from obdsd.files import replacing

VECTORS = ("embeddings", "embedding", "features", "vectors", "vector", "x")
LABELS = ("labels", "label", "targets", "y")
OPTIONAL = ("split", "group", "names", "path")
SUFFIXES = (".npz", ".npy", ".parquet")


class Vectors(NamedTuple):
    """What such a file holds: a row, a class name and perhaps a split, a group and a name for each item."""

    matrix: NDArray[np.float32]
    labels: NDArray[Any]
    splits: NDArray[Any] | None = None
    groups: NDArray[np.int64] | None = None
    names: NDArray[Any] | None = None


@training_defaults(epochs=40, backbone="features", head_init="projection", lr=1e-4, weight=100.0)
def embeddings(path: Path, seed: int = 0, test_fraction: float = 0.5) -> Collection:
    """A file of labelled vectors: `.npz`, `.npy` or Parquet.

    Its split names the part of each row (train, val, test, query, gallery). Without a split, classes are split with a seed.
    """
    vectors = read_vectors(path)
    splits = None if vectors.splits is None else vectors.splits.tolist()
    items, labels = Rows(vectors.matrix, vectors.names), vectors.labels.tolist()
    return collect(str(path), items, labels, splits, groups=vectors.groups, seed=seed, test_fraction=test_fraction)


def parts_as_given(path: Path) -> dict[str, Part]:
    """The parts of a file that is only evaluated: it need not train, and without a split all its rows are `test`."""
    vectors = read_vectors(path)
    splits = ["test"] * len(vectors.matrix) if vectors.splits is None else vectors.splits.tolist()
    return split_parts(str(path), Rows(vectors.matrix, vectors.names), vectors.labels.tolist(), splits, vectors.groups)


def read_vectors(path: Path) -> Vectors:
    """`.npz` or Parquet with vectors (`embeddings`, `features`, `x`, …) and `labels`; or `.npy` with its labels beside it
    (`NAME.labels.npy`, `NAME_labels.npy`, `labels.npy`). Optional: `split`, `group`, `names` or `path`."""
    columns = _read(path)
    matrix = _matrix(path, _first(path, columns, VECTORS))
    labels = _first(path, columns, LABELS)
    for name, column in {"labels": labels, **{name: columns[name] for name in OPTIONAL if name in columns}}.items():
        if np.ndim(column) != 1 or len(column) != len(matrix):
            raise InputError(f"{path}: {name} has shape {np.shape(column)} for {len(matrix)} vectors; give one for each")
    if labels.dtype.kind == "f":
        if not (np.isfinite(labels).all() and (labels == np.round(labels)).all()):
            raise InputError(f"{path}: labels are fractions or NaN; give whole numbers or names")
        labels = labels.astype(np.int64)
    return Vectors(
        matrix,
        labels.astype(str),
        splits=columns["split"].astype(str) if "split" in columns else None,
        groups=numbered(columns["group"].tolist())[1] if "group" in columns else None,
        names=columns.get("names", columns.get("path")),
    )


def write_vectors(path: Path, vectors: Vectors) -> None:
    """`.parquet`, the rows as lists of one length, or `.npz`; what `read_vectors` reads."""
    optional = {"split": vectors.splits, "group": vectors.groups, "names": vectors.names}
    columns: dict[str, Any] = {"labels": vectors.labels} | {name: column for name, column in optional.items() if column is not None}
    with replacing(path) as file:
        if path.suffix.lower() == ".parquet":
            rows = pa.FixedSizeListArray.from_arrays(pa.array(vectors.matrix.ravel()), vectors.matrix.shape[1])
            pa.parquet.write_table(pa.table({"embeddings": rows, **columns}), file)
        else:
            np.savez(file, embeddings=vectors.matrix, **columns)


def _read(path: Path) -> Mapping[str, NDArray[Any]]:
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        table = read_table(path)
        wanted = [name for name in table.column_names if name in (*VECTORS, *LABELS, *OPTIONAL)]
        return {name: _column(path, name, table[name]) for name in wanted}
    if suffix == ".npz":
        return _load(path)
    if suffix != ".npy":
        raise InputError(f"{path}: is no embeddings file; expected {', '.join(SUFFIXES)}")
    beside = [path.with_suffix(".labels.npy"), path.with_name(f"{path.stem}_labels.npy"), path.with_name("labels.npy")]
    labels = next((candidate for candidate in beside if candidate.exists() and candidate != path), None)
    if labels is None:
        raise InputError(f"{path}: has no labels beside it; save them as {beside[0].name}")
    return {"embeddings": _load(path), "labels": _load(labels)}


def _load(path: Path) -> Any:
    """The array of a `.npy` file, or the arrays of a `.npz` by name; pickled objects are refused."""
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            archive = isinstance(loaded, np.lib.npyio.NpzFile)
            arrays = {name: loaded[name] for name in loaded.files} if archive else loaded
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except Exception as fault:  # a damaged file makes numpy raise a dozen kinds of error
        if "pickle" in str(fault):
            remedy = "save names with labels.astype(str), vectors as numbers"
            raise InputError(f"{path}: holds Python objects, or no arrays at all; {remedy}") from fault
        raise InputError(f"{path}: cannot be read ({' '.join(str(fault).split())[:200]}); save plain arrays with numpy") from fault
    if (path.suffix.lower() == ".npz") != archive:
        raise InputError(f"{path}: is not what its suffix says; save .npy with numpy.save and .npz with numpy.savez")
    return arrays


def _column(path: Path, name: str, column: pa.ChunkedArray) -> NDArray[Any]:
    """A Parquet column as an array: vectors as a matrix, text and numbers as they are."""
    if column.null_count:
        raise InputError(f"{path}: column {name!r} has {column.null_count} empty cells; fill or drop them")
    if name not in VECTORS:
        return np.asarray(column.to_pylist())
    is_list = any(test(column.type) for test in (pa.types.is_fixed_size_list, pa.types.is_list, pa.types.is_large_list))
    widths = pa.compute.unique(pa.compute.list_value_length(column)).to_pylist() if is_list else []
    if len(widths) != 1:
        found = f"lengths {sorted(widths)[:5]}" if widths else f"type {column.type}"
        raise InputError(f"{path}: column {name!r} must hold one vector a row, all of one length; it has {found}")
    try:
        numbers = [chunk.flatten().cast(pa.float32(), safe=False).to_numpy(zero_copy_only=False) for chunk in column.chunks]
    except pa.ArrowException:
        raise InputError(f"{path}: column {name!r} holds something other than numbers") from None
    return np.concatenate(numbers).reshape(len(column), widths[0])


def _first(path: Path, columns: Mapping[str, NDArray[Any]], accepted: tuple[str, ...]) -> NDArray[Any]:
    for name in accepted:
        if name in columns:
            return columns[name]
    raise InputError(f"{path}: has none of {', '.join(accepted)}; it has {', '.join(map(repr, columns)) or 'nothing'}")


def _matrix(path: Path, vectors: NDArray[Any]) -> NDArray[np.float32]:
    if vectors.ndim != 2 or 0 in vectors.shape or vectors.dtype.kind not in "fiu":
        raise InputError(f"{path}: vectors have shape {vectors.shape} and type {vectors.dtype}; expected numbers of shape (items, dim)")
    with np.errstate(over="ignore"):
        matrix = np.ascontiguousarray(vectors, dtype=np.float32)
    faults = {"have NaN or infinite entries": ~np.isfinite(matrix).all(axis=1), "hold only zeros": ~matrix.any(axis=1)}
    for fault, bad in faults.items():
        if bad.any():
            raise InputError(f"{path}: {bad.sum()} vectors {fault}, the first in row {bad.argmax()}; remove or recompute them")
    return matrix
