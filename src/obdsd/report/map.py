"""A map of the items in two dimensions: t-SNE or UMAP, the same for the same seed."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from threadpoolctl import threadpool_limits

from obdsd.counting import Progress, counted
from obdsd.errors import InputError

PERPLEXITY = 15
START = 1e-4  # spread of the first axis where t-SNE begins
STEPS, EARLY = 250, 75  # of t-SNE, and how many of them exaggerate
TOLD = 25  # steps between two words of progress
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
    count, lock = counted(show, "map", STEPS * len(rows)), Lock()

    def advance(steps: int) -> None:
        with lock:  # maps are drawn side by side
            count(steps)

    draw = partial(draw_map, kind=kind, seed=seed, advance=advance)
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(os.cpu_count()) as pool:  # one thread each: the same numbers each time
        first = draw(rows[0])
        return [first, *pool.map(lambda others: draw(others, start=first), rows[1:])]


def draw_map(
    rows: NDArray[np.float32],
    kind: MapKind,
    seed: int,
    start: NDArray[np.float32] | None = None,
    advance: Callable[[int], None] = lambda steps: None,
) -> NDArray[np.float32]:
    """Places in two dimensions, from `start` or from the two main directions. `advance` is told of `STEPS` steps."""
    begin = _main_directions(rows) if start is None else start.astype(np.float64)
    if len(rows) < FEW:
        advance(STEPS)
        return begin.astype(np.float32)
    if kind == "tsne":
        return _tsne(rows, begin, seed, advance).astype(np.float32)
    places = _umap(rows, begin, seed).astype(np.float32)
    advance(STEPS)
    return places


def _tsne(rows: NDArray[np.float32], begin: NDArray[np.float64], seed: int, advance: Callable[[int], None]) -> NDArray[np.float64]:
    """Barnes-Hut on one thread gives the same numbers each time; few steps and a coarse tree serve a picture."""
    import openTSNE

    tsne = openTSNE.TSNE(
        perplexity=min(PERPLEXITY, (len(rows) - 1) / 3),
        neighbors="exact",
        negative_gradient_method="bh",
        theta=0.8,
        early_exaggeration_iter=EARLY,
        n_iter=STEPS - EARLY,
        initial_momentum=0.5,
        n_jobs=1,
        random_state=seed,
        callbacks=lambda step, error, places: advance(TOLD),
        callbacks_every_iters=TOLD,
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
