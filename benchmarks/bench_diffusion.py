"""Diffusion on a batch: a solve against the inverse that the published code computes, from 112 to 8192 rows."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from benchmarks.harness import Comparison, clustered_rows, run
from obdsd import BatchDiffusion, diffuse, symmetric_transition

OMEGA, DIM = 0.3, 128
BATCHES = (112, 224, 512, 1024, 2048, 4096, 8192)
SOLVE_GOALS = {112: round(1 / 1.1, 3), 2048: 1.4, 4096: 1.7}
TARGET_GOALS = {2048: 2.5}


def comparisons() -> Iterator[Comparison]:
    for batch in BATCHES:
        Z = clustered_rows(batch, DIM)
        D = Z @ Z.T
        S = symmetric_transition(D)

        def inverse(D=D, S=S, batch=batch) -> torch.Tensor:
            return (1 - OMEGA) * (torch.inverse(torch.eye(batch) - OMEGA * S) @ D)

        yield Comparison(
            name=f"diffuse, b = {batch}",
            ours=lambda D=D, S=S: diffuse(D, S, OMEGA),
            peer=inverse,
            peer_name="inverse(I-ωS) @ D",
            goal=SOLVE_GOALS.get(batch),
            rounds=6 if batch > 4096 else 15,
        )
        targets = BatchDiffusion(OMEGA)
        yield Comparison(
            name=f"BatchDiffusion from rows to targets, b = {batch}, d = {DIM}",
            ours=lambda Z=Z, targets=targets: targets(Z),
            peer=inverse,
            peer_name="inverse(I-ωS) @ D alone, S and D given",
            goal=TARGET_GOALS.get(batch),
            rounds=6 if batch > 4096 else 15,
        )


def main() -> None:
    with torch.no_grad():
        run("Diffusion on the batch manifold", "diffusion", comparisons())
