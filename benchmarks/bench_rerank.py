"""Re-ranking: the offline work and a query, beside a plain flat search of faiss, and how both grow."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import faiss
import numpy as np
import torch

from benchmarks.harness import Comparison, Measurement, clustered_rows, run, watched
from obdsd.catalogue import RERANKERS
from obdsd.search import Fitted

CUB, SOP = 5_924, 60_502  # images in their test sets
SIZES = (7_500, 15_000, 30_000, 60_502, 120_000)
SPECS = ("diffusion", "alpha-qe", "k-reciprocal")
QUERIES, FOUND = 1024, 10
SECONDS_GOAL, MIB_GOAL, QUERY_GOAL = {CUB: 5.0, SOP: 180.0}, 1024.0, 3.0


def made_up(samples: int, dim: int, per_class: int) -> tuple[np.ndarray, np.ndarray]:
    """A gallery, and queries of the same classes that are not in it."""
    rows = clustered_rows(samples + QUERIES, dim, per_class).numpy()
    return rows[:samples], rows[samples:]


def flat(rows: np.ndarray, queries: np.ndarray) -> object:
    return faiss.knn(queries, rows, FOUND, metric=faiss.METRIC_INNER_PRODUCT)


def comparisons() -> Iterator[Comparison]:
    """A query after the offline work beside a flat search: ours may take 3 times as long."""
    rows, queries = made_up(SOP, 128, 5)
    for spec in SPECS:
        fitted = RERANKERS.build(spec).fit(rows)
        goal = 1 / QUERY_GOAL if spec == "diffusion" else None
        for count in (QUERIES, 1):
            asked = queries[:count]
            name = f"{spec}, {count:,} quer{'ies' if count > 1 else 'y'} in {SOP:,} x 128"
            ours, peer = partial(fitted.search, asked, FOUND), partial(flat, rows, asked)
            yield Comparison(name=name, ours=ours, peer=peer, peer_name="faiss, flat", goal=goal, rounds=6, slow=count > 1)


def growth(spec: str, samples: int, dim: int, per_class: int) -> dict[str, Any]:
    """The offline work with its peak of memory, and a query afterwards."""
    rows, queries = made_up(samples, dim, per_class)
    box: list[Fitted] = []
    seconds, mib = watched(lambda: box.append(RERANKERS.build(spec).fit(rows)))
    kept = sum(array.nbytes for array in box[0].arrays().values()) / 2**20
    asked, plain = (_seconds(call) for call in (partial(box[0].search, queries, FOUND), partial(flat, rows, queries)))
    facts = {"rerank": spec, "samples": samples, "dim": dim, "seconds": seconds, "mib": mib, "kept_mib": kept}
    return facts | {"query_ms": 1e3 * asked / QUERIES, "flat_ms": 1e3 * plain / QUERIES}


def _seconds(call: Callable[[], object]) -> float:
    """The least of three."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def more(measurements: list[Measurement]) -> tuple[dict[str, object], list[str]]:
    load = os.getloadavg()[0]
    cases = [(spec, CUB, dim, 59) for spec in SPECS for dim in (128, 1280)]
    cases += [(spec, samples, 128, 5) for spec in SPECS for samples in SIZES]
    found = []
    for case in cases:
        found.append(growth(*case))
        print(f"  {found[-1]}", flush=True)
    lines = [
        "",
        f"A goal of 0.33 says that a query may take {QUERY_GOAL:g} times as long as a flat search. Embeddings are made up: unit rows of "
        f"classes with spread (59 a class at {CUB:,}, as CUB has; else 5, as SOP has). Load average before the table below: {load:.1f} on "
        f"{os.cpu_count()} cores.",
        "",
        f"The offline work (`fit`) above the rows themselves, what of it is kept, and a query among {QUERIES:,}.",
        "",
        "| re-ranker | items | dim | offline, s | peak, MiB | kept, MiB | a query, ms | flat search, ms | goal |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    return {"growth": found, "load_average": load}, lines + [_row(entry) for entry in found]


def _row(entry: dict[str, Any]) -> str:
    samples, seconds, mib, goal = entry["samples"], entry["seconds"], entry["mib"], ""
    if samples in SECONDS_GOAL and entry["rerank"] == "diffusion":
        held = seconds <= SECONDS_GOAL[samples] and (mib is None or mib <= MIB_GOAL)
        goal = f"≤ {SECONDS_GOAL[samples]:g} s, ≤ {MIB_GOAL:g} MiB: {'met' if held else 'missed'}"
    cells = [entry["rerank"], f"{samples:,}", f"{entry['dim']}", f"{seconds:.1f}", "" if mib is None else f"{mib:.0f}"]
    cells += [f"{entry['kept_mib']:.0f}", f"{entry['query_ms']:.3f}", f"{entry['flat_ms']:.3f}", goal]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    with torch.no_grad():
        run("Re-ranking", "rerank", comparisons(), more)
