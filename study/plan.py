"""The plan: regimes, rows, and for each row the settings among which the held-out classes choose."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from obdsd.options import TrainOptions, why_idle
from obdsd.presets import preset
from study.records import SCRATCH

Change = Mapping[str, Any]
Turn = tuple[Change, ...] | Callable[[str, Change], tuple[Change, ...]]  # or what it compares, by the row and its present point

SEARCH_SEED = 100  # not one of the test's, which begin at 0
FOLDS = ("0/3", "1/3")
MAIN = ("ms", "psd", "obd-sd", "obd-sd-softmax", "mean-mix", "uniform-mix", "flat", "balanced")
"""Rows that get ten seeds on test; the others get five."""
NOISE = (0.2, 0.4)
REPLACED = ("ms", "psd", "obd-sd")
"""Rows that are also trained on batches drawn with replacement."""
NOISE_ROWS = ("ms", "psd", "obd-sd", "mean-mix", "uniform-mix", "flat", "anchor+walk")


@dataclass(frozen=True, kw_only=True)
class Regime:
    """Data, options that all rows share, and the search of a row's settings: where it begins and what it tries, turn by turn."""

    data: str  # cub128.npz or letters64.npz, files of frozen features; glyphs, the letters themselves; or CUB's photos
    common: Change
    begin: Change
    turns: tuple[Turn, ...]
    folds: tuple[str, ...] = FOLDS
    noise: tuple[float, ...] = NOISE
    test: Change = field(default_factory=dict)  # what only the runs on the test classes have
    better: str = ""  # a file of features that are better than those of the data


RANDOM = {"head_init": "random"}
TWO_LAYER, LINEAR = {"head": "two-layer", "hidden": 512, **RANDOM}, {"head": "linear", **RANDOM}
PROJECTED = {**LINEAR, "head_init": "projection"}
QUIET = {"reference": False, "evaluate_every": 0}
FREE = {
    "begin": {"epochs": 10, "lr": 5e-4, "weight": 100.0, "omega": 0.3, "temperature": 1.0},
    "turns": (
        tuple({"weight": weight} for weight in (1.0, 10.0, 1000.0, 10000.0)),
        ({"omega": 0.1}, {"omega": 0.7}),
        ({"lr": 5e-4, "epochs": 5}, {"lr": 5e-4, "epochs": 40}, {"lr": 1e-3, "epochs": 10}, {"lr": 1e-4, "epochs": 40}),
        ({"temperature": 0.2},),
    ),
}
LONG = {
    "begin": {"epochs": 150, "lr": 1e-4, "weight": 1000.0, "omega": 0.3},
    "turns": (tuple({"weight": weight} for weight in (10.0, 100.0, 10000.0, 100000.0)), ({"omega": 0.1}, {"omega": 0.7})),
}
WATCHED = {**QUIET, "evaluate_every": 10}
GLYPHS = {**WATCHED, "evaluate_every": 20, "crop": 1.0, "workers": 0}  # letters from scratch, without augmentation: quick to over-fit
GLYPHS_NOISE = {**GLYPHS, "evaluate_every": 5, "label_noise": 0.2}  # over-fitted within 40 epochs

NETWORK = {
    "frozen": False,
    "backbone": "tf_efficientnet_lite0",
    "pretrained": "offline",
    "size": 96,
    "batchnorm": "frozen",
    "dim": 128,
    "reference": False,
    "evaluate_every": 5,
    "workers": 0,
    "cache": str(SCRATCH / "cache"),
    "cache_side": 0,
}
"""A whole network on CUB's photos, as large as two cores allow."""

SCALES = {"soft": (0.5, 1.5)}
"""By what weights are multiplied in a search, by the beginning of a row's name; others by a tenth and ten."""


def weights(row: str, point: Change) -> tuple[Change, ...]:
    """Other weights than the present one, if the row has one."""
    scales = next((scales for start, scales in SCALES.items() if row.startswith(start)), (0.1, 10.0))
    most = 0.95 if row.startswith("soft") else float("inf")  # a share
    scaled = (float(f"{point['weight'] * scale:.6g}") for scale in scales if "weight" in point)  # as a record has it
    return tuple({"weight": min(most, weight)} for weight in scaled)


RECIPE: dict[str, Any] = {
    "common": {**QUIET, **PROJECTED},
    "begin": {"epochs": 20, "lr": 5e-4, "weight": 100.0, "omega": 0.3, "temperature": 0.1},
    "turns": (
        weights,
        ({"epochs": 10}, {"epochs": 40}, {"lr": 1e-4, "epochs": 40}, {"lr": 2e-4}),
        ({"temperature": 0.05}, {"temperature": 0.2}, {"temperature": 1.0}),
        weights,
    ),
    "test": {"rerank": "diffusion"},
}
LONGER: dict[str, Any] = {
    **RECIPE,
    "common": {**RECIPE["common"], "dim": 512},
    "turns": (*RECIPE["turns"][:3], ({"feature_power": 0.5},), *RECIPE["turns"][3:]),
}
"""The same with embeddings of 512 numbers, from features of another pooling, of which a power may be taken."""

CUB, CUB_224, CUB_GEM, LETTERS, LETTERS_GEM = "cub128.npz", "cub224.npz", "cub224-gem.npz", "letters64.npz", "letters64-gem.npz"
CUB_LITE2, LETTERS_LITE2, PHOTOS = "cub260-lite2-gem.npz", "letters260-lite2-gem.npz", "CUB_200_2011"

REGIMES: dict[str, Regime] = {
    "cub-two-layer-free": Regime(data=CUB, common={**QUIET, **TWO_LAYER}, **FREE),
    "cub-linear-free": Regime(data=CUB, common={**QUIET, **LINEAR}, **FREE),
    "cub-projected-free": Regime(data=CUB, common={**QUIET, **PROJECTED}, **FREE),
    "cub-two-layer-long": Regime(data=CUB, common={**WATCHED, **TWO_LAYER}, **LONG),
    "cub-linear-long": Regime(data=CUB, common={**WATCHED, **LINEAR}, **LONG),
    "letters-linear-free": Regime(data=LETTERS, common={**QUIET, **LINEAR}, **FREE),
    "letters-projected-free": Regime(data=LETTERS, common={**QUIET, **PROJECTED}, **FREE),
    "cub224-recipes": Regime(data=CUB_224, **RECIPE),
    "letters-recipes": Regime(data=LETTERS, **RECIPE),
    "cub224-gem": Regime(data=CUB_GEM, better=CUB_LITE2, **LONGER),
    "letters-gem": Regime(data=LETTERS_GEM, better=LETTERS_LITE2, **LONGER),
    "cub224-gem-128": Regime(data=CUB_GEM, **RECIPE),
    "letters-gem-128": Regime(data=LETTERS_GEM, **RECIPE),
    "cub224-512": Regime(data=CUB_224, **LONGER),
    "letters-512": Regime(data=LETTERS, **LONGER),
    "cub-lite2-gem": Regime(data=CUB_LITE2, **LONGER),
    "glyphs": Regime(data="glyphs", common={**GLYPHS}, begin={"epochs": 200, "lr": 3e-3}, turns=((),)),
    "glyphs-noise": Regime(
        data="glyphs",
        common=GLYPHS_NOISE,
        begin={"epochs": 40, "lr": 1e-3, "weight": 100.0, "omega": 0.3},
        turns=(tuple({"weight": weight} for weight in (1.0, 10.0, 1000.0, 10000.0)), ({"omega": 0.7},)),
    ),
    "cub-network-paper": Regime(
        data=PHOTOS,
        common={**NETWORK, **RANDOM},
        begin={"epochs": 60, "lr": 1e-5, "weight": 1000.0, "omega": 0.3},
        turns=((),),
        folds=FOLDS[:1],
        noise=(0.3,),
        test={"evaluate_every": 0, "test_every": 5},
    ),
    "cub-network-free": Regime(
        data=PHOTOS,
        common={**NETWORK, **PROJECTED},
        begin={"epochs": 20, "lr": 3e-5, "weight": 1000.0, "omega": 0.3},
        turns=(
            ({"lr": 1e-5}, {"lr": 1e-4}),
            ({"epochs": 10}, {"epochs": 40}),
            tuple({"weight": weight} for weight in (10.0, 100.0, 10000.0)),
        ),
        folds=FOLDS[:1],
        noise=(0.3,),
        test={"evaluate_every": 0, "test_every": 5},
    ),
}

TITLES = {
    "cub-linear-free": "linear head, all chosen",
    "cub-two-layer-free": "two-layer head, all chosen",
    "cub-projected-free": "projected head, all chosen",
    "letters-linear-free": "letters' features, linear head, all chosen",
    "letters-projected-free": "letters' features, projected head, all chosen",
    "cub-linear-long": "linear head, 150 epochs",
    "cub-two-layer-long": "two-layer head, 150 epochs",
    "glyphs-noise": "letters from scratch",
}
"""Regimes that the tables compare, by their titles there."""

ROWS: dict[str, tuple[str, Change]] = {
    "ms": ("ms", {}),
    "psd": ("ms+psd", {}),
    "obd-sd": ("ms+obd-sd", {}),
    "obd-sd-softmax": ("ms+obd-sd-softmax", {}),
    "mean-mix": ("ms+mean-mix", {}),
    "uniform-mix": ("ms+uniform-mix", {}),
    "flat": ("ms+psd", {"targets": "pairwise(scale=0.7)"}),
    "balanced": ("ms+psd-balanced", {}),
    "psd-constant": ("ms+psd-constant", {}),
    "obd-sd-sharp": ("ms+obd-sd-softmax", {"targets": "batch-diffusion(form=softmax, walk_temperature=0.05)"}),
    "ema": ("ms+psd", {"teacher": "ema"}),
    "memory": ("ms+psd", {"teacher": "memory"}),
    "margin": ("margin", {}),
    "margin+obd-sd": ("margin+obd-sd", {}),
    "anchor": ("ms+psd-constant", {"teacher": "features"}),
    "anchor+walk": ("ms+obd-sd", {"teacher": "features", "ramp": "constant"}),
    "anchor+mean-mix": ("ms+mean-mix", {"teacher": "features", "ramp": "constant"}),
    "ms-tuned": ("ms-tuned", {}),
    "supcon": ("supcon", {}),
    "supcon-average": ("supcon", {"keep": "average"}),
    "soft": ("supcon+soft-labels", {}),
    "soft-uniform": ("supcon+smooth-labels", {}),
    "soft-random": ("supcon+soft-labels", {"teacher": "random"}),
    "soft-previous": ("supcon+soft-labels", {"teacher": "previous-epoch"}),
    "soft-mates": ("supcon+soft-labels", {"teacher": "ema(decay=0)", "targets": "class-mates"}),
    "soft-walk": ("supcon+soft-labels", {"targets": "batch-diffusion(omega=0.3)"}),
    "soft-kernel": ("supcon+soft-labels", {"targets": "kernel"}),
    "soft-global-kernel": ("supcon+soft-labels", {"targets": "global-kernel"}),
    "soft-average": ("supcon+soft-labels", {"keep": "average"}),
    "soft-better": ("supcon+soft-labels", {}),
    "psd-better": ("ms+psd-constant", {}),
    "anchor-others": ("ms+anchor", {"matching": "kl(diagonal=false)"}),
    "anchor-rcl": ("ms+anchor", {"matching": "rcl"}),
    "anchor-rkd": ("ms+anchor", {"matching": "rkd"}),
    "anchor-pkt": ("ms+anchor", {"matching": "pkt"}),
    "anchor-cosine": ("ms+anchor", {"matching": "cosine"}),
}
BEGIN: dict[str, Change] = {
    **{row: {"weight": 0.5} for row in ROWS if row.startswith("soft")},
    "anchor-rcl": {"weight": 1.0},
    "anchor-rkd": {"weight": 10.0},
    "anchor-pkt": {"weight": 10000.0},
    "anchor-cosine": {"weight": 10.0},
}
"""Where the search of a row begins, if the regime's weight is not of its kind."""
TAUGHT = ("soft-better", "psd-better")
"""Rows whose teacher is the features of a larger network at larger images, those of the regime's file `better`."""
FIRST_STUDY = tuple(ROWS)[: list(ROWS).index("ms-tuned")]
LATER = tuple(row for row in ROWS if row not in FIRST_STUDY)
NETWORK_ROWS = ("ms", "obd-sd", "psd", "mean-mix", "uniform-mix", "flat")
RECIPE_ROWS = (*NETWORK_ROWS, "anchor", *(row for row in LATER if row not in TAUGHT))
GEM_ROWS = ("ms", "psd", "obd-sd", "ms-tuned", "supcon", "soft", "soft-uniform", "soft-random", "soft-average", "anchor-cosine", *TAUGHT)
PLAIN_ROWS = ("ms", "ms-tuned")
OWN_ROWS = {
    **dict.fromkeys(("cub-network-paper", "cub-network-free"), NETWORK_ROWS),
    **dict.fromkeys(("cub224-recipes", "letters-recipes"), RECIPE_ROWS),
    **dict.fromkeys(("cub224-gem", "letters-gem"), GEM_ROWS),
    **dict.fromkeys(("cub224-gem-128", "letters-gem-128", "cub224-512", "letters-512"), PLAIN_ROWS),
    "cub-lite2-gem": ("ms", "supcon", "soft", "soft-uniform"),
}


def rows_of(regime: str) -> tuple[str, ...]:
    """The rows that a regime is about."""
    return OWN_ROWS.get(regime, FIRST_STUDY)


WALKS = {
    "obd-sd": ("mean-mix",),
    "obd-sd-sharp": ("psd", "mean-mix", "uniform-mix"),
    "anchor+walk": ("anchor", "anchor+mean-mix"),
}
"""Rows with a walk, and those that at equal settings differ from them by the walk alone."""


def options_of(regime: Regime, row: str, data: str, point: Change) -> TrainOptions:
    start, own = ROWS[row]
    if row in TAUGHT:
        own = {"teacher": f"embeddings({os.path.relpath(SCRATCH / regime.better)})"}
    return preset(start, data, **{**regime.common, **own, **point})


def beginning(regime: Regime, row: str) -> Change:
    """Where a row's search begins: the settings that the row has at all."""
    return {axis: BEGIN.get(row, {}).get(axis, value) for axis, value in regime.begin.items() if _acts(axis, row)}


def control_of(regime: Regime, row: str, point: Change) -> Change:
    """A walk's settings for its control: those that the control has at all."""
    return {axis: value for axis, value in point.items() if axis in beginning(regime, row)}


def turn_of(point: Change, turn: Turn, row: str) -> list[Change]:
    """The points that a turn compares: the present one, and every change of it that the row knows."""
    changes = turn(row, point) if callable(turn) else turn
    return [point, *({**point, **change} for change in changes if all(_acts(axis, row) for axis in change))]


def tried(regime: Regime, row: str) -> int:
    """How many settings of a row are compared in all turns of its search."""
    begin = beginning(regime, row)
    return 1 + sum(len(turn_of(begin, changes, row)) - 1 for changes in regime.turns)


@cache
def _acts(axis: str, row: str) -> bool:
    """Whether the row has this setting at all."""
    usual = preset(ROWS[row][0], "rows.npz", **ROWS[row][1])
    if axis == "omega":
        return axis in usual.targets.settings and not why_idle(usual, "targets")
    return axis not in ("weight", "temperature") or not why_idle(usual, axis)


def name_of(point: Change) -> str:
    return ",".join(f"{axis}={value:g}" for axis, value in point.items())


def seeds_of(row: str) -> Iterable[int]:
    return range(10 if row in (*MAIN, *LATER) else 5)


CURVES_REGIME = "cub-linear-long"
CURVES: dict[str, tuple[tuple[str, ...], tuple[float, ...]]] = {  # by axis: rows and values
    "weight": (("psd", "obd-sd", "mean-mix"), (1.0, 10.0, 100.0, 1000.0, 10000.0, 100000.0)),
    "omega": (("obd-sd", "mean-mix"), (0.1, 0.3, 0.5, 0.7, 0.9, 0.99)),
}
"""The supplement's two curves, on held-out classes. Both go through the point where the regime's search begins."""


def curve_points(axis: str) -> dict[tuple[str, float], Change]:
    """Points of a curve by row and value. The search has already tried some of them."""
    rows, values = CURVES[axis]
    return {(row, value): {**beginning(REGIMES[CURVES_REGIME], row), axis: value} for row in rows for value in values}
