"""Embeddings that people already have (CLIP, DINOv2, …): a head can be trained on them with no image code involved."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from obdsd.data.collection import Collection, Part, collect, split_parts
from obdsd.data.vectors import read_vectors


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

    def stamp(self, positions: NDArray[np.int64]) -> bytes:
        return self.matrix[positions].tobytes()


def embeddings(path: Path, labels: Path | None = None, seed: int = 0, test_fraction: float = 0.5) -> Collection:
    """What `read_vectors` finds in a file, in the parts that its split says (train, val, test, query, gallery); without a split, classes
    are split with a seed."""
    found = read_vectors(path, labels)
    return collect(
        str(path),
        Rows(found.matrix, found.names),
        found.labels.tolist(),
        None if found.splits is None else found.splits.tolist(),
        kind="embeddings",
        groups=found.groups,
        seed=seed,
        test_fraction=test_fraction,
    )


def parts_as_given(path: Path) -> dict[str, Part]:
    """The parts of a file that is only evaluated: it need not train, and without a split all its rows are `test`."""
    found = read_vectors(path)
    splits = ["test"] * len(found.matrix) if found.splits is None else found.splits.tolist()
    return split_parts(str(path), Rows(found.matrix, found.names), found.labels.tolist(), splits, found.groups)
