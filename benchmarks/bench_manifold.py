"""Diffusion on the global manifold: a sparse walk over the whole training set against dense matrices, and how it grows."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from benchmarks.harness import Comparison, Measurement, clustered_rows, run, watched
from obdsd import GlobalDiffusion, diffuse
from obdsd.method.graph import Graph, mutual_neighbours, normalised, solve_walk

DIM, NEIGHBOURS = 128, 50
CUB, SOP = 5_864, 59_551  # images in their training sets
SIZES = (1_500, 3_000, 6_000, 12_000, 24_000)
OMEGA = {CUB: 0.3, SOP: 0.5}  # the paper's
SECONDS_GOAL, MIB_GOAL = {CUB: 2.0, SOP: 60.0}, 1024.0
INVERSE_GOAL = 5.0


def dense_transition(Z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """D = ZZᵀ and S on the same mutual neighbours, both (n, n)."""
    D = Z @ Z.T
    nearest = D.clone().fill_diagonal_(-2).topk(NEIGHBOURS, dim=1, sorted=False).indices
    near = torch.zeros_like(D, dtype=torch.bool).scatter_(1, nearest, True)
    W = D.clamp(min=0).mul_(near & near.T)
    root = W.sum(dim=1).rsqrt()
    return D, W * torch.outer(root, root)


def comparisons() -> Iterator[Comparison]:
    Z, omega = clustered_rows(CUB, DIM, per_class=59), OMEGA[CUB]
    diffusion = GlobalDiffusion(omega, NEIGHBOURS)

    def inverse() -> torch.Tensor:
        D, S = dense_transition(Z)
        return (1 - omega) * torch.inverse(torch.eye(CUB) - omega * S) @ D

    def cholesky() -> torch.Tensor:
        return diffuse(Z, dense_transition(Z)[1], omega, symmetric=True)

    diffusion.fit(Z)
    torch.testing.assert_close(cholesky(), diffusion.walked, rtol=0, atol=1e-5)
    name = f"GlobalDiffusion.fit, N = {CUB:,}, d = {DIM}, k = {NEIGHBOURS}, ω = {omega}"
    for peer, step, goal in ((inverse, "inverse(I-ωS) @ D", INVERSE_GOAL), (cholesky, "Cholesky for the d columns of Z", None)):
        peer_name, pace = f"dense S on the same graph, then {step}", {"slow": True, "rounds": 6, "threads": 1}
        yield Comparison(name=name, ours=lambda: diffusion.fit(Z), peer=peer, peer_name=peer_name, goal=goal, **pace)


class Counting(Graph):
    """Knows how often it was multiplied: once an iteration."""

    products = 0

    def __matmul__(self, x: torch.Tensor) -> torch.Tensor:
        Counting.products += 1
        return super().__matmul__(x)


def iterations(S: Graph, Z: torch.Tensor, omega: float) -> int:
    Counting.products = 0
    solve_walk(Counting(S.starts, S.columns, S.weights), Z, omega)
    return Counting.products


def growth(samples: int, per_class: int, omega: float, threads: int) -> dict[str, Any]:
    """One fit in its three parts, with its peak of memory, and the iterations of the solve."""
    Z = clustered_rows(samples, DIM, per_class)
    parts: dict[str, float] = {}
    kept: list[Graph] = []

    def fit() -> None:
        start = time.perf_counter()
        W = mutual_neighbours(Z, NEIGHBOURS)
        parts["neighbours"] = time.perf_counter() - start
        kept.append(normalised(W))
        parts["normalise"] = time.perf_counter() - start - parts["neighbours"]
        solve_walk(kept[0], Z, omega)

    with threadpool_limits(threads):
        seconds, mib = watched(fit)
        parts["solve"] = seconds - sum(parts.values())
        steps = {str(probability): iterations(kept[0], Z, probability) for probability in (0.3, 0.5, 0.99)}
    facts = {"samples": samples, "omega": omega, "threads": threads, "seconds": seconds, "parts": parts, "mib": mib}
    return facts | {"edges": len(kept[0].weights) / samples, "iterations": steps, "dense_mib": 3 * 4 * samples**2 / 2**20}


def more(measurements: list[Measurement]) -> tuple[dict[str, object], list[str]]:
    cores = torch.get_num_threads()
    load = os.getloadavg()[0]
    cases = [(n, 5, 0.5, 1) for n in SIZES] + [(CUB, 59, OMEGA[CUB], 1), (SOP, 5, OMEGA[SOP], 1), (SOP, 5, OMEGA[SOP], cores)]
    found = []
    for case in cases:
        found.append(growth(*case))
        print(f"  {found[-1]}", flush=True)
    lines = [
        "",
        f"Embeddings are made up: unit rows of classes with spread (59 a class at {CUB:,}, as CUB has; else 5, as SOP has). The comparison "
        f"above ran on one thread. The machine was busy with other work (load average {load:.1f} on {os.cpu_count()} cores): ratios and "
        "peaks of memory can be relied on, seconds are upper bounds.",
        "",
        f"One fit, d = {DIM}, k = {NEIGHBOURS}. *Dense* is what D, S and the inverse of I-ωS take, in float32.",
        "",
        "| N | ω | threads | seconds | of it neighbours | normalise | solve | peak, MiB | dense, MiB | edges a sample | "
        "iterations at ω = 0.3, 0.5, 0.99 | goal |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|---|",
    ]
    return {"growth": found, "load_average": load}, lines + [_row(entry) for entry in found]


def _row(entry: dict[str, Any]) -> str:
    samples, seconds, mib = entry["samples"], entry["seconds"], entry["mib"]
    parts = [f"{part:.2f}" for part in entry["parts"].values()]
    goal = ""
    if samples in SECONDS_GOAL:
        held = seconds <= SECONDS_GOAL[samples] and (mib is None or mib <= MIB_GOAL)
        goal = f"≤ {SECONDS_GOAL[samples]:g} s, ≤ {MIB_GOAL:g} MiB: {'met' if held else 'missed'}"
    cells = [f"{samples:,}", f"{entry['omega']}", f"{entry['threads']}", f"{seconds:.2f}", *parts]
    cells += ["" if mib is None else f"{mib:.0f}", f"{entry['dense_mib']:,.0f}", f"{entry['edges']:.1f}"]
    return f"| {' | '.join([*cells, ', '.join(map(str, entry['iterations'].values())), goal])} |"


def main() -> None:
    with torch.no_grad():
        run("Diffusion on the global manifold", "manifold", comparisons(), more)
