"""Evaluation against `AccuracyCalculator(k="max_bin_count")` of pytorch-metric-learning at the sizes of CUB and SOP, and how it grows.

Rows are made up like those of a trained model: classes overlap in a subspace (Recall@1 near 0.7), with a little noise in all directions.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import faiss
import numpy as np
import torch
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from pytorch_metric_learning.utils.inference import FaissKMeans, return_results
from sklearn.metrics import adjusted_mutual_info_score

from benchmarks.harness import Comparison, Measurement, run, watched
from obdsd.evaluation import METRICS as OURS
from obdsd.evaluation import clustering, evaluate

METRICS = ("precision_at_1", "r_precision", "mean_average_precision_at_r")
NMI_TOLERANCE = 0.002
SEEDS = (0, 1, 2)  # of k-means
GROWTH, GROWTH_DIM = (10_000, 30_000, 60_000, 120_000), 128
MEMORY_LIMIT = 1024  # MiB
TOTAL, REST, NMI = "total", "after the search", "k-means and NMI"

Entry = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Case:
    """What both sides evaluate; `seen` keeps what they answered while they were timed."""

    name: str
    rows: np.ndarray
    labels: np.ndarray
    pace: dict[str, Any]
    seen: dict[str, Any] = field(default_factory=lambda: {"ours nmi": {}, "peer nmi": {}})

    def peer(self, **options: Any) -> dict[str, float]:
        return AccuracyCalculator(k="max_bin_count", device=torch.device("cpu"), **options).get_accuracy(self.rows, self.labels)


def cases() -> list[Case]:
    cub = made_up(class_sizes(100, 5_924, 50, 60), dim=128, rank=16, spread=0.85)
    sop = made_up(class_sizes(11_316, 60_502, 2, 12), dim=512, rank=32, spread=0.75)
    return [
        Case(name="CUB size, 5,924 × 128, one thread", rows=cub[0], labels=cub[1], pace={"threads": 1}),
        Case(name="SOP size, 60,502 × 512", rows=sop[0], labels=sop[1], pace={"slow": True, "rounds": 3}),
    ]


def class_sizes(classes: int, images: int, least: int, most: int) -> np.ndarray:
    """Seeded sizes in least..most that add up to `images`."""
    free = np.full(classes, most - least)
    return least + np.random.default_rng(0).multivariate_hypergeometric(free, images - classes * least, method="marginals")


def made_up(sizes: np.ndarray, dim: int, rank: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """Unit rows in random order: class centres in `rank` directions, members around them by `spread`, and noise in all directions."""
    generator = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return generator.standard_normal(shape, dtype=np.float32)

    labels = generator.permutation(np.repeat(np.arange(len(sizes)), sizes))
    inner = normal(len(sizes), rank)[labels] + np.float32(spread) * normal(len(labels), rank)
    rows = inner @ normal(rank, dim) / np.float32(math.sqrt(rank)) + np.float32(0.4) * normal(len(labels), dim)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), labels


def retrieval(case: Case) -> Iterator[Comparison]:
    rows, labels, seen = case.rows, case.labels, case.seen

    def ours_total() -> None:
        seen["ours"] = evaluate(rows, labels, clusters=False)

    def peer_total() -> None:
        seen["peer"] = case.peer(include=METRICS)

    name = f"{case.name}: {TOTAL}"
    yield Comparison(name=name, ours=ours_total, peer=peer_total, peer_name="AccuracyCalculator", goal=1.0, memory_goal=0.5, **case.pace)

    found = faiss.knn(rows, rows, int(np.bincount(labels).max()), metric=faiss.METRIC_INNER_PRODUCT)
    others = return_results(*map(torch.from_numpy, found), ref_includes_query=True)

    def ours_rest() -> None:
        with patch.object(faiss, "knn", handed_out(*found)):
            evaluate(rows, labels, clusters=False)

    of_queries = {name: metric for name, metric in OURS.items() if metric.per_query}  # the peer computes no others

    def ours_rest_of_same_metrics() -> None:
        with patch.dict(OURS, of_queries, clear=True), patch.object(faiss, "knn", handed_out(*found)):
            evaluate(rows, labels, ks=(1,), clusters=False)

    def peer_rest() -> None:
        seen["peer, our neighbours"] = case.peer(include=METRICS, knn_func=lambda *_: others)

    common = {"peer": peer_rest, "peer_name": "AccuracyCalculator, neighbours given", **case.pace}
    yield Comparison(name=f"{case.name}: {REST}, same metrics", ours=ours_rest_of_same_metrics, goal=5.0, memory_goal=0.5, **common)
    yield Comparison(name=f"{case.name}: {REST}, all that evaluate adds", ours=ours_rest, **common)


def handed_out(distances: np.ndarray, near: np.ndarray) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    """Stands in for `faiss.knn` during one evaluation: what was found before for the rows that ask, at no cost."""
    done = 0

    def knn(asked: np.ndarray, gallery: np.ndarray, depth: int, metric: int) -> tuple[np.ndarray, np.ndarray]:
        nonlocal done
        assert depth == near.shape[1]
        part = slice(done, done + len(asked))
        done = part.stop
        return distances[part], near[part]

    return knn


def clusters(case: Case) -> Iterator[Comparison]:
    labels, seen = case.labels, case.seen
    our_seeds, peer_seeds = itertools.cycle(SEEDS), itertools.cycle(SEEDS)

    def ours_nmi() -> None:
        seed = next(our_seeds)
        seen["clusters"] = clustering.kmeans(case.rows, int(labels.max()) + 1, seed)
        seen["ours nmi"][seed] = clustering.nmi(labels, seen["clusters"])

    def peer_nmi() -> None:
        seed = next(peer_seeds)
        seen["peer nmi"][seed] = case.peer(include=("NMI",), kmeans_func=FaissKMeans(niter=20, seed=seed))["NMI"]

    name, peer_name = f"{case.name}: {NMI}", "AccuracyCalculator, its k-means seeded"
    yield Comparison(name=name, ours=ours_nmi, peer=peer_nmi, peer_name=peer_name, goal=1.0, **case.pace)
    yield Comparison(
        name=f"{case.name}: AMI of the same clusters",
        ours=lambda: clustering.ami(labels, seen["clusters"]),
        peer=lambda: adjusted_mutual_info_score(labels, seen["clusters"]),
        peer_name="adjusted_mutual_info_score of sklearn",
        **case.pace | ({"rounds": 1} if case.pace.get("slow") else {}),
    )


def values(case: Case) -> Entry:
    """Our values, their largest difference from the peer's, the same if the peer is given our neighbours, and the NMI of each seed."""
    scores = case.seen["ours"]
    ours = dict(zip(METRICS, (scores["recall@1"], scores["r-precision"], scores["map@r"]), strict=True))
    apart = {side: max(abs(ours[metric] - case.seen[side][metric]) for metric in METRICS) for side in ("peer", "peer, our neighbours")}
    nmi = {side: [case.seen[f"{side} nmi"][seed] for seed in SEEDS] for side in ("ours", "peer")}
    short = statistics.mean(nmi["peer"]) - statistics.mean(nmi["ours"])
    entry = {"case": case.name, "ours": ours, "difference": apart["peer"], "difference_with_our_neighbours": apart["peer, our neighbours"]}
    return {**entry, "nmi": nmi, "nmi_below_peer": short, "nmi_verdict": "met" if short <= NMI_TOLERANCE else "missed"}


def growth(points: int) -> Entry:
    """Seconds of the search and of the rest, and the peak, of one evaluation without clusters."""
    rows, labels = made_up(class_sizes(points // 5, points, 2, 12), GROWTH_DIM, rank=32, spread=0.75)
    search, knn = 0.0, faiss.knn

    def timed(*inputs: Any, **options: Any) -> Any:
        nonlocal search
        start = time.perf_counter()
        found = knn(*inputs, **options)
        search += time.perf_counter() - start
        return found

    with patch.object(faiss, "knn", timed):
        total, mib = watched(lambda: evaluate(rows, labels, clusters=False))
    print(f"  {points} points: {total:.1f} s, of which search {search:.1f} s", flush=True)
    return {"points": points, "search_s": search, "rest_s": total - search, "total_s": total, "mib": mib}


def everything(case: Case) -> Entry:
    """The peak of one evaluation with clusters, so of all that there is."""
    _, mib = watched(lambda: evaluate(case.rows, case.labels))
    return {"case": case.name, "mib": mib, "goal": MEMORY_LIMIT, "verdict": "met" if mib < MEMORY_LIMIT else "missed"}


def dominant(case: Case, measurements: list[Measurement], grown: list[Entry]) -> str:
    """What takes the time, in words, from the numbers."""
    ms = {m.name.removeprefix(f"{case.name}: "): m.ours_ms for m in measurements}
    rest = ms[f"{REST}, all that evaluate adds"]
    stages = {"the neighbour search": ms[TOTAL] - rest, "k-means": ms[NMI], "all the rest": rest}
    order = sorted(stages, key=stages.__getitem__, reverse=True)
    shares = ", ".join(f"{stage} {stages[stage] / sum(stages.values()):.0%}" for stage in order)
    search = [row["search_s"] / row["total_s"] for row in grown]
    first, last = grown[0], grown[-1]
    time_power, peak_power = (math.log(last[key] / first[key], last["points"] / first["points"]) for key in ("total_s", "mib"))
    return (
        f"At {case.name}, {order[0]} dominates: {shares} of `evaluate` with clusters. Without clusters, at {GROWTH_DIM} dimensions, the"
        f" search takes {min(search):.0%} to {max(search):.0%} of the time from {first['points']:,} to {last['points']:,} points; the time"
        f" grows with their number to the power of {time_power:.1f}, the peak to the power of {peak_power:.1f}."
    )


def report(tested: list[Case], grown: list[Entry], measurements: list[Measurement]) -> tuple[Entry, list[str]]:
    found, whole, why = [values(case) for case in tested], everything(tested[-1]), dominant(tested[-1], measurements, grown)
    lines = [
        "",
        "*Total* is `evaluate(clusters=False)` against Recall@1, R-precision and MAP@R of the peer; ours adds recall at 2, 4 and 8, density"
        " and spectral decay. *After the search*, both are given the same neighbours, the peer without the row itself.",
        "",
        f"`evaluate` with clusters, {whole['case']}: {whole['mib']:.0f} MiB at its peak; goal < {whole['goal']}: {whole['verdict']}.",
        "",
        why,
        "",
        "| values | Recall@1 | R-precision | MAP@R | largest difference from the peer | given the same neighbours |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for v in found:
        cells = [f"{value:.6f}" for value in v["ours"].values()] + [f"{v['difference']:.1e}", f"{v['difference_with_our_neighbours']:.1e}"]
        lines.append(f"| {v['case']} | {' | '.join(cells)} |")
    lines += [
        "",
        "The peer ranks by the L2 distance, we by the cosine: in float32 some near ties fall the other way.",
        "",
        f"| NMI, seeds {', '.join(map(str, SEEDS))} | ours | peer | mean below the peer | goal |",
        "|---|---|---|---:|---|",
    ]
    for v in found:
        ours, peer = (", ".join(f"{value:.4f}" for value in v["nmi"][side]) for side in ("ours", "peer"))
        lines.append(f"| {v['case']} | {ours} | {peer} | {v['nmi_below_peer']:.5f} | ≤ {NMI_TOLERANCE}: {v['nmi_verdict']} |")
    lines += ["", f"| points × {GROWTH_DIM}, no clusters | search, s | rest, s | peak, MiB |", "|---:|---:|---:|---:|"]
    lines += [f"| {row['points']:,} | {row['search_s']:.2f} | {row['rest_s']:.2f} | {row['mib']:.1f} |" for row in grown]
    return {"values": found, "growth": grown, "everything": whole, "dominant": why}, lines


def main() -> None:
    tested = cases()
    comparisons = [comparison for case in tested for make in (retrieval, clusters) for comparison in make(case)]
    grown = [growth(points) for points in GROWTH]
    run("Evaluation", "evaluation", comparisons, lambda measurements: report(tested, grown, measurements))
