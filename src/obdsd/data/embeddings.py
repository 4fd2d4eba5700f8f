"""Embeddings that people already have (CLIP, DINOv2, …): a head can be trained on them with no image code involved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from obdsd.data.collection import Collection, collect
from obdsd.data.manifests import read_table
from obdsd.errors import InputError

VECTORS = ("embeddings", "embedding", "features", "vectors", "vector", "x")
LABELS = ("labels", "label", "targets", "y")
SUFFIXES = (".npz", ".npy", ".parquet")


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a matrix as items."""

    matrix: NDArray[np.float32]
    names: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.matrix)

    def read(self, position: int) -> Tensor:
        return torch.from_numpy(self.matrix[position])

    def name(self, position: int) -> str:
        return f"row {position}" if self.names is None else str(self.names[position])


def embeddings(path: Path, labels: Path | None = None, seed: int = 0, test_fraction: float = 0.5) -> Collection:
    """`.npz` or Parquet with vectors (`embeddings`, `features`, `x`, …) and `labels`; or `.npy` with its labels beside it
    (`NAME.labels.npy`, `labels.npy`) or given. Optional: `split` (train, val, test, query, gallery), `group`, `names` or `path`.
    Without a split, classes are split with a seed."""
    columns = _read(path, labels)
    vectors = _first(path, columns, VECTORS)
    target = _first(path, columns, LABELS)
    matrix = _matrix(path, vectors)
    for name, column in (("labels", target), *((name, columns[name]) for name in ("split", "group", "names", "path") if name in columns)):
        if np.ndim(column) != 1 or len(column) != len(matrix):
            raise InputError(f"{path}: {name} has shape {np.shape(column)} for {len(matrix)} vectors; give one for each")
    if target.dtype.kind == "f":
        if not (np.isfinite(target).all() and (target == np.round(target)).all()):
            raise InputError(f"{path}: labels are fractions or NaN; give whole numbers or names")
        target = target.astype(np.int64)
    names = columns.get("names", columns.get("path"))
    groups = np.unique(columns["group"].astype(str), return_inverse=True)[1].astype(np.int64) if "group" in columns else None
    return collect(
        str(path),
        Rows(matrix, names),
        target.astype(str).tolist(),
        columns["split"].astype(str).tolist() if "split" in columns else None,
        kind="embeddings",
        groups=groups,
        seed=seed,
        test_fraction=test_fraction,
    )


def _read(path: Path, labels: Path | None) -> Mapping[str, NDArray[Any]]:
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        table = read_table(path)
        wanted = [name for name in table.column_names if name in (*VECTORS, *LABELS, "split", "group", "names", "path")]
        return {name: _column(path, name, table[name]) for name in wanted}
    if suffix == ".npz":
        return _load(path)
    if suffix != ".npy":
        raise InputError(f"{path}: is no embeddings file; expected {', '.join(SUFFIXES)}")
    beside = [path.with_suffix(".labels.npy"), path.with_name(f"{path.stem}_labels.npy"), path.with_name("labels.npy")]
    found = labels or next((candidate for candidate in beside if candidate.exists() and candidate != path), None)
    if found is None:
        raise InputError(f"{path}: has no labels beside it; save them as {beside[0].name}")
    return {"embeddings": _load(path), "labels": _load(found)}


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
        raise InputError(f"{path}: cannot be read ({' '.join(str(fault).split())[:200]}); save plain arrays with numpy") from fault
    if (path.suffix.lower() == ".npz") != archive:
        raise InputError(f"{path}: is not what its suffix says; save .npy with numpy.save and .npz with numpy.savez")
    return arrays


def _column(path: Path, name: str, column: Any) -> NDArray[Any]:
    """A Parquet column as an array: vectors as a matrix, text and numbers as they are."""
    if column.null_count:
        raise InputError(f"{path}: column {name!r} has {column.null_count} empty cells; fill or drop them")
    if name not in VECTORS:
        return np.asarray(column.to_pylist())
    rows = column.to_pylist()
    widths = {len(row) if isinstance(row, list) else -1 for row in rows}
    if len(widths) != 1 or -1 in widths:
        raise InputError(f"{path}: column {name!r} must hold one vector a row, all of one length; it has lengths {sorted(widths)[:5]}")
    try:
        return np.asarray(rows, dtype=np.float32)
    except (TypeError, ValueError):
        raise InputError(f"{path}: column {name!r} holds something other than numbers") from None


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
    broken = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
    if len(broken):
        raise InputError(
            f"{path}: {len(broken)} vectors have NaN or infinite entries, the first in row {broken[0]}; remove or recompute them"
        )
    return matrix
