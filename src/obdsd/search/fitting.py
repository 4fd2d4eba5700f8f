"""Re-rankers of an index: their work on all rows is done once, and kept in the index's folder."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from obdsd.catalogue import RERANKERS
from obdsd.errors import InputError
from obdsd.search.folder import Arrays, Settings, alone, checked, read_settings, store_arrays, write_settings
from obdsd.search.how import Progress
from obdsd.search.reranker import Fitted

Rows = NDArray[np.float32]


def canonical(rerank: str) -> str:
    """The one way to write a re-ranker; one that there is not is refused."""
    return str(RERANKERS.checked(rerank))


def fit(rerank: str, rows: Rows, progress: Progress) -> Arrays:
    """The work of a re-ranker on all rows, as arrays."""
    return RERANKERS.build(rerank).fit(rows, progress).arrays()


def fitted(folder: Path, settings: Settings, rows: Rows, rerank: str, progress: Progress) -> Fitted:
    """A re-ranker with its work on the rows of an index: as it was kept, else done now, and kept if the folder can be written."""
    reranker = RERANKERS.build(rerank)
    if rerank in settings.rerank:
        with suppress(InputError, OSError):  # damaged, or of an index that has just changed: it is done again
            return reranker.restore(rows, _read(checked(folder, settings.rerank[rerank])))
    made = reranker.fit(rows, progress)
    with suppress(InputError):  # the disk is full or read-only, or another process writes: it is done again next time
        _keep(folder, settings.generation, rerank, made.arrays())
    return made


def _keep(folder: Path, generation: int, rerank: str, arrays: Arrays) -> None:
    with alone(folder):
        now = read_settings(folder)
        if now.generation == generation:  # else it is the work on other rows
            used = {file.name for file in now.rerank.values()}
            names = (f"rerank-{generation}-{number}.npz" for number in range(len(used) + 1))
            file = store_arrays(folder, next(name for name in names if name not in used), arrays)
            write_settings(folder, replace(now, rerank={**now.rerank, rerank: file}))


def _read(path: Path) -> Arrays:
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except Exception as damage:  # a damaged file makes numpy raise a dozen kinds of error
        raise InputError(f"{path}: cannot be read; it is made anew") from damage
