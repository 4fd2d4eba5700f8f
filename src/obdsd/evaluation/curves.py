"""How the geometry of an embedding space changes over a training: the numbers behind the paper's pictures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from obdsd.evaluation.geometry import density, singular_values, spectral_decay
from obdsd.evaluation.points import Points, checked
from obdsd.method.targets import PairwiseTargets, Targets

PAIRS = 100_000  # drawn of each kind for a histogram
BATCHES = 8  # over which the gradient's shares are averaged


class Shares(NamedTuple):
    """Shares of pairs of one class and of different classes in each bin of the cosine; NaN where there is nothing to share."""

    positive: NDArray[np.float64]
    negative: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class GeometryCurves:
    """One row or number a snapshot (t of them): density, spectrum, histograms of cosines, and who gets the distillation's gradient.

    `edges` are those of the bins of the cosine. `gradient` is NaN for the first snapshot, which has no teacher before it.
    """

    epochs: NDArray[np.int64]  # (t,)
    intra: NDArray[np.float64]  # (t,)
    inter: NDArray[np.float64]  # (t,)
    spectral_decay: NDArray[np.float64]  # (t,)
    singular_values: NDArray[np.float64]  # (t, dim), descending
    edges: NDArray[np.float64]  # (bins + 1,)
    cosines: Shares  # (t, bins) each; each sums to 1 over the bins
    gradient: Shares  # (t, bins) each; both together sum to 1 over the bins

    @property
    def density(self) -> NDArray[np.float64]:
        return self.intra / self.inter


def geometry_curves(
    snapshots: Iterable[tuple[int, Any]],
    labels: Any,
    *,
    targets: Targets | None = None,
    temperature: float = 1.0,
    batch_size: int = 112,
    bins: int = 40,
    seed: int = 0,
) -> GeometryCurves:
    """The curves of (epoch, embeddings) snapshots of the same items, read one after the other and not kept.

    The teacher of a snapshot is the snapshot before it, as in PSD: `targets` (default: the paper's pairwise ones) of the one and the
    other's similarities give the gradient's shares, over seeded batches.

    >>> turn = [np.stack([np.cos(a), np.sin(a), 0 * a, 0 * a + 1], axis=1) for a in (np.arange(6.0), np.arange(6.0) / 2)]
    >>> geometry_curves(enumerate(turn), [0, 0, 0, 1, 1, 1], batch_size=4).density.shape
    (2,)
    """
    edges = np.linspace(-1, 1, bins + 1)
    refine = PairwiseTargets() if targets is None else targets
    rows: list[tuple[Any, ...]] = []
    before: NDArray[np.float32] | None = None
    for epoch, embeddings in snapshots:
        z, y, _ = checked(Points(embeddings, labels))
        spread = density(z, y)
        gradient = Shares(np.full(bins, np.nan), np.full(bins, np.nan))
        if before is not None:
            gradient = _batched_gradient_shares(z, before, y, edges, refine, temperature, batch_size, seed)
        cosines = cosine_histograms(z, y, edges, seed)
        rows.append((epoch, spread.intra, spread.inter, spectral_decay(z), singular_values(z), cosines, gradient))
        before = z
    epochs, intra, inter, decay, spectrum, cosine_rows, gradient_rows = zip(*rows, strict=True)
    return GeometryCurves(
        epochs=np.array(epochs, dtype=np.int64),
        intra=np.array(intra),
        inter=np.array(inter),
        spectral_decay=np.array(decay),
        singular_values=np.stack(spectrum),
        edges=edges,
        cosines=Shares(*map(np.stack, zip(*cosine_rows, strict=True))),
        gradient=Shares(*map(np.stack, zip(*gradient_rows, strict=True))),
    )


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


def _batched_gradient_shares(
    student: NDArray[np.float32],
    teacher: NDArray[np.float32],
    labels: NDArray[Any],
    edges: NDArray[np.float64],
    refine: Targets,
    temperature: float,
    batch_size: int,
    seed: int,
) -> Shares:
    """The mean over a few batches as training sees them: two random members of each of some random classes."""
    _, numbers, counts = np.unique(labels, return_inverse=True, return_counts=True)
    several = [members for members in np.split(np.argsort(numbers), np.cumsum(counts)[:-1]) if len(members) > 1]
    generator = np.random.default_rng(seed)
    shares = []
    for _ in range(BATCHES):
        classes = generator.permutation(len(several))[: batch_size // 2]
        batch = np.concatenate([generator.choice(several[c], 2, replace=False) for c in classes])
        targets = refine(torch.from_numpy(teacher[batch]), temperature)
        shares.append(gradient_shares(torch.from_numpy(student[batch]), targets, torch.from_numpy(numbers[batch]), edges, temperature))
    return Shares(*(np.mean(side, axis=0) for side in zip(*shares, strict=True)))
