"""Rows of an index that is not finished: kept while they are embedded, so that the same command goes on from there."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from obdsd.errors import InputError
from obdsd.files import read_mapping, replacing, write_json
from obdsd.search.folder import PARTIAL

MOST, SECONDS = 1024, 5.0  # rows and time after which they are written
Rows = NDArray[np.float32]


class Partial:
    """Rows by the digests of what they were made of, by one model."""

    def __init__(self, index: Path, model: str, dim: int) -> None:
        self.folder, self.dim = index / PARTIAL, dim
        about = self.folder / "about.json"
        if about.is_file() and read_mapping(about).get("model") != model:
            raise InputError(f"{index}: was begun with another model; go on with that one, or remove the folder")
        if not about.is_file():
            write_json(about, {"model": model})
        self._digests: list[str] = []
        self._rows: list[Rows] = []
        self._since = time.monotonic()

    def read(self) -> dict[str, Rows]:
        """All that was kept. A file that cannot be read is as if it were not there: its rows are embedded again."""
        kept: dict[str, Rows] = {}
        for file in sorted(self.folder.glob("*.npz")):
            try:
                with file.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
                    digests, rows = arrays["digests"], arrays["rows"]
            except Exception:  # a damaged file makes numpy raise a dozen kinds of error
                continue
            if rows.shape == (len(digests), self.dim) and rows.dtype == np.float32 and np.isfinite(rows).all():
                kept |= dict(zip(map(str, digests), rows, strict=True))
        return kept

    def add(self, digests: Sequence[str], rows: Rows) -> None:
        self._digests += digests
        self._rows.append(rows)
        if len(self._digests) >= MOST or time.monotonic() - self._since > SECONDS:
            self.write()

    def write(self) -> None:
        """What was added since the last time."""
        if self._digests:
            number = 1 + max((int(file.stem) for file in self.folder.glob("*.npz") if file.stem.isdigit()), default=-1)
            with replacing(self.folder / f"{number:06}.npz") as file:
                np.savez(file, digests=np.array(self._digests), rows=np.concatenate(self._rows))
            self._digests, self._rows = [], []
        self._since = time.monotonic()
