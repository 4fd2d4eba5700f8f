"""One way to compare two candidates: interleaved, by medians of paired ratios with an interval, with their peak memory.

A time alone says little on a noisy machine; two candidates that take turns see the same noise.
"""

from __future__ import annotations

import ctypes
import datetime
import gc
import json
import math
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
from threadpoolctl import threadpool_limits

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("obdsd", "torch", "pytorch-metric-learning", "numpy", "scipy", "faiss-cpu")
SAMPLE_SECONDS = 0.01  # a fast candidate is repeated until one sample takes this long
BUDGET_SECONDS = 6.0  # for one comparison


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Ours against a peer that does the same job; `goal` is how many times faster ours should be, `memory_goal` the share of the peer's
    peak that it may take.

    `rounds` is how many at least; 6 is the least at which min..max of the ratios covers their median with 95 %. A `slow` candidate takes
    many seconds a call: it gets no turn to warm up, and its memory is watched while it is timed. `threads` limits every library on both
    sides; where two libraries take turns, the waiting threads of the one would else slow the other.
    """

    name: str
    ours: Callable[[], object]
    peer: Callable[[], object]
    peer_name: str
    goal: float | None = None
    memory_goal: float | None = None
    rounds: int = 15
    slow: bool = False
    threads: int | None = None


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Medians in milliseconds; `faster` = median of peer time / our time over rounds, with a 95 % interval (of fewer than 6 rounds only
    their range); peaks in MiB.
    """

    name: str
    peer_name: str
    ours_ms: float
    peer_ms: float
    faster: float
    low: float
    high: float
    rounds: int
    goal: float | None
    memory_goal: float | None
    ours_mib: float | None
    peer_mib: float | None

    @property
    def verdict(self) -> str:
        if self.goal is None:
            return ""
        if self.low >= self.goal:
            return "met"
        return "missed" if self.high < self.goal else "within noise of it"

    @property
    def memory_verdict(self) -> str:
        if self.memory_goal is None or self.ours_mib is None or self.peer_mib is None:
            return ""
        return "met" if self.ours_mib <= self.memory_goal * self.peer_mib else "missed"

    @property
    def spread(self) -> str:
        return f"[{self.low:.2f}, {self.high:.2f}]" if self.rounds >= 6 else f"({self.low:.2f} to {self.high:.2f})"


More = Callable[[list[Measurement]], tuple[dict[str, object], list[str]]]


def measure(comparison: Comparison) -> Measurement:
    """Let both take turns, the first turn alternating, and pair the times of each round."""
    sides = {"ours": comparison.ours, "peer": comparison.peer}
    repeats = dict.fromkeys(sides, 1)
    if not comparison.slow:
        repeats = {side: max(1, round(SAMPLE_SECONDS / seconds_of(call, warm=True))) for side, call in sides.items()}
    times: dict[str, list[float]] = {side: [] for side in sides}
    peaks: dict[str, list[float | None]] = {side: [] for side in sides}
    start = time.perf_counter()
    while len(times["ours"]) < comparison.rounds or time.perf_counter() - start < BUDGET_SECONDS:
        order = list(sides) if len(times["ours"]) % 2 == 0 else list(reversed(sides))
        for side in order:
            if comparison.slow:
                seconds, peak = watched(sides[side])
                times[side].append(seconds)
                peaks[side].append(peak)
            else:
                times[side].append(seconds_of(sides[side], repeats[side]))
    ratios = [peer / ours for ours, peer in zip(times["ours"], times["peer"], strict=True)]
    low, high = median_interval(ratios)
    same = {name: getattr(comparison, name) for name in ("name", "peer_name", "goal", "memory_goal")}
    medians: dict[str, float | None] = {f"{side}_ms": 1e3 * statistics.median(times[side]) for side in sides}
    medians |= {f"{side}_mib": _median(peaks[side]) for side in sides}
    return Measurement(**same, **medians, faster=statistics.median(ratios), low=low, high=high, rounds=len(ratios))


def _median(peaks: list[float | None]) -> float | None:
    known = [peak for peak in peaks if peak is not None]
    return statistics.median(known) if known else None


def seconds_of(call: Callable[[], object], repeats: int = 1, warm: bool = False) -> float:
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
    except (OSError, AttributeError):
        return None
    call()  # buffers that libraries keep for good are not the candidate's
    return watched(call)[1]


def watched(call: Callable[[], object]) -> tuple[float, float | None]:
    """Seconds that `call` takes and how far it lifts resident memory, in MiB, or None as in `peak_mib`."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)  # blocks that were freed earlier and kept would hide what is taken now
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
        before = status_kib("VmRSS")
    except (OSError, AttributeError):
        return seconds_of(call), None
    seconds = seconds_of(call)
    return seconds, (status_kib("VmHWM") - before) / 1024


def status_kib(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def _git(*words: str) -> str:
    """What git says of this project; nothing where it is no checkout."""
    return subprocess.run(["git", *words], capture_output=True, text=True, check=False, cwd=RESULTS.parents[1]).stdout.strip()


def machine() -> dict[str, object]:
    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        models = [line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
        cpu = models[0] if models else cpu
    commit = _git("describe", "--always")
    if _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/results"):  # of other benchmarks: they do not count
        commit += "-dirty"
    return {
        "date": datetime.date.today().isoformat(),
        "commit": commit or "unknown",
        "cpu": cpu,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        **{package: version(package) for package in PACKAGES},
    }


def run(title: str, name: str, comparisons: Iterable[Comparison], more: More = lambda measurements: ({}, [])) -> None:
    """Measure, print as it goes, and write `results/<name>.json` and `.md`; `more` is asked last, for further entries and lines."""
    comparisons, measurements = list(comparisons), []
    print(f"\n{title}", flush=True)
    for comparison in comparisons:
        with threadpool_limits(comparison.threads):
            measured = measure(comparison)
        measurements.append(measured)
        print(f"  {measured.name}: {measured.faster:.2f}x {measured.spread} {measured.verdict}", flush=True)
    # Memory last: measuring it changes how the allocator works, and with it the times.
    for place, comparison in enumerate(comparisons):
        if not comparison.slow:
            with threadpool_limits(comparison.threads):
                peaks = {"ours_mib": peak_mib(comparison.ours), "peer_mib": peak_mib(comparison.peer)}
            measurements[place] = replace(measurements[place], **peaks)
    entries, lines = more(measurements)
    rows = [{**asdict(m), "verdict": m.verdict, "memory_verdict": m.memory_verdict} for m in measurements]
    few = ", or (low to high) the mere range where fewer than 6 rounds give none" if any(m.rounds < 6 for m in measurements) else ""
    about = (
        f". *Faster* is the median over interleaved rounds of peer time / our time, with its 95 % interval{few}; memory is the peak above "
        "the level before."
    )
    write(title, name, about, [*table(measurements), *lines], {"measurements": rows, **entries})


def write(title: str, name: str, about: str, lines: list[str], entries: dict[str, object]) -> None:
    """`results/<name>.json`: the machine and the entries; and `.md`: title, how it was made, and the lines."""
    facts = machine()
    made = f"Made by `python -m benchmarks {name}`: {', '.join(f'{key} {value}' for key, value in facts.items())}{about}"
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps({"title": title, "machine": facts, **entries}, indent=2) + "\n")
    (RESULTS / f"{name}.md").write_text("\n".join([f"# {title}", made, "", *lines]).rstrip() + "\n")


def table(measurements: list[Measurement]) -> list[str]:
    lines = ["| what | ours, ms | peer | peer, ms | faster | goal | ours, MiB | peer, MiB |", "|---|---:|---|---:|---|---|---:|---:|"]
    for m in measurements:
        goals = [] if m.goal is None else [f"≥ {m.goal:g}: {m.verdict}"]
        goals += [] if m.memory_goal is None else [f"memory ≤ {m.memory_goal:g}: {m.memory_verdict}"]
        memory = ["" if mib is None else f"{mib:.1f}" for mib in (m.ours_mib, m.peer_mib)]
        faster = f"{m.faster:.2f} {m.spread}, n = {m.rounds}"
        cells = (m.name, f"{m.ours_ms:.3f}", m.peer_name, f"{m.peer_ms:.3f}", faster, "; ".join(goals), *memory)
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def clustered_rows(samples: int, dim: int = 128, per_class: int = 2, seed: int = 0) -> torch.Tensor:
    """Unit rows of classes in turn, as in mid-training: positives near cosine 0.6, some negatives as near (Recall@1 0.96 at 112).

    Class centres lie in 16 directions: in all 128, no negative would come near, no pair be mined, and a loss have nothing to do.
    """
    generator = torch.Generator().manual_seed(seed)
    directions = torch.randn(16, dim, generator=generator)
    centres = torch.randn(math.ceil(samples / per_class), 16, generator=generator) @ directions / 4
    rows = centres.repeat(per_class, 1)[:samples] + 0.8 * torch.randn(samples, dim, generator=generator)
    return torch.nn.functional.normalize(rows, dim=1)
