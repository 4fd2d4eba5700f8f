"""What a re-ranker is: its offline work on a gallery, and then answers to queries."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from obdsd.counting import Progress
from obdsd.errors import InputError

CHUNK_ROWS = 1024  # queries that are answered at a time


def silent(stage: str, done: int, total: int) -> None:
    """Progress that nobody wants to hear of."""


class Found(NamedTuple):
    """For each query the positions in the gallery, best first, and their scores, which never rise."""

    scores: NDArray[np.float32]
    positions: NDArray[np.int64]


class Fitted(abc.ABC):
    """A gallery of unit rows with the offline work that a re-ranker did on it.

    Attributes:
        rows: The gallery, (items, dim), float32 of unit length.
    """

    def __init__(self, rows: NDArray[np.float32]) -> None:
        self.rows = rows

    def search(self, queries: Any, k: int, own: Any = None) -> Found:
        """The k best items of the gallery for each query.

        Args:
            queries: A row for each query, (queries, dim); they are brought to unit length.
            k: How many to find.
            own: For each query its own position in the gallery, where all queries are items of it. An item never finds itself.
        """
        asked, places = unit_rows(queries, "queries."), self._checked(k, own)
        if asked.shape[1] != self.rows.shape[1]:
            raise InputError(f"queries of dim {asked.shape[1]} must have the gallery's dim {self.rows.shape[1]}; embed both with one model")
        if places is not None and len(places) != len(asked):
            raise InputError(f"own of {len(places)} positions must have one for each of the {len(asked)} queries")
        found = Found(np.empty((len(asked), k), dtype=np.float32), np.empty((len(asked), k), dtype=np.int64))
        for start in range(0, len(asked), CHUNK_ROWS):
            part = slice(start, start + CHUNK_ROWS)
            found.scores[part], found.positions[part] = self._best(asked[part], k, None if places is None else places[part])
        return found

    def _checked(self, k: int, own: Any) -> NDArray[np.int64] | None:
        size = len(self.rows)
        most = size - (own is not None)
        if not 1 <= k <= most:
            raise InputError(f"k={k} must lie in 1..{most}, the items that can be found; ask for fewer")
        if own is None:
            return None
        places = np.asarray(own)
        if places.ndim != 1 or places.dtype.kind not in "iu" or (len(places) and not 0 <= places.min() <= places.max() < size):
            raise InputError(f"own must be positions in the gallery, whole numbers in 0..{size - 1}; give one for each query")
        return places.astype(np.int64)

    @abc.abstractmethod
    def _best(self, queries: NDArray[np.float32], k: int, own: NDArray[np.int64] | None) -> Found:
        """The same for some unit rows, when all is checked."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The offline work, to be kept on disk: `restore` makes the same out of it. A re-ranker that does none has none."""
        return {}


class Reranker(abc.ABC):
    """Orders a gallery for a query, given the whole unlabelled gallery (which makes it transductive)."""

    @abc.abstractmethod
    def fit(self, rows: Any, progress: Progress = silent) -> Fitted:
        """Do the offline work on a gallery, (items, dim); rows are brought to unit length."""

    @abc.abstractmethod
    def restore(self, rows: Any, arrays: Mapping[str, NDArray[Any]]) -> Fitted:
        """The same as `fit(rows)`, out of `arrays()` of an earlier one."""


def unit_rows(rows: Any, field: str = "") -> NDArray[np.float32]:
    """Rows of unit length in float32; what is no matrix of finite numbers is refused."""
    from obdsd.evaluation.points import Points, checked  # only now: it brings faiss, and who asks for settings searches nothing

    size = len(rows) if hasattr(rows, "__len__") else 0
    return checked(Points(rows, np.zeros(size, dtype=np.int64)), field).embeddings


def kept(arrays: Mapping[str, NDArray[Any]], name: str, shape: tuple[int | None, ...], kind: str) -> NDArray[Any]:
    """An array of earlier work, refused unless it has this shape (None: any length) and kind of number."""
    if name not in arrays:
        raise InputError(f"arrays: {name!r} is missing; the gallery was fitted by another re-ranker, fit it again")
    array = arrays[name]
    fits = array.ndim == len(shape) and all(want is None or want == have for want, have in zip(shape, array.shape, strict=True))
    if not fits or array.dtype.kind != kind:
        raise InputError(f"arrays: {name!r} of shape {array.shape} and type {array.dtype} does not fit this gallery; fit it again")
    return array
