"""What a step of each system costs beside a step of the plain loss: a head on features, and whole networks, also beside loops by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.harness import Comparison, Measurement, measure, write
from benchmarks.stepping import Stepper
from obdsd.data import open_data
from obdsd.experiments.timing import Pace
from obdsd.presets import preset

TUNED, USUAL = "plain loss by hand, made fast", "plain loss by hand, as usual"
SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "PSD": ("ms+psd", {}),
    "PSD, memory teacher": ("ms+psd", {"teacher": "memory"}),
    "PSD, EMA teacher": ("ms+psd", {"teacher": "ema"}),
    "OBD-SD": ("ms+obd-sd", {}),
    "OBD-SD, memory teacher": ("ms+obd-sd", {"teacher": "memory"}),
    "OBD-SD, softmax form": ("ms+obd-sd-softmax", {}),
    "mean mix (control)": ("ms+mean-mix", {}),
    "global manifold": ("ms+global", {}),
    "born again (second generation)": ("ms+bar", {}),
    "S2SD, four heads": ("ms+s2sd-msd", {}),
    "divide and conquer, 8 slices": ("div-conq", {}),
    "DRML, four branches": ("drml", {"head": "relational", "hidden": None}),
    "MIC": ("mic", {}),
    "DCML, plain form": ("dcml-mdw", {"head": "composed", "hidden": None}),
    "DiVA": ("diva", {}),
    "RankMI-style": ("rankmi", {}),
    "PADS": ("pads", {}),
    "DAS": ("ms+das", {}),
    "MemVir, ten sets": ("norm-softmax+memvir", {"system": "memvir(sets=10, gap=0, warm=0)"}),
}
SHORT = {name: SYSTEMS[name] for name in ("PSD", "OBD-SD", "OBD-SD, memory teacher")}
HEAD = {"head": "two-layer", "hidden": 512}
NETWORK = {"batchnorm": "frozen", "size": 96, "workers": 0, "epochs": 4, "device": "cpu", "test_fraction": 0.5}
NETWORKS = {
    "tf_efficientnet_lite0 at 96 px, batch 112": {
        **NETWORK,
        "backbone": "tf_efficientnet_lite0",
        "pretrained": "offline",  # whether bfloat16 is exact enough depends on the weights
        "batch_size": 112,
    },
    "resnet50 at 96 px, batch 32": {**NETWORK, "backbone": "resnet50", "pretrained": "none", "batch_size": 32},
}
BARS = {"OBD-SD": 1.15, "OBD-SD, memory teacher": 1.02, "OBD-SD, table of embeddings": 1.02, TUNED: 1 / 1.02, USUAL: 1.4}
"""What a step may take beside the plain one; a loop that is written by hand must take so much at least."""
WIDTH, CLASSES, EACH = 1280, 100, 58  # as CUB's training half has


def main() -> None:
    print("\nSystems", flush=True)
    with TemporaryDirectory() as folder:
        heads = _heads(_rows(Path(folder)))
        table = _table_of_glyphs(Path(folder))
        networks = {
            name: _network(common, SYSTEMS if number == 0 else SHORT, table) for number, (name, common) in enumerate(NETWORKS.items())
        }
    about = (
        ". A step of each system and one of Multi-Similarity alone take turns; *relative* is the median of the paired ratios with its 95 % "
        "interval. Each network is in a process of its own, whose peak of memory stands beside it. *By hand* is the shortest loop with "
        "timm and pytorch-metric-learning: as people write it, and with channels last, a fused optimiser and the same settings of the "
        "allocator. Born again pays the first generation on top (+1); the global manifold its walk, spread over the steps of an epoch."
    )
    lines = ["## A head on features", "1,280 → 512 → 128, batch 112, where the walk weighs most.", *_table(heads)]
    for name, rows in networks.items():
        lines += [f"## {name}", *_table(rows)]
    found = {"a head on features": heads, **networks}
    write("What a step costs", "systems", about, lines, {name: [vars(row) for row in rows] for name, rows in found.items()})
    print("\n".join(lines))


def _table(rows: list[Measurement]) -> list[str]:
    plain = f"Multi-Similarity alone: {rows[0].ours_ms:.1f} ms" + (f", {rows[0].ours_mib:,.0f} MiB." if rows[0].ours_mib else ".")
    lines = [plain, "", "| system | step, ms | relative | bar | peak, MiB |", "|---|---:|---|---|---:|"]
    for row in rows:
        memory = f"{row.peer_mib:,.0f}" if row.peer_mib else ""
        lines.append(f"| {row.name} | {row.peer_ms:.1f} | {row.faster:.2f} {row.spread} | {_bar(row)} | {memory} |")
    return [*lines, ""]


def _bar(row: Measurement) -> str:
    if row.ours_mib is None or row.name not in BARS:  # bars are for networks
        return ""
    bar, least = BARS[row.name], row.name in (TUNED, USUAL)
    low, high = (-row.high, -row.low) if least else (row.low, row.high)
    limit = -bar if least else bar
    verdict = "met" if high <= limit else "missed" if low > limit else "within noise of it"
    return f"{'≥' if least else '≤'} {bar:.2f}: {verdict}"


def _network(common: dict[str, Any], systems: dict[str, tuple[str, dict[str, Any]]], table: str) -> list[Measurement]:
    plain, found = Stepper("ours", preset="ms", **common), []
    others = {TUNED: ("tuned", {}), USUAL: ("usual", {})}
    others |= {name: ("ours", {"preset": start, **changes}) for name, (start, changes) in systems.items() if start != "ms+global"}
    others |= {"OBD-SD, table of embeddings": ("ours", {"preset": "ms+obd-sd", "teacher": f"embeddings(file={table!r})"})}
    for name, (kind, changes) in others.items():
        other = Stepper(kind, **{**common, **changes})
        row = measure(Comparison(name=name, ours=plain, peer=other, peer_name=name, rounds=8))
        row = replace(_with(row, other.once_ms), ours_mib=plain.peak_mib, peer_mib=other.peak_mib)
        other.end()
        found.append(row)
        print(f"  {name}: {row.faster:.2f} {row.spread} {_bar(row)}", flush=True)
    plain.end()
    return found


def _rows(folder: Path) -> str:
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(2 * CLASSES), EACH)
    rows = generator.standard_normal((2 * CLASSES, WIDTH))[labels] + 1.5 * generator.standard_normal((len(labels), WIDTH))
    np.savez(folder / "rows.npz", embeddings=rows.astype(np.float32), labels=labels)
    return str(folder / "rows.npz")


def _table_of_glyphs(folder: Path) -> str:
    """A row of length 1,280 for each of the built-in letters."""
    parts = open_data("glyphs").parts.values()
    names = [part.name(index) for part in parts for index in range(len(part))]
    rows = np.random.default_rng(0).standard_normal((len(names), WIDTH)).astype(np.float32)
    np.savez(folder / "table.npz", embeddings=rows, names=names)
    return str(folder / "table.npz")


def _heads(data: str) -> list[Measurement]:
    plain, found = _pace(data, "ms", HEAD), []
    for name, (start, changes) in SYSTEMS.items():
        pace = _pace(data, start, {**HEAD, **changes})
        row = measure(Comparison(name=name, ours=plain.step, peer=pace.step, peer_name=name, rounds=8))
        found.append(_with(row, 1e3 * pace.once))
        print(f"  {name}: {found[-1].faster:.2f} {found[-1].spread}", flush=True)
    return found


def _pace(data: str, name: str, changes: dict[str, Any]) -> Pace:
    return Pace(preset(name, data, **{"epochs": 4, "device": "cpu", **changes}))


def _with(row: Measurement, milliseconds: float) -> Measurement:
    """The same with so much more on every step."""
    more = milliseconds / row.ours_ms
    return replace(row, peer_ms=row.peer_ms + milliseconds, faster=row.faster + more, low=row.low + more, high=row.high + more)
