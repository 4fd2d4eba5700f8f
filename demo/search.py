"""How the demo's settings were found: on held-out Latin letters, the test scripts unread.

    python demo/search.py OUT

Every row gets its own search over the same values of λ (and ω where it has one), with and without wrong labels, on two folds; the seeds
are not those of the demo. Results: demo/search.json.
"""

from __future__ import annotations

import argparse
import itertools
import json
from dataclasses import asdict
from pathlib import Path

from obdsd.experiments.search import search
from obdsd.presets import preset
from obdsd.settings import TrainOptions

RESULT = Path(__file__).parent / "search.json"
COMMON = {"epochs": 12, "crop": 0.7, "lr": 1e-3, "evaluate_every": 0}
NOISE = (0.0, 0.3)
WEIGHTS = (10.0, 100.0, 1000.0)
OMEGAS = (0.3, 0.9)
SEEDS = (100,)
FOLDS = ("0/3", "1/3")


def candidates() -> dict[str, TrainOptions]:
    found = {}
    for noise in NOISE:
        shared = {**COMMON, "label_noise": noise}
        found[f"noise-{noise}/ms"] = preset("ms", "glyphs", **shared)
        for weight in WEIGHTS:
            found[f"noise-{noise}/ms+psd-{weight:g}"] = preset("ms+psd", "glyphs", **shared, weight=weight)
        for name, weight, omega in itertools.product(("ms+obd-sd", "ms+mean-mix"), WEIGHTS, OMEGAS):
            found[f"noise-{noise}/{name}-{weight:g}-{omega}"] = preset(name, "glyphs", **shared, weight=weight, omega=omega)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Search the demo's settings on held-out classes.")
    parser.add_argument("out", type=Path, metavar="OUT", help="where the runs go")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    found = search(candidates(), FOLDS, SEEDS, arguments.out, jobs=arguments.jobs)
    RESULT.write_text(json.dumps([{**asdict(entry), "mean": entry.mean} for entry in found], indent=1) + "\n")
    for entry in found:
        print(f"{100 * entry.mean:6.2f}  {entry.name}")


if __name__ == "__main__":
    main()
