"""What a step of each system costs beside a step of the plain loss: a head on features, and a whole network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.harness import Comparison, Measurement, measure, write
from obdsd.experiments.timing import Pace
from obdsd.presets import preset

SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "PSD": ("ms+psd", {}),
    "PSD, memory teacher": ("ms+psd", {"teacher": "memory"}),
    "PSD, EMA teacher": ("ms+psd", {"teacher": "ema"}),
    "OBD-SD": ("ms+obd-sd", {}),
    "OBD-SD, softmax form": ("ms+obd-sd-softmax", {}),
    "mean mix (control)": ("ms+mean-mix", {}),
    "global manifold": ("ms+global", {}),
    "born again (second generation)": ("ms+bar", {}),
    "S2SD, four heads": ("ms+s2sd-msd", {}),
}
HEAD = {"head": "two-layer", "hidden": 512}
NETWORK = {"backbone": "tf_efficientnet_lite0", "pretrained": "none", "batchnorm": "frozen", "size": 32, "workers": 0}
WIDTH, CLASSES, EACH = 1280, 100, 58  # as CUB's training half has


def main() -> None:
    print("\nSystems", flush=True)
    with TemporaryDirectory() as folder:
        settings = {"a head on features": (_rows(Path(folder)), HEAD), "a whole network, 32 px": ("glyphs", NETWORK)}
        found = {name: _measured(data, common) for name, (data, common) in settings.items()}
    about = (
        ". A step of each system and one of Multi-Similarity alone take turns, batch 112; *relative* is the median of the paired ratios "
        "with its 95 % interval. *A head on features*: 1,280 → 512 → 128, where the walk weighs most. *A whole network*: "
        "EfficientNet-Lite0, where the teacher's forward pass does. Born again pays the first generation on top (+1); the global manifold "
        "its walk, spread over the steps of an epoch."
    )
    lines: list[str] = []
    for name, rows in found.items():
        lines += [f"## {name.capitalize()}", f"Multi-Similarity alone: {rows[0].ours_ms:.1f} ms.", ""]
        lines += ["| system | step, ms | relative |", "|---|---:|---|"]
        lines += [f"| {row.name} | {row.peer_ms:.1f} | {row.faster:.2f} {row.spread} |" for row in rows] + [""]
    write("What a step costs", "systems", about, lines, {name: [vars(row) for row in rows] for name, rows in found.items()})
    print("\n".join(lines))


def _rows(folder: Path) -> str:
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(2 * CLASSES), EACH)
    rows = generator.standard_normal((2 * CLASSES, WIDTH))[labels] + 1.5 * generator.standard_normal((len(labels), WIDTH))
    np.savez(folder / "rows.npz", embeddings=rows.astype(np.float32), labels=labels)
    return str(folder / "rows.npz")


def _measured(data: str, common: dict[str, Any]) -> list[Measurement]:
    plain = _pace(data, "ms", common)
    found = []
    for name, (start, changes) in SYSTEMS.items():
        if start == "ms+global" and data == "glyphs":
            continue  # its epoch's walk needs the whole set embedded, which the head's row shows at CUB's size
        pace = _pace(data, start, {**common, **changes})
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
