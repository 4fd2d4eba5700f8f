"""Plots of docs/results.md, from the records under results/."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from study.plan import CURVES, FOLDS
from study.records import ROOT, records
from study.tables import Record, results_of

IMAGES = ROOT / "docs" / "images"
STYLE: dict[str, tuple[str, str]] = {  # Okabe and Ito's colours, told apart by everyone; markers for print
    "ms": ("#000000", "o"),
    "psd": ("#0072B2", "s"),
    "obd-sd": ("#D55E00", "^"),
    "obd-sd-softmax": ("#E69F00", "v"),
    "mean-mix": ("#009E73", "D"),
    "anchor": ("#CC79A7", "*"),
}
SHOWN = tuple(STYLE)


def draw_all() -> None:
    IMAGES.mkdir(exist_ok=True)
    if records("curves"):
        draw_curves()
    for regime in ("cub-two-layer-long", "cub-linear-long"):
        if results_of(regime):
            draw_training(regime)


def draw_curves() -> None:
    """Recall@1 on held-out classes over λ and over ω: the supplement's two curves."""
    found = records("curves")
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True)
    for panel, (axis, curve) in zip(axes, CURVES.items(), strict=True):
        for row in curve["rows"]:
            names = {value: [f"{axis}/{row}/{value:g}/fold-{fold}" for fold in range(len(FOLDS))] for value in curve["values"]}
            done = {
                value: [found[name]["scores"]["recall"]["1"] for name in both] for value, both in names.items() if found.keys() >= {*both}
            }
            colour, marker = STYLE[row]
            panel.plot(list(done), [100 * np.mean(both) for both in done.values()], color=colour, marker=marker, label=row)
        panel.set_xlabel({"weight": "λ (ω = 0.3)", "omega": "ω (λ = 100)"}[axis])
        panel.grid(alpha=0.3)
    axes[0].set_xscale("log")
    axes[0].set_ylabel("Recall@1, held-out classes, %")
    axes[0].legend()
    _save(figure, "weight-omega")


def draw_training(regime: str) -> None:
    """Over the epochs of the test runs: geometry of the training set, entropy of the targets, the distillation's share of the gradient."""
    results = results_of(regime)
    panels: dict[str, Callable[[Any], float | None]] = {
        "density": lambda point: point.get("train", {}).get("density"),
        "spectral decay": lambda point: point.get("train", {}).get("spectral_decay"),
        "entropy of the targets / log b": lambda point: point.get("distillation", {}).get("entropy"),
        "distillation's share of the gradient": lambda point: point.get("distillation", {}).get("gradient_share"),
    }
    figure, axes = plt.subplots(1, 4, figsize=(15, 3.6))
    for panel, (title, of) in zip(axes, panels.items(), strict=True):
        for row in SHOWN:
            if row in results:
                _draw_line(panel, row, list(results[row].values()), of)
        panel.set_title(title, fontsize=10)
        panel.set_xlabel("epoch")
        panel.grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    _save(figure, f"training-{regime}")


def _draw_line(panel: Axes, row: str, runs: list[Record], of: Callable[[Any], float | None]) -> None:
    """The mean over seeds, where all of them have a value."""
    values: dict[int, list[float]] = {}
    for record in runs:
        for point in record["curve"]:
            value = of(point)
            if value is not None:
                values.setdefault(point["epoch"] + 1, []).append(value)
    shared = sorted(epoch for epoch, found in values.items() if len(found) == len(runs))
    colour, marker = STYLE[row]
    if shared:
        panel.plot(shared, [np.mean(values[epoch]) for epoch in shared], color=colour, marker=marker, markersize=4, label=row)


def _save(figure: Any, name: str) -> None:
    figure.tight_layout()
    figure.savefig(IMAGES / f"{name}.png", dpi=110, metadata={"Software": None})
    plt.close(figure)
