"""One way to compare two candidates: interleaved, by medians of paired ratios with an interval, with their peak memory.

A time alone says little on a noisy machine; two candidates that take turns see the same noise.
"""

from __future__ import annotations

import ctypes
import datetime
import gc
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path

import scipy.stats
import torch

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("obdsd", "torch", "pytorch-metric-learning", "numpy", "scipy", "faiss-cpu")
SAMPLE_SECONDS = 0.01  # a fast candidate is repeated until one sample takes this long
BUDGET_SECONDS = 6.0  # for one comparison


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Ours against a peer that does the same job; `goal` is how many times faster ours should be.

    `rounds` is how many at least; 6 is the least at which min..max of the ratios covers their median with 95 %.
    """

    name: str
    ours: Callable[[], object]
    peer: Callable[[], object]
    peer_name: str
    goal: float | None = None
    rounds: int = 15


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Medians in milliseconds; `faster` = median of peer time / our time over rounds, with a 95 % interval; peaks in MiB."""

    name: str
    peer_name: str
    ours_ms: float
    peer_ms: float
    faster: float
    low: float
    high: float
    rounds: int
    goal: float | None
    ours_mib: float | None = None
    peer_mib: float | None = None

    @property
    def verdict(self) -> str:
        if self.goal is None:
            return ""
        if self.low >= self.goal:
            return "met"
        return "missed" if self.high < self.goal else "within noise of it"


def measure(comparison: Comparison) -> Measurement:
    """Let both take turns, the first turn alternating, and pair the times of each round."""
    sides = {"ours": comparison.ours, "peer": comparison.peer}
    repeats = {side: max(1, round(SAMPLE_SECONDS / _seconds(call, 1, warm=True))) for side, call in sides.items()}
    times: dict[str, list[float]] = {side: [] for side in sides}
    start = time.perf_counter()
    while len(times["ours"]) < comparison.rounds or time.perf_counter() - start < BUDGET_SECONDS:
        order = list(sides) if len(times["ours"]) % 2 == 0 else list(reversed(sides))
        for side in order:
            times[side].append(_seconds(sides[side], repeats[side]))
    ratios = [peer / ours for ours, peer in zip(times["ours"], times["peer"], strict=True)]
    low, high = median_interval(ratios)
    return Measurement(
        name=comparison.name,
        peer_name=comparison.peer_name,
        ours_ms=1e3 * statistics.median(times["ours"]),
        peer_ms=1e3 * statistics.median(times["peer"]),
        faster=statistics.median(ratios),
        low=low,
        high=high,
        rounds=len(ratios),
        goal=comparison.goal,
    )


def _seconds(call: Callable[[], object], repeats: int, warm: bool = False) -> float:
    if warm:
        call()
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def median_interval(values: list[float], coverage: float = 0.95) -> tuple[float, float]:
    """The order statistics that hold the median with the given probability, whatever the distribution."""
    ordered = sorted(values)
    below = int(scipy.stats.binom.ppf((1 - coverage) / 2, len(ordered), 0.5))
    outermost = max(below - 1, 0)
    return ordered[outermost], ordered[len(ordered) - 1 - outermost]


def peak_mib(call: Callable[[], object]) -> float | None:
    """How far resident memory rises above its level while `call` runs; None where the system does not tell (not Linux)."""
    try:
        libc = ctypes.CDLL(None)
        # Every larger block gets its own mapping, so that it is given back when freed and counted when taken again.
        libc.mallopt(ctypes.c_int(-3), ctypes.c_int(1 << 15))  # M_MMAP_THRESHOLD
        call()  # buffers that libraries keep for good are not the candidate's
        gc.collect()
        libc.malloc_trim(0)  # blocks that were freed earlier and kept would hide what is taken now
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
        before = _status_kib("VmRSS")
        call()
        return (_status_kib("VmHWM") - before) / 1024
    except (OSError, AttributeError):
        return None


def _status_kib(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def machine() -> dict[str, object]:
    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        models = [line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
        cpu = models[0] if models else cpu
    describe = ["git", "describe", "--always", "--dirty"]
    commit = subprocess.run(describe, capture_output=True, text=True, check=False, cwd=RESULTS.parent).stdout.strip()
    return {
        "date": datetime.date.today().isoformat(),
        "commit": commit or "unknown",
        "cpu": cpu,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        **{package: version(package) for package in PACKAGES},
    }


def run(title: str, name: str, comparisons: Iterable[Comparison]) -> None:
    """Measure, print as it goes, and write `results/<name>.json` and `.md`."""
    comparisons, measurements = list(comparisons), []
    print(f"\n{title}", flush=True)
    for comparison in comparisons:
        measured = measure(comparison)
        measurements.append(measured)
        print(f"  {measured.name}: {measured.faster:.2f}x [{measured.low:.2f}, {measured.high:.2f}] {measured.verdict}", flush=True)
    # Memory last: measuring it changes how the allocator works, and with it the times.
    measurements = [
        replace(measured, ours_mib=peak_mib(comparison.ours), peer_mib=peak_mib(comparison.peer))
        for measured, comparison in zip(measurements, comparisons, strict=True)
    ]
    facts = machine()
    RESULTS.mkdir(exist_ok=True)
    rows = [{**asdict(measured), "verdict": measured.verdict} for measured in measurements]
    (RESULTS / f"{name}.json").write_text(json.dumps({"title": title, "machine": facts, "measurements": rows}, indent=2) + "\n")
    (RESULTS / f"{name}.md").write_text(markdown(title, name, facts, measurements))


def markdown(title: str, name: str, facts: dict[str, object], measurements: list[Measurement]) -> str:
    lines = [
        f"# {title}",
        f"Made by `python -m benchmarks {name}`: "
        + ", ".join(f"{key} {value}" for key, value in facts.items())
        + ". *Faster* is the median over interleaved rounds of peer time / our time, with its 95 % interval;"
        " memory is the peak above the level before.",
        "",
        "| what | ours, ms | peer | peer, ms | faster | goal | ours, MiB | peer, MiB |",
        "|---|---:|---|---:|---|---|---:|---:|",
    ]
    for m in measurements:
        goal = "" if m.goal is None else f"≥ {m.goal:g}: {m.verdict}"
        memory = ["" if mib is None else f"{mib:.1f}" for mib in (m.ours_mib, m.peer_mib)]
        faster = f"{m.faster:.2f} [{m.low:.2f}, {m.high:.2f}], n = {m.rounds}"
        lines.append(f"| {m.name} | {m.ours_ms:.3f} | {m.peer_name} | {m.peer_ms:.3f} | {faster} | {goal} | {memory[0]} | {memory[1]} |")
    return "\n".join(lines) + "\n"


def clustered_rows(batch: int, dim: int = 128, seed: int = 0) -> torch.Tensor:
    """Unit rows of batch/2 classes × 2 as in mid-training: positives near cosine 0.6, some negatives as near (Recall@1 0.96 at 112).

    Class centres lie in 16 directions: in all 128, no negative would come near, no pair be mined, and a loss have nothing to do.
    """
    generator = torch.Generator().manual_seed(seed)
    directions = torch.randn(16, dim, generator=generator)
    centres = (torch.randn(batch // 2, 16, generator=generator) @ directions / 4).repeat(2, 1)
    return torch.nn.functional.normalize(centres + 0.8 * torch.randn(batch, dim, generator=generator), dim=1)
