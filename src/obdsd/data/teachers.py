"""A teacher that is a file of embeddings: rows of the items that train, made by any model anywhere, found by the items' names."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from obdsd.data.collection import some
from obdsd.data.columns import MEANINGS
from obdsd.data.embeddings import read_vectors
from obdsd.data.part import Part
from obdsd.errors import InputError
from obdsd.method.teachers import TableTeacher
from obdsd.provenance import TrainedOn


class OtherRows(InputError):
    """A run cannot go on: the file of its teacher has changed."""


class FromFile(TableTeacher):
    """Rows of a file. Its state holds their fingerprint and not the rows: where a run goes on, the file is read again and must be the same.

    Args:
        path: The file.
        table: Unit rows.
        seen: Which rows the file has; None for all.
        digest: The fingerprint.
        remarks: What a user should know.
    """

    def __init__(self, path: Path, table: Tensor, seen: Tensor | None, digest: bytes, remarks: Sequence[str] = ()) -> None:
        super().__init__(table, seen, persistent=False)
        self.path, self.digest, self.remarks = path, digest, remarks

    def get_extra_state(self) -> Tensor:
        return torch.tensor([*self.digest], dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        if not torch.equal(state.cpu(), self.get_extra_state()):
            raise OtherRows(f"{self.path}: its rows are not those that taught when the run began; restore it, or begin a new run")


class StoredTeacher(FromFile):
    """A row for each item.

    Args:
        path: The file.
        table: A unit row for each item that trains.
        seen: Which of them the file has.
        trained_on: What the model that made them was trained on, if the file says so.
        remarks: What a user should know.
    """

    def __init__(self, path: Path, table: Tensor, seen: Tensor, trained_on: TrainedOn | None, remarks: Sequence[str] = ()) -> None:
        digest = hashlib.blake2b(table.numpy().tobytes() + seen.numpy().tobytes(), digest_size=16).digest()
        super().__init__(path, table, None if bool(seen.all()) else seen, digest, remarks)
        self.trained_on = trained_on


def embeddings(part: Part, file: str) -> StoredTeacher:
    """A file of rows teaches, made of the same items by any model anywhere. Nothing is computed; items without a row are not taught.

    Args:
        file: The rows with the items' names, as obdsd embed writes them: .parquet, .npz or .pt.
    """
    path = Path(file).expanduser()
    vectors = read_vectors(path)
    row_of = _row_of(path, vectors.names)
    names = [part.name(index) for index in range(len(part))]
    rows = np.array([row_of.get(name, -1) for name in names])
    seen = rows >= 0
    if seen.sum() < 2:
        found = f"has rows of {seen.sum()} of the {len(part):,} items that train, and a teacher needs 2 or more"
        raise InputError(f"{path}: {found}; its names are such as {next(iter(row_of))!r}, the items' such as {names[0]!r}")
    table = np.zeros((len(part), vectors.matrix.shape[1]), dtype=np.float32)
    table[seen] = vectors.matrix[rows[seen]]
    if bad := [names[index] for index in np.flatnonzero(seen & ~_have_direction(table))]:
        remedy = "without such rows their items are not taught"
        raise InputError(f"{path}: {len(bad):,} rows hold NaN or infinity, or only zeros ({some(bad)}); {remedy}, leave them out")
    table[seen] /= np.abs(table[seen]).max(axis=1, keepdims=True)  # whatever their length, its square is a number
    table[seen] /= np.linalg.norm(table[seen], axis=1, keepdims=True)
    left = [name for name, known in zip(names, seen, strict=True) if not known]
    untaught = f"{len(left):,} of the {len(part):,} items that train have no row in {path} and are not taught: {some(left)}"
    return StoredTeacher(path, torch.from_numpy(table), torch.from_numpy(seen), vectors.trained_on, [untaught] if left else [])


def _row_of(path: Path, names: NDArray[Any] | None) -> dict[str, int]:
    """The row of each name."""
    if names is None:
        wanted = f"has no column {', '.join(MEANINGS['names'])} to find the items by"
        raise InputError(f"{path}: {wanted}; write the items' names beside the rows, as obdsd embed does")
    name, times = Counter(names.tolist()).most_common(1)[0]
    if times > 1:
        raise InputError(f"{path}: holds {name!r} {times} times; keep one row an item")
    return {name: row for row, name in enumerate(names.tolist())}


def _have_direction(rows: NDArray[np.float32]) -> NDArray[np.bool_]:
    return np.asarray(np.isfinite(rows).all(axis=1) & (rows != 0).any(axis=1))
