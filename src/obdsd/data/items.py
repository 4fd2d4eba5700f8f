"""Where the items of a collection come from. Image files are in `images.py`, rendered letters in `glyphs.py`, rows of a matrix here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray


@runtime_checkable
class Items(Protocol):
    """What a collection asks of its items, by their positions."""

    def read(self, position: int) -> Any:
        """The item itself: an RGB image (PIL) or a float32 tensor (dim,). A damaged one raises an `InputError` that names it."""

    def name(self, position: int) -> str:
        """What people call it: its path below the collection's folder, or its row."""

    def stamp(self, positions: NDArray[np.int64]) -> bytes:
        """Bytes that change when these items change: their content, or the sizes of their files."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a matrix as items."""

    matrix: NDArray[np.float32]
    names: NDArray[Any] | None = None

    def read(self, position: int) -> Any:
        import torch  # only here: opening data, and reading the settings that fit it, needs no torch

        return torch.from_numpy(self.matrix[position])

    def name(self, position: int) -> str:
        return f"row {position}" if self.names is None else str(self.names[position])

    def stamp(self, positions: NDArray[np.int64]) -> bytes:
        return self.matrix[positions].tobytes()
