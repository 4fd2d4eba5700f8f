"""What a report says of each run's embeddings: neighbours of every item, crops that search for the whole, and a map in two dimensions."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from obdsd.errors import InputError
from obdsd.evaluation.retrieval import nearest
from obdsd.experiments.reporting.items import Shown
from obdsd.report.content import Neighbours

BEST = 5
PERPLEXITY = 15
STEPS = (75, 175)  # of t-SNE with and without early exaggeration
START = 1e-4  # spread of the first axis where t-SNE begins
FEW = 10  # items that need no more than their main directions

Projection = Literal["tsne", "umap"]


def neighbours_of(shown: Shown, rows: NDArray[np.float32]) -> Neighbours:
    """The nearest others of every item, in the part that its own part searches."""
    found = []
    for asking, searched in shown.searched.items():
        numbers = shown.numbers(searched)
        indices, cosines = nearest(shown.points(rows, numbers), shown.points(rows, shown.numbers(asking)), BEST)
        found.append((numbers[indices], cosines))
    depth = min(indices.shape[1] for indices, _ in found)
    return Neighbours(
        indices=np.concatenate([indices[:, :depth] for indices, _ in found]),
        cosines=np.concatenate([cosines[:, :depth] for _, cosines in found]),
    )


def positives_of(shown: Shown, rows: NDArray[np.float32]) -> Neighbours:
    """The nearest other of the same class for every item, at whatever rank; -1 where there is none."""
    labels, groups = shown.labels, shown.groups
    indices, cosines = np.full((len(labels), 1), -1), np.full((len(labels), 1), np.nan, dtype=np.float32)
    for asking, searched in shown.searched.items():
        askers, gallery = shown.numbers(asking), shown.numbers(searched)
        for label in np.unique(labels[askers]):
            own, kin = askers[labels[askers] == label], gallery[labels[gallery] == label]
            if not len(kin):
                continue
            similar = np.where(groups[own][:, None] == groups[kin][None, :], -np.inf, rows[own] @ rows[kin].T)
            best = similar.argmax(axis=1)
            there = np.isfinite(similar.max(axis=1))
            indices[own[there], 0], cosines[own[there], 0] = kin[best[there]], similar.max(axis=1)[there]
    return Neighbours(indices=indices, cosines=cosines)


def crops_search(
    shown: Shown, rows: NDArray[np.float32], crops: NDArray[np.float32], queries: NDArray[np.int64]
) -> tuple[Neighbours, float]:
    """What each query's crop finds, the query's own image left out, and Recall@1 of those that have something to find."""
    gallery = shown.numbers(shown.searched[shown.asking])
    asked = shown.points(crops, queries, np.arange(len(queries)))
    indices, cosines = nearest(shown.points(rows, gallery), asked, BEST)
    found = Neighbours(indices=gallery[indices], cosines=cosines)
    counted = positives_of(shown, rows).indices[queries, 0] >= 0
    hits = shown.labels[found.indices[:, 0]] == shown.labels[queries]
    return found, float(hits[counted].mean()) if counted.any() else 0.0


def layout(rows: NDArray[np.float32], how: Projection, seed: int, start: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
    """Places in two dimensions, the same for the same seed; from `start`, another run's places, so that maps resemble each other."""
    begin = _main_directions(rows) if start is None else start.astype(np.float64)
    if len(rows) < FEW:
        return begin.astype(np.float32)
    begin = begin * (START / max(float(begin[:, 0].std()), 1e-12))
    return (_tsne if how == "tsne" else _umap)(rows, begin, seed).astype(np.float32)


def check_projection(how: Projection) -> None:
    """Refuse before long work what cannot be drawn after it."""
    if how == "umap":
        _umap_module()


def _tsne(rows: NDArray[np.float32], begin: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Barnes-Hut on one thread gives the same numbers each time; a coarse tree serves a picture."""
    import openTSNE

    perplexity = min(PERPLEXITY, (len(rows) - 1) / 3)
    affinities = openTSNE.affinity.PerplexityBasedNN(rows, perplexity, method="exact", n_jobs=1, random_state=seed)
    places = openTSNE.TSNEEmbedding(begin, affinities, negative_gradient_method="bh", theta=0.8, n_jobs=1, random_state=seed)
    early, late = STEPS
    places.optimize(early, exaggeration=12, momentum=0.5, inplace=True)
    places.optimize(late, momentum=0.8, inplace=True)
    return np.asarray(places)


def _umap(rows: NDArray[np.float32], begin: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    spread = 10 * begin / max(float(np.abs(begin).max()), 1e-12)
    neighbours = min(PERPLEXITY, len(rows) - 1)
    fit = _umap_module().UMAP(n_neighbors=neighbours, metric="cosine", init=spread, random_state=seed, n_jobs=1)
    return np.asarray(fit.fit_transform(rows), dtype=np.float64)


def _umap_module() -> Any:
    try:
        import umap
    except ImportError as absent:
        raise InputError("map=umap needs the package umap-learn; pip install it, or use map=tsne") from absent
    return umap


def _main_directions(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """The two principal components, their signs fixed; rows of one number have but one."""
    centred = (rows - rows.mean(axis=0)).astype(np.float64)
    _, directions = np.linalg.eigh(centred.T @ centred)
    directions = directions[:, ::-1][:, :2]
    directions = directions * np.sign(directions[np.abs(directions).argmax(axis=0), np.arange(directions.shape[1])])
    places = centred @ directions
    return places if places.shape[1] == 2 else np.pad(places, ((0, 0), (0, 1)))
