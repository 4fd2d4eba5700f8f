"""Embeddings that people already have (CLIP, DINOv2, …): a head can be trained on them with no image code involved.

Files of labelled vectors (`.npz`, `.npy`, Parquet) are read with suspicion, and written whole or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet
from numpy.typing import NDArray

from obdsd.data.collection import Collection, Part, collect, numbered, split_parts, training_defaults
from obdsd.data.items import Rows
from obdsd.data.tables import cells, check_inflated, read_table
from obdsd.errors import InputError
from obdsd.files import check_file, replacing

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
    matrix = _matrix(path, columns.pop("embeddings"))
    for name, column in columns.items():
        if column.shape != (len(matrix),) or column.dtype.kind not in "biufUSO":
            shape = f"shape {column.shape} and type {column.dtype}"
            raise InputError(f"{path}: {name} has {shape} for {len(matrix)} vectors; give one text or number for each")
    labels = columns["labels"]
    if labels.dtype.kind == "f":
        if not (np.abs(labels) < 2**53).all() or (labels != np.round(labels)).any():
            raise InputError(f"{path}: labels are fractions, NaN or too large; give whole numbers or names")
        labels = labels.astype(np.int64)
    texts = {name: _text(path, name, column) for name, column in {**columns, "labels": labels}.items()}
    groups = numbered(texts["group"].tolist())[1] if "group" in texts else None
    return Vectors(matrix, texts["labels"], texts.get("split"), groups, texts.get("names", texts.get("path")))


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


def _read(path: Path) -> dict[str, NDArray[Any]]:
    """The columns that are used, the vectors as `embeddings`, the classes as `labels`."""
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        table = read_table(path, lambda names: list(_used(path, names)))
        used = _used(path, table.column_names)
        return {used[name]: _column(path, name, table[name], is_vectors=used[name] == "embeddings") for name in used}
    if suffix == ".npz":
        return _load(path)
    if suffix != ".npy":
        raise InputError(f"{path}: is no embeddings file; expected {', '.join(SUFFIXES)}")
    beside = [path.with_suffix(".labels.npy"), path.with_name(f"{path.stem}_labels.npy"), path.with_name("labels.npy")]
    labels = next((candidate for candidate in beside if candidate.exists() and candidate != path), None)
    if labels is None:
        raise InputError(f"{path}: has no labels beside it; save them as {beside[0].name}")
    return {"embeddings": _load(path), "labels": _load(labels)}


def _used(path: Path, names: Sequence[str]) -> dict[str, str]:
    """Of the names that a file holds, those that are used, each with what it stands for; others are not even read."""
    used = {}
    for accepted in (VECTORS, LABELS):
        found = next((name for name in accepted if name in names), None)
        if found is None:
            raise InputError(f"{path}: has none of {', '.join(accepted)}; it has {', '.join(map(repr, names)) or 'nothing'}")
        used[found] = accepted[0]
    return used | {name: name for name in OPTIONAL if name in names}


def _load(path: Path) -> Any:
    """The array of a `.npy` file, or the arrays of a `.npz` that are used; pickled objects are refused."""
    check_file(path)
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            archive = isinstance(loaded, np.lib.npyio.NpzFile)
            if archive:
                used = _used(path, loaded.files)
                stored = {member.filename.removesuffix(".npy"): member.file_size for member in loaded.zip.infolist()}
                check_inflated(path, sum(stored[name] for name in used))
                loaded = {used[name]: np.lib.format.read_array(loaded.zip.open(f"{name}.npy"), allow_pickle=False) for name in used}
    except InputError:
        raise
    except Exception as fault:  # a damaged file makes numpy raise a dozen kinds of error
        if "pickle" in str(fault):
            remedy = "save names with labels.astype(str), vectors as numbers"
            raise InputError(f"{path}: holds Python objects, or no arrays at all; {remedy}") from fault
        raise InputError(f"{path}: cannot be read ({' '.join(str(fault).split())[:200]}); save plain arrays with numpy") from fault
    if (path.suffix.lower() == ".npz") != archive:
        raise InputError(f"{path}: is not what its suffix says; save .npy with numpy.save and .npz with numpy.savez")
    return loaded


def _text(path: Path, name: str, column: NDArray[Any]) -> NDArray[Any]:
    """A column as text, which must be Unicode: it is written into files."""
    try:
        texts = np.char.decode(column, "utf-8") if column.dtype.kind == "S" else column.astype(str)
        "".join(texts.tolist()).encode()
    except (ValueError, SystemError) as fault:  # numpy's arrays may hold numbers that are no characters
        raise InputError(f"{path}: {name} holds what is no text ({' '.join(str(fault).split())[:200]}); write it as UTF-8") from fault
    return texts


def _column(path: Path, name: str, column: pa.ChunkedArray, is_vectors: bool) -> NDArray[Any]:
    """A Parquet column as an array: vectors as a matrix, text and numbers as they are."""
    if column.null_count:
        raise InputError(f"{path}: column {name!r} has {column.null_count} empty cells; fill or drop them")
    if not is_vectors:
        return np.asarray(cells(path, name, column))
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
