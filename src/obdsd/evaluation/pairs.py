"""Pairs of rows by their cosine: how many there are, and which of them the distillation's gradient comes from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

PAIRS = 100_000  # drawn of each kind for a histogram


class Shares(NamedTuple):
    """Shares of pairs of one class and of different classes in each bin of the cosine; NaN where there is nothing to share."""

    positive: NDArray[np.float64]
    negative: NDArray[np.float64]


def cosine_histograms(
    embeddings: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"], edges: Float[np.ndarray, " e"], seed: int = 0
) -> Shares:
    """Shares of the cosines of pairs inside a class and between classes in each bin; of seeded draws of each kind."""
    generator = np.random.default_rng(seed)
    numbers = np.unique(labels, return_inverse=True)[1]
    order = np.argsort(numbers, kind="stable")
    counts = np.bincount(numbers)
    starts = np.cumsum(counts) - counts
    # Inside: a row by the number of partners that it has in its class, then one of them.
    first = generator.choice(len(order), PAIRS, p=(counts[numbers[order]] - 1) / (counts * (counts - 1)).sum())
    owner = numbers[order][first]
    step = generator.integers(1, np.maximum(counts[owner], 2))
    second = starts[owner] + (first - starts[owner] + step) % counts[owner]
    positive = _histogram(embeddings, order[first], order[second], edges)
    # Between: any two rows, those of one class dropped.
    left, right = generator.integers(0, len(order), (2, PAIRS))
    other = numbers[left] != numbers[right]
    return Shares(positive, _histogram(embeddings, left[other], right[other], edges))


def _histogram(
    embeddings: NDArray[np.float32], left: NDArray[np.int64], right: NDArray[np.int64], edges: NDArray[np.float64]
) -> NDArray[np.float64]:
    counts = np.zeros(len(edges) - 1)
    for start in range(0, len(left), 8192):
        part = slice(start, start + 8192)
        cosines = np.einsum("ij,ij->i", embeddings[left[part]], embeddings[right[part]])
        counts += np.histogram(np.clip(cosines, -1, 1), edges)[0]
    return counts / counts.sum()


def gradient_shares(
    student: Float[Tensor, "b d"],
    targets: Float[Tensor, "b b"],
    labels: Int[Tensor, " b"],
    edges: Float[np.ndarray, " e"],
    temperature: float = 1.0,
) -> Shares:
    """Which pairs the distillation's gradient comes from, by the cosine of the pair: easy positives lie near 1, hard ones low.

    The pair (i, j) adds ‖z_j - (z_i·z_j) z_i‖ · |P_ij - S_ij| = √(1 - (z_i·z_j)²) · |P_ij - S_ij| along v_i (Eq. 8 to 10), P the
    student's and S the teacher's probabilities; shares are of the sum over all pairs. NaN if no pair has any.
    """
    D = student.double() @ student.double().T  # (batch, batch), cosine: rows are unit
    P = torch.softmax(D / temperature, dim=1)
    pull = ((1 - D.clamp(-1, 1).square()).sqrt() * (P - targets.double()).abs()).fill_diagonal_(0)
    cosines = np.clip(D.numpy(), -1, 1)
    same = (labels[:, None] == labels[None, :]).numpy()
    total = pull.sum().item() or np.nan

    def share(chosen: NDArray[np.bool_]) -> NDArray[np.float64]:
        return np.histogram(cosines[chosen], edges, weights=pull.numpy()[chosen])[0] / total

    return Shares(share(same), share(~same))
