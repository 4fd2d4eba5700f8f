"""How the demo's settings were found: on held-out Latin letters, the test scripts unread.

    python demo/search.py

A linear head on frozen features of the built-in letters with 30 % wrong labels; it begins at random or as the features' projection. Every
row gets its own search over the same values of λ, on two folds; the seed is not one of the demo's. The runs go to demo/out/search, the numbers to demo/search.json.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from features import FOLDER, features

from obdsd.experiments.search import search
from obdsd.files import write_json
from obdsd.presets import preset
from obdsd.settings import TrainOptions

COMMON = {"label_noise": 0.3, "evaluate_every": 0, "reference": False}  # all else is the presets' for embeddings
WEIGHTS = (1.0, 10.0, 100.0, 1000.0, 10000.0)
ROWS = {"psd": {"preset": "ms+psd"}, "obd-sd": {"preset": "ms+obd-sd", "omega": 0.3}, "mean-mix": {"preset": "ms+mean-mix", "omega": 0.3}}
FOLDS, SEEDS = ("0/3", "1/3"), (100,)


def candidates(data: str) -> dict[str, TrainOptions]:
    found = {"ms": preset("ms", data, **COMMON)}
    for lr in (1e-4, 1e-3):
        found[f"ms-random-{lr:g}"] = preset("ms", data, **COMMON, head_init="random", lr=lr)
    for name, row in ROWS.items():
        changes = {key: value for key, value in row.items() if key != "preset"}
        for weight in WEIGHTS:
            found[f"{name}-{weight:g}"] = preset(str(row["preset"]), data, **COMMON, **changes, weight=weight)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Search the demo's settings on held-out classes.")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    found = search(candidates(features()), FOLDS, SEEDS, FOLDER / "search", jobs=parser.parse_args().jobs)
    record = [{**asdict(entry), "mean": entry.mean} for entry in found]
    write_json(FOLDER.parent / "search.json", {"common": COMMON, "rows": ROWS, "found": record})
    for entry in found:
        print(f"{100 * entry.mean:6.2f} %  {entry.name}")


if __name__ == "__main__":
    main()
