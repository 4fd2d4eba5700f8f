"""How well k-means finds the classes: NMI and AMI."""

from __future__ import annotations

from collections.abc import Callable

import faiss
import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.special import gammaln

ITERATIONS = 20  # at most
TOLERANCE = 1e-4  # k-means ends when an iteration improves its objective by less than this share
MOST_ROWS = 256  # for each cluster: of more rows some are drawn
NEXT_START = 15_486_557  # what faiss adds to the seed for another start


def kmeans(
    embeddings: Float[np.ndarray, "n d"],
    clusters: int,
    seed: int = 0,
    restarts: int = 1,
    tell: Callable[[int, int], object] = lambda done, total: None,
) -> NDArray[np.int64]:
    """The cluster of each row; of several seeded starts the one with the smallest objective.

    It is `faiss.Kmeans(niter=20, nredo=restarts, early_stop_threshold=1e-4)`, bit for bit, an iteration at a time, so that `tell` hears how
    many of at most how many iterations are done.
    """
    rows = np.ascontiguousarray(embeddings, dtype=np.float32)
    sample = rows if len(rows) <= MOST_ROWS * clusters else rows[_drawn(len(rows), MOST_ROWS * clusters, seed)]
    best, least = faiss.Kmeans(rows.shape[1], clusters), np.inf
    for start in range(restarts):
        # few images a class are the rule here, and no reason for a warning
        machine = faiss.Kmeans(rows.shape[1], clusters, niter=1, min_points_per_centroid=1, max_points_per_centroid=MOST_ROWS)
        machine.centroids = sample[_drawn(len(sample), clusters, seed + 1 + start * NEXT_START)]
        before = objective = np.inf
        for iteration in range(ITERATIONS):
            tell(start * ITERATIONS + iteration, restarts * ITERATIONS)
            objective = machine.train(sample, init_centroids=machine.centroids)
            if before - objective < TOLERANCE * before < np.inf:
                break
            before = objective
        if objective < least:
            best, least = machine, objective
    tell(restarts * ITERATIONS, restarts * ITERATIONS)
    return best.assign(rows)[1].astype(np.int64)


def _drawn(rows: int, count: int, seed: int) -> NDArray[np.int32]:
    """Some of so many rows, as faiss draws them."""
    order = np.empty(rows, dtype=np.int32)
    faiss.rand_perm(faiss.swig_ptr(order), rows, seed)  # type: ignore[attr-defined]
    return order[:count]


def nmi(labels: Int[np.ndarray, " n"], clusters: Int[np.ndarray, " n"]) -> float:
    """NMI = 2 I(Ω, C) / (H(Ω) + H(C)), Ω the clusters and C the classes.

    >>> nmi(np.array([0, 0, 1, 1]), np.array([5, 5, 3, 3]))
    1.0
    """
    from sklearn.metrics import normalized_mutual_info_score  # a second of imports, which a search need not wait for

    return float(normalized_mutual_info_score(labels, clusters))


def ami(labels: Int[np.ndarray, " n"], clusters: Int[np.ndarray, " n"]) -> float:
    """AMI = (I - E[I]) / ((H(Ω) + H(C)) / 2 - E[I]): what of NMI is beyond chance, which grows with the number of clusters.

    >>> ami(np.array([0, 0, 1, 1]), np.array([5, 5, 3, 3]))
    1.0
    """
    from sklearn.metrics import mutual_info_score

    found, chance = mutual_info_score(labels, clusters), expected_mutual_information(labels, clusters)
    most = (_entropy(labels) + _entropy(clusters)) / 2
    return float((found - chance) / (most - chance))


def expected_mutual_information(labels: Int[np.ndarray, " n"], clusters: Int[np.ndarray, " n"]) -> float:
    """E[I] over random assignments with the same sizes: Σ_{a,b} Σ_m m/n · log(n·m / (a·b)) · P(m), P hypergeometric.

    Summed over the *distinct* sizes a of classes and b of clusters, each pair as often as it occurs: thousands of classes have but a
    few dozen sizes.
    """
    n = len(labels)
    factorial = gammaln(np.arange(n + 1) + 1.0)  # log of each factorial
    total = 0.0
    b, times_b = np.unique(np.unique(clusters, return_counts=True)[1], return_counts=True)
    for a, times_a in zip(*np.unique(np.unique(labels, return_counts=True)[1], return_counts=True), strict=True):
        for size, times in zip(b, times_b, strict=True):
            m = np.arange(max(1, a + size - n), min(a, size) + 1)
            ways = factorial[a] - factorial[m] - factorial[a - m] + factorial[n - a] - factorial[size - m] - factorial[n - a - size + m]
            probability = np.exp(ways - factorial[n] + factorial[size] + factorial[n - size])
            total += times_a * times * float(np.sum(m / n * np.log(n * m / (a * size)) * probability))
    return total


def _entropy(labels: Int[np.ndarray, " n"]) -> float:
    share = np.unique(labels, return_counts=True)[1] / len(labels)
    return float(-(share * np.log(share)).sum())
