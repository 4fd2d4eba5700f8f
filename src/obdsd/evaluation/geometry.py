"""Geometry of an embedding space in closed form: class sums and the Gram matrix, never a matrix of all pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.sparse import csr_array

from obdsd.errors import InputError
from obdsd.evaluation.points import chunks


@dataclass(frozen=True)
class Density:
    """π_intra, π_inter and their ratio (Sec. 5.6): a higher ratio means classes less concentrated for how far they are apart.

    Where all rows are drawn together both distances shrink, and the ratio may rise by that alone.
    """

    intra: float
    inter: float

    @property
    def ratio(self) -> float:
        """Infinite if all class means point the same way."""
        return self.intra / self.inter if not self.inter <= 1e-12 else float("inf")


def density(embeddings: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"]) -> Density:
    """Mean over classes of the mean pairwise cosine distance inside, and mean cosine distance between normalised class means.

    For the unit rows of a class with sum s, Σ_{i≠j} z_i·z_j = ‖s‖² - Σ‖z_i‖²; the same identity serves the class means.
    A class of one image has no pair inside and counts for `inter` only; one whose rows add up to nothing has no direction and counts
    for `intra` only. With fewer than two directions `inter` is NaN.

    >>> density(np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]), np.array([0, 0, 1, 1]))
    Density(intra=1.0, inter=2.0)
    """
    _, inverse, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if len(counts) < 2 or counts.max() < 2:
        raise InputError(f"labels of {len(counts)} classes, the largest of {counts.max()}: density needs 2 classes and a pair in one")
    sums, squares = np.zeros((len(counts), embeddings.shape[1])), np.zeros(len(counts))
    for part, rows in chunks(embeddings):
        members = csr_array((np.ones(len(rows)), (inverse[part], np.arange(len(rows)))), shape=(len(counts), len(rows)))
        sums += members @ rows
        squares += members @ np.square(rows).sum(axis=1)
    paired = counts > 1
    cosine_sums = np.square(sums[paired]).sum(axis=1) - squares[paired]
    intra = np.mean(1 - cosine_sums / (counts[paired] * (counts[paired] - 1)))
    lengths = np.linalg.norm(sums, axis=1)
    directed = lengths > 1e-6 * counts
    means = sums[directed] / lengths[directed, None]
    classes = len(means)
    if classes < 2:
        return Density(float(intra), float("nan"))
    inter = 1 - (np.square(means.sum(axis=0)).sum() - classes) / (classes * (classes - 1))
    return Density(float(intra), float(inter))


def singular_values(embeddings: Float[np.ndarray, "n d"]) -> NDArray[np.float64]:
    """All singular values of the (uncentred) embeddings in descending order, from the d×d Gram matrix.

    What is below 1e-7 of the largest is rounding of that matrix, and 0.
    """
    if embeddings.shape[0] > embeddings.shape[1]:
        gram = sum((rows.T @ rows for _, rows in chunks(embeddings)), start=np.zeros((embeddings.shape[1],) * 2))
    else:
        rows = embeddings.astype(np.float64)
        gram = rows @ rows.T
    squares = np.linalg.eigvalsh(gram)[::-1]
    return np.sqrt(np.where(squares > 1e-14 * squares[0], squares, 0))


def spectral_decay(embeddings: Float[np.ndarray, "n d"], skip: int = 2) -> float:
    """ρ = KL(U ‖ s/Σs) over the singular values without the `skip` largest (Sec. 5.6): lower is more diverse.

    Infinite if a direction is not used at all.

    >>> spectral_decay(np.eye(5))
    0.0
    """
    s = singular_values(embeddings)[skip:]
    if not len(s):
        raise InputError(f"skip={skip} leaves no singular value of embeddings of shape {embeddings.shape}; give more rows or dimensions")
    return float(np.mean(np.log(s.sum() / (len(s) * s)))) if s.all() else float("inf")
