"""Literal, slow versions of the definitions: loops and iterations, no linear algebra shared with the package."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch
from torch import Tensor


def unit_rows(batch: int, dim: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    z = torch.randn(batch, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.nn.functional.normalize(z, dim=1).to(dtype)


def symmetric_transition(D: Tensor) -> Tensor:
    """S_ij = W_ij / sqrt(V_i V_j); a row without positive neighbours loops on itself."""
    n = len(D)
    W = [[max(float(D[i, j]), 0.0) if i != j else 0.0 for j in range(n)] for i in range(n)]
    V = [sum(row) for row in W]
    S = torch.zeros(n, n, dtype=torch.float64)
    for i, j in itertools.product(range(n), range(n)):
        if V[i] == 0:
            S[i, j] = float(i == j)
        elif V[j] > 0:
            S[i, j] = W[i][j] / math.sqrt(V[i] * V[j])
    return S


def softmax_transition(D: Tensor, temperature: float) -> Tensor:
    n = len(D)
    S = torch.zeros(n, n, dtype=torch.float64)
    for i in range(n):
        peak = max(float(D[i, j]) for j in range(n) if j != i)
        weights = [math.exp((float(D[i, j]) - peak) / temperature) if j != i else 0.0 for j in range(n)]
        for j in range(n):
            S[i, j] = weights[j] / sum(weights)
    return S


def walk(state: Tensor, S: Tensor, omega: float, tolerance: float = 1e-14) -> Tensor:
    """Iterate f ← ωSf + (1-ω)·state until it stands still."""
    f = state
    for _ in range(100_000):
        following = omega * (S @ f) + (1 - omega) * state
        if (following - f).abs().max() <= tolerance:
            return following
        f = following
    raise AssertionError("the walk does not converge: S is no transition matrix")


def triplets(labels: list[int]) -> Iterator[tuple[int, int, int]]:
    """All valid (anchor, positive, negative)."""
    for a, p, n in itertools.product(range(len(labels)), repeat=3):
        if a != p and labels[a] == labels[p] and labels[a] != labels[n]:
            yield a, p, n


Law = dict[tuple[int, int, int], float]  # the probability of each triplet


def _independent(a: int, positives: list[int], negatives: list[int], weights: list[float] | None = None) -> Law:
    weights = weights or [1.0] * len(negatives)
    return {(a, p, n): w / sum(weights) / len(positives) for p in positives for n, w in zip(negatives, weights, strict=True)}


def sampling_law(kind: str, d: list[list[float]], labels: list[int], dim: int) -> Law:
    """The distribution of a triplet by the definition of each sampler; of one anchor's triplet, unless `random`."""
    if kind == "random":
        every = list(triplets(labels))
        return dict.fromkeys(every, 1 / len(every))
    law: Law = {}
    for a in range(len(labels)):
        P = sorted({p for x, p, _ in triplets(labels) if x == a})
        N = sorted({n for x, _, n in triplets(labels) if x == a})
        if not P:
            continue
        if kind == "semihard":
            for p in P:
                between = [n for n in N if d[a][p] < d[a][n] < d[a][p] + 0.2]
                law |= {key: value / len(P) for key, value in _independent(a, [p], between or N).items()}
        elif kind == "softhard":
            hard_p = [p for p in P if d[a][p] > min(d[a][n] for n in N)]
            hard_n = [n for n in N if d[a][n] < max(d[a][p] for p in P)]
            law |= _independent(a, hard_p or P, hard_n or N)
        else:
            weights = []
            for n in N:
                x = max(d[a][n], 0.5)
                weights.append(1 / (x ** (dim - 2) * (1 - x * x / 4) ** ((dim - 3) / 2)))
            plain = _independent(a, P, N, weights)
            if kind == "distance":
                law |= plain
            else:  # regularised: one in five pushes a true positive away
                law |= {key: 0.8 * value for key, value in plain.items()}
                law |= {(a, a, p): 0.2 / len(P) for p in P}
    return law
