"""What a search finds in each run's embeddings: neighbours of every item, and what crops find."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from obdsd.evaluation.retrieval import nearest
from obdsd.report.content import Neighbours
from obdsd.report.items import Shown

BEST = 5  # found items that are shown


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
