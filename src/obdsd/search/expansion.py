"""Query expansion and database augmentation: a row becomes a weighted mean of itself and its nearest (αQE, Radenović et al. 2018)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obdsd.counting import Progress, counted
from obdsd.errors import InputError
from obdsd.search.flat import Cosine, flat_search
from obdsd.search.reranker import CHUNK_ROWS, Fitted, Found, Reranker, kept, silent, unit_rows

INNER = "inner."  # begins the names of the arrays of what ranks the expanded rows


class AlphaExpansion(Reranker):
    """Query expansion: a query is the mean of itself and its nearest, weighted by cosine^α; the gallery's items too if augmented.

    Args:
        rerank: What ranks the expanded rows, such as diffusion; their cosine unless said.
        neighbours: How many of the nearest are in the mean.
        alpha: What their cosines are raised to, as weights; a negative cosine counts 0.
        augment: Whether the items of the gallery are expanded too (database augmentation).
    """

    def __init__(self, rerank: Reranker | None = None, neighbours: int = 10, alpha: float = 3.0, augment: bool = True) -> None:
        if neighbours < 1:
            raise InputError(f"neighbours={neighbours} must be 1 or more; try 10")
        if not 0 <= alpha <= 100:
            raise InputError(f"alpha={alpha} must lie in 0..100; try 3")
        self.inner, self.neighbours, self.alpha, self.augment = rerank or Cosine(), neighbours, alpha, augment

    def fit(self, rows: Any, progress: Progress = silent) -> FittedExpansion:
        own = unit_rows(rows)
        return FittedExpansion(self, own, self.inner.fit(self._augmented(own, progress) if self.augment else own, progress))

    def restore(self, rows: Any, arrays: Mapping[str, NDArray[Any]]) -> FittedExpansion:
        own = unit_rows(rows)
        inner = {name.removeprefix(INNER): array for name, array in arrays.items() if name.startswith(INNER)}
        searched = kept(arrays, "augmented", own.shape, "f") if self.augment else own
        return FittedExpansion(self, own, self.inner.restore(searched, inner))

    def expanded(self, rows: NDArray[np.float32], queries: NDArray[np.float32], own: NDArray[np.int64] | None) -> NDArray[np.float32]:
        """Unit rows of q + Σ max(cos, 0)^α z over the nearest z of each query q."""
        found = flat_search(rows, queries, min(self.neighbours, len(rows) - (own is not None)), own)
        weights = np.maximum(found.scores, 0) ** self.alpha
        sums = queries + np.einsum("qk,qkd->qd", weights, rows[found.positions])
        return sums / np.linalg.norm(sums, axis=1, keepdims=True)  # its part along q is 1 or more: no weight is negative

    def _augmented(self, rows: NDArray[np.float32], progress: Progress) -> NDArray[np.float32]:
        made, advance = np.empty_like(rows), counted(progress, "augmenting the gallery", len(rows))
        for start in range(0, len(rows), CHUNK_ROWS):
            part = np.arange(start, min(start + CHUNK_ROWS, len(rows)))
            made[part] = self.expanded(rows, rows[part], part)
            advance(len(part))
        return made


class FittedExpansion(Fitted):
    """A gallery, and the augmented one inside what ranks it."""

    def __init__(self, how: AlphaExpansion, rows: NDArray[np.float32], inner: Fitted) -> None:
        super().__init__(rows)
        self.how, self.inner = how, inner

    def _best(self, queries: NDArray[np.float32], k: int, own: NDArray[np.int64] | None) -> Found:
        return self.inner.search(self.how.expanded(self.rows, queries, own), k, own)

    def arrays(self) -> dict[str, NDArray[Any]]:
        augmented = {"augmented": self.inner.rows} if self.how.augment else {}
        return augmented | {INNER + name: array for name, array in self.inner.arrays().items()}
