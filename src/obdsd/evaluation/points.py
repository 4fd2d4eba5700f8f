"""What is evaluated: rows with labels, checked once, as unit rows of float32."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from obdsd.errors import InputError

CHUNK = 2048  # rows that are held in float64 at a time


class Points(NamedTuple):
    """Rows, their labels, and optionally groups: of two rows of one class *and* one group neither is a find for the other."""

    embeddings: Any
    labels: Any
    groups: Any = None


def checked(points: Points, field: str = "") -> Points:
    """The same points as arrays: rows of unit length in float32 (a copy only if they are not), labels and groups as given."""
    rows = _array(points.embeddings)
    if rows.ndim != 2 or 0 in rows.shape or rows.dtype.kind not in "fiu":
        raise InputError(f"{field}embeddings of shape {rows.shape} and type {rows.dtype} must be numbers of shape (items, dim)")
    labels = _column(f"{field}labels", points.labels, len(rows))
    groups = None if points.groups is None else _column(f"{field}groups", points.groups, len(rows))
    return Points(_unit(np.ascontiguousarray(rows, dtype=np.float32), field), labels, groups)


def chunks(rows: NDArray[Any]) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """The rows a few thousand at a time in float64: sums over all of them stay exact while memory stays bounded."""
    for start in range(0, len(rows), CHUNK):
        part = slice(start, min(start + CHUNK, len(rows)))
        yield part, rows[part].astype(np.float64)


def _array(values: Any) -> NDArray[Any]:
    """An array of an array, a list, or a tensor of any device."""
    return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)


def _column(field: str, values: Any, length: int) -> NDArray[Any]:
    if values is None:
        raise InputError(f"{field}=None must be given; pass one for each of the {length} embeddings")
    column = _array(values)
    if column.shape != (length,):
        raise InputError(f"{field} of shape {column.shape} must have one entry for each of the {length} embeddings; pass shape ({length},)")
    if column.dtype.kind == "f" and not (np.isfinite(column).all() and (column == np.round(column)).all()):
        raise InputError(f"{field} must be whole numbers or text, found {column.dtype} with fractions or NaN; number the classes")
    return column


def _unit(rows: NDArray[np.float32], field: str) -> NDArray[np.float32]:
    lengths = np.concatenate([np.linalg.norm(part, axis=1) for _, part in chunks(rows)])
    for fault, bad in (("NaN or infinite entries", ~np.isfinite(lengths)), ("only zeros", lengths == 0)):
        if bad.any():
            where = np.flatnonzero(bad)
            raise InputError(f"{field}embeddings: {len(where)} rows hold {fault}, the first is row {where[0]}; remove or recompute them")
    if np.abs(lengths - 1).max() < 1e-6:
        return rows
    return (rows / lengths[:, None]).astype(np.float32)
