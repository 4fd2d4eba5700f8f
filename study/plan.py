"""What is trained: regimes, rows, and for each row the settings among which the held-out classes choose."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from obdsd.presets import preset
from obdsd.settings import TrainOptions

Change = Mapping[str, Any]

SEARCH_SEED = 100  # not one of the test's, which begin at 0
FOLDS = ("0/3", "1/3")
MAIN = ("ms", "psd", "obd-sd", "obd-sd-softmax", "mean-mix", "uniform-mix", "flat")
"""Rows that get ten seeds on test; the others get five."""
NOISE = (0.2, 0.4)
NOISE_ROWS = ("ms", "obd-sd", "mean-mix", "anchor")


@dataclass(frozen=True, kw_only=True)
class Regime:
    """Data, what all rows share, and the space that the protocol searches."""

    features: bool  # of CUB-200-2011; else the built-in letters
    common: Change
    space: Mapping[str, tuple[Any, ...]]
    candidates: int  # of each row, at most; drawn from its space by a seed


TWO_LAYER, LINEAR = {"head": "two-layer", "hidden": 512}, {"head": "linear"}
QUIET = {"reference": False, "evaluate_every": 0}
LONG = {"epochs": (150,), "lr": (1e-4,), "weight": (100.0, 1000.0, 10000.0), "omega": (0.3, 0.7)}
FREE = {"epochs": (5, 10, 20, 40), "lr": (1e-4, 5e-4), "weight": (10.0, 100.0, 1000.0, 10000.0)}
FREE |= {"omega": (0.3, 0.7), "temperature": (1.0, 0.2)}

REGIMES: dict[str, Regime] = {
    "cub-two-layer-free": Regime(features=True, common={**QUIET, **TWO_LAYER}, space=FREE, candidates=16),
    "cub-linear-free": Regime(features=True, common={**QUIET, **LINEAR}, space=FREE, candidates=16),
    "cub-two-layer-long": Regime(features=True, common={**QUIET, **TWO_LAYER, "evaluate_every": 10}, space=LONG, candidates=6),
    "cub-linear-long": Regime(features=True, common={**QUIET, **LINEAR, "evaluate_every": 10}, space=LONG, candidates=6),
}

ROWS: dict[str, tuple[str, Change]] = {
    "ms": ("ms", {}),
    "psd": ("ms+psd", {}),
    "obd-sd": ("ms+obd-sd", {}),
    "obd-sd-softmax": ("ms+obd-sd-softmax", {}),
    "mean-mix": ("ms+mean-mix", {}),
    "uniform-mix": ("ms+uniform-mix", {}),
    "flat": ("ms+psd", {"scale": 0.7}),
    "psd-constant": ("ms+psd-constant", {}),
    "obd-sd-sharp": ("ms+obd-sd-softmax", {"walk_temperature": 0.05}),
    "ema": ("ms+psd", {"teacher": "ema"}),
    "memory": ("ms+psd", {"teacher": "memory"}),
    "margin": ("margin", {}),
    "margin+obd-sd": ("margin+obd-sd", {}),
    "anchor": ("ms+psd-constant", {"teacher": "features"}),
    "anchor+walk": ("ms+obd-sd", {"teacher": "features", "ramp": "constant"}),
}


def candidates(regime: Regime, row: str, data: str) -> dict[str, TrainOptions]:
    """The settings of a row that the search tries, by name: all of its space, or as many of it as every row gets."""
    start, own = ROWS[row]
    usual = preset(start, data, **own)
    axes = [name for name in regime.space if _acts(name, usual)]
    points = list(itertools.product(*(regime.space[name] for name in axes)))
    if len(points) > regime.candidates:
        drawn = np.random.default_rng(0).choice(len(points), regime.candidates, replace=False)
        points = [points[i] for i in sorted(drawn)]
    found = {}
    for point in points:
        chosen = dict(zip(axes, point, strict=True))
        name = ",".join(f"{axis}={value:g}" for axis, value in chosen.items())
        found[name] = preset(start, data, **{**regime.common, **own, **chosen})
    return found


def _acts(axis: str, options: TrainOptions) -> bool:
    """Whether the row has this setting at all."""
    if axis in ("weight", "temperature"):
        return options.teacher != "none"
    return axis != "omega" or (options.teacher != "none" and options.targets != "pairwise")


def seeds_of(row: str) -> Iterable[int]:
    return range(10 if row in MAIN else 5)


CURVES: dict[str, dict[str, Any]] = {
    "weight": {"rows": ("psd", "obd-sd", "mean-mix"), "values": (1.0, 10.0, 100.0, 1000.0, 10000.0, 100000.0), "fixed": {"omega": 0.3}},
    "omega": {"rows": ("obd-sd", "mean-mix"), "values": (0.1, 0.3, 0.5, 0.7, 0.9, 0.99), "fixed": {"weight": 100.0}},
}
"""The supplement's curves, on held-out classes: 150 epochs, learning rate 1e-4."""
CURVES_REGIME = "cub-linear-long"


def curve_points(data: str) -> dict[str, TrainOptions]:
    """Runs of both curves, by axis, row and value."""
    common = {**REGIMES[CURVES_REGIME].common, "epochs": 150, "lr": 1e-4}
    found = {}
    for axis, curve in CURVES.items():
        for row, value in itertools.product(curve["rows"], curve["values"]):
            start, own = ROWS[row]
            found[f"{axis}/{row}/{value:g}"] = preset(start, data, **{**common, **own, **curve["fixed"], axis: value})
    return found
