"""A map of the items in two dimensions: t-SNE or UMAP, the same for the same seed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from threadpoolctl import threadpool_limits

from obdsd.errors import InputError
from obdsd.evaluation.metrics import Progress

PERPLEXITY = 15
START = 1e-4  # spread of the first axis where t-SNE begins
FEW = 10  # items that need no more than their main directions

MapKind = Literal["tsne", "umap"]


def check_map(kind: MapKind) -> None:
    """Refuse before long work what cannot be drawn after it."""
    if kind == "umap":
        try:
            import umap  # noqa: F401
        except ImportError as absent:
            raise InputError("map=umap needs the package umap-learn; pip install it, or use map=tsne") from absent


def draw_maps(rows: Sequence[NDArray[np.float32]], kind: MapKind, seed: int, show: Progress) -> list[NDArray[np.float32]]:
    """The first run's map, and those of the others from there, so that maps resemble each other."""
    show("map", 0, len(rows))
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(os.cpu_count()) as pool:  # one thread each: the same numbers each time
        maps = [draw_map(rows[0], kind, seed)]
        show("map", 1, len(rows))
        for other in pool.map(lambda others: draw_map(others, kind, seed, maps[0]), rows[1:]):
            maps.append(other)
            show("map", len(maps), len(rows))
    return maps


def draw_map(rows: NDArray[np.float32], kind: MapKind, seed: int, start: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
    """Places in two dimensions, from `start` or from the two main directions."""
    begin = _main_directions(rows) if start is None else start.astype(np.float64)
    if len(rows) < FEW:
        return begin.astype(np.float32)
    return (_tsne if kind == "tsne" else _umap)(rows, begin, seed).astype(np.float32)


def _tsne(rows: NDArray[np.float32], begin: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Barnes-Hut on one thread gives the same numbers each time; few steps and a coarse tree serve a picture."""
    import openTSNE

    tsne = openTSNE.TSNE(
        perplexity=min(PERPLEXITY, (len(rows) - 1) / 3),
        neighbors="exact",
        negative_gradient_method="bh",
        theta=0.8,
        early_exaggeration_iter=75,
        n_iter=175,
        initial_momentum=0.5,
        n_jobs=1,
        random_state=seed,
    )
    small = START / max(float(begin[:, 0].std()), 1e-12)
    return np.asarray(tsne.fit(rows, initialization=small * begin))


def _umap(rows: NDArray[np.float32], begin: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    import umap

    spread = 10 * begin / max(float(np.abs(begin).max()), 1e-12)
    neighbours = min(PERPLEXITY, len(rows) - 1)
    fit = umap.UMAP(n_neighbors=neighbours, metric="cosine", init=spread, random_state=seed, n_jobs=1)
    return np.asarray(fit.fit_transform(rows), dtype=np.float64)


def _main_directions(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """The two principal components; rows of one number have but one, and rows that are all the same none."""
    if not np.ptp(rows, axis=0).any():
        return np.zeros((len(rows), 2))
    places = PCA(min(2, *rows.shape), svd_solver="full").fit_transform(rows.astype(np.float64))
    return np.pad(places, ((0, 0), (0, 2 - places.shape[1])))
