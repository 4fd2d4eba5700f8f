"""A teacher that is a file of similarities between classes, made by any language model or by hand: how alike their names are."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from obdsd.data.collection import some
from obdsd.data.embeddings import read_arrays
from obdsd.data.part import Part
from obdsd.data.tables import cells, read_table
from obdsd.data.teachers import FromFile
from obdsd.errors import InputError
from obdsd.method.checks import checked_indices
from obdsd.method.teachers import TeacherBatch

SUFFIXES = (".npz", ".csv", ".parquet")
ROUNDED = 1e-3  # similarities that are off by no more are taken for rounded ones
NAMES = ("", "class", "classes", "class_name", "name", "names", "label", "labels", "index", "__index_level_0__", "unnamed: 0")
"""What a table may call its column of names; pandas writes some of these."""


class ClassTeacher(FromFile):
    """Every item is known by its class: a row for each class, whose cosines are the file's similarities.

    Args:
        path: The file.
        rows: A unit row for each class.
        classes: The class of each item that trains.
        digest: Of the similarities: rows may differ from machine to machine by rounding.
        remarks: What a user should know.
    """

    classes: Tensor

    def __init__(self, path: Path, rows: Tensor, classes: Tensor, digest: bytes, remarks: Sequence[str] = ()) -> None:
        super().__init__(path, rows, None, digest, remarks)
        self.register_buffer("classes", classes, persistent=False)

    def forward(self, inputs: Any, indices: Int[Tensor, " b"] | None = None) -> TeacherBatch:
        indices = checked_indices(indices, self.classes, "call teacher(inputs, indices)", "size the teacher by the training set")
        return TeacherBatch(self.table[self.classes[indices]], indices=indices)

    def all_rows(self, embed: Any) -> tuple[Tensor, None]:
        return self.table[self.classes], None


def classes(part: Part, file: str) -> ClassTeacher:
    """A file of similarities between the classes teaches: a C × C table by the classes' names, as any language model makes it.

    Args:
        file: A .csv or .parquet table with a column of names and one for each class, or an .npz with names and similarity.
    """
    path = Path(file).expanduser()
    names, similarity = _read(path)
    place = _place_of(path, names)
    if lost := [name for name in part.class_names if name not in place]:
        found = f"has no similarities of {len(lost):,} of the {len(part.class_names):,} classes that train ({some(lost)})"
        raise InputError(f"{path}: {found}; its classes are such as {names[0]!r}")
    chosen = np.array([place[name] for name in part.class_names])
    Q = similarity[np.ix_(chosen, chosen)]
    _check(path, Q, part.class_names)
    rows, off = _rows_with(Q)
    told = f"{path}: no rows have these similarities as cosines; those that teach differ by up to {off:.2g}"
    digest = hashlib.blake2b(Q.tobytes(), digest_size=16).digest()
    return ClassTeacher(
        path, torch.from_numpy(rows.astype(np.float32)), torch.from_numpy(part.labels), digest, [told] if off > ROUNDED else []
    )


def _rows_with(Q: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Unit rows with these cosines, as nearly as any have them, and how far they are off at most."""
    values, directions = np.linalg.eigh((Q + Q.T) / 2)
    kept = values > 1e-12 * values[-1]
    rows = directions[:, kept] * np.sqrt(values[kept])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows, float(np.abs(rows @ rows.T - Q).max())


def _check(path: Path, Q: NDArray[np.float64], names: Sequence[str]) -> None:
    def refuse(bad: NDArray[np.bool_], what: str, remedy: str) -> None:
        if bad.any():
            one, other = np.argwhere(bad)[0]
            pair = f"{names[one]!r} and {names[other]!r}"
            raise InputError(f"{path}: the similarity of {pair} is {Q[one, other]:.4g}{what}; {remedy}")

    refuse(~np.isfinite(Q), ", which is no number", "give one for each pair of classes")
    off = np.abs(Q - Q.T) > ROUNDED
    refuse(off, ", the other way round it is not", "make the table symmetric")
    refuse(np.abs(Q) > 1 + ROUNDED, "", "give cosines, from -1 to 1")
    refuse(np.eye(len(Q), dtype=bool) & (np.abs(Q - 1) > ROUNDED), "", "a class is like itself by 1")


def _place_of(path: Path, names: Sequence[str]) -> dict[str, int]:
    name, times = Counter(names).most_common(1)[0]
    if times > 1:
        raise InputError(f"{path}: has the class {name!r} {times} times; keep it once")
    return {name: place for place, name in enumerate(names)}


def _read(path: Path) -> tuple[list[str], NDArray[np.float64]]:
    """The names of the classes, and the similarities in their order."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{path}: is no table of similarities; expected {', '.join(SUFFIXES)}")
    names, similarity = _read_npz(path) if suffix == ".npz" else _read_rows(path)
    if similarity.shape != (len(names), len(names)) or not names:
        raise InputError(f"{path}: has similarities of shape {similarity.shape} for {len(names)} classes; give each pair of classes one")
    return names, similarity


def _read_npz(path: Path) -> tuple[list[str], NDArray[np.float64]]:
    def choose(there: list[str]) -> list[str]:
        if lost := [name for name in ("names", "similarity") if name not in there]:
            raise InputError(f"{path}: has no array {lost[0]!r}; save it with numpy.savez(file, names=…, similarity=…)")
        return ["names", "similarity"]

    arrays = read_arrays(path, choose)
    if arrays["similarity"].dtype.kind not in "fiu" or arrays["names"].ndim != 1:
        kinds = f"names of shape {arrays['names'].shape} and similarities of type {arrays['similarity'].dtype}"
        raise InputError(f"{path}: has {kinds}; expected a list of names and numbers")
    return [str(name) for name in arrays["names"].tolist()], arrays["similarity"].astype(np.float64)


def _read_rows(path: Path) -> tuple[list[str], NDArray[np.float64]]:
    """A table whose rows and columns are called by the classes, in any order."""
    table = read_table(path, lambda there: there)
    candidates = [name for name in table.column_names if name.strip().lower() in NAMES] or table.column_names[:1]
    if not candidates:
        raise InputError(f"{path}: is empty; give a column of names and one for each class")
    names = [str(name) for name in cells(path, candidates[0], table[candidates[0]])]
    if lost := [name for name in names if name not in table.column_names]:
        raise InputError(f"{path}: has a row but no column for {some(lost)}; give each class both, by one name")
    return names, np.stack([_numbers(path, name, table[name]) for name in names], axis=1) if names else np.empty((0, 0))


def _numbers(path: Path, name: str, column: pa.ChunkedArray) -> NDArray[np.float64]:
    try:
        return np.array([float(cell) for cell in cells(path, name, column)])
    except (TypeError, ValueError) as fault:
        raise InputError(f"{path}: column {name!r} holds something other than numbers; fill it with similarities") from fault
