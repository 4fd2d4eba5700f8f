"""Plots of the results' pages, from the records under results/."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from study.contrasts import TITLES, carried_gains
from study.plan import CURVES, CURVES_REGIME, FOLDS, curve_points, name_of
from study.reading import Record, results_of
from study.records import RESULTS, ROOT, records

IMAGES = ROOT / "docs" / "images"
STYLE: dict[str, tuple[str, str]] = {  # Okabe and Ito's colours, told apart by everyone; markers for print
    "ms": ("#000000", "o"),
    "psd": ("#0072B2", "s"),
    "obd-sd": ("#D55E00", "^"),
    "obd-sd-softmax": ("#E69F00", "v"),
    "mean-mix": ("#009E73", "D"),
    "uniform-mix": ("#56B4E9", "X"),
    "flat": ("#999999", "P"),
    "anchor": ("#CC79A7", "*"),
    "balanced": ("#8B4513", "h"),
}
SHOWN = tuple(STYLE)
APART = "cosine distance of class means"  # over three decades
WIDER = {"obd-sd": 7.0, "obd-sd-softmax": 4.0}  # rows that would lie hidden under the mix with the mean row


def draw_all() -> None:
    IMAGES.mkdir(exist_ok=True)
    draw_curves()
    draw_carried()
    for regime in ("cub-two-layer-long", "cub-linear-long"):
        if results_of(regime):
            draw_training(regime)


def draw_curves() -> None:
    """Recall@1 on held-out classes over λ and over ω: the supplement's two curves."""
    found = records(f"{CURVES_REGIME}/search")
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True)
    plain = [record["scores"]["recall"]["1"] for name, record in found.items() if name.startswith("ms/")]
    for panel, (axis, (rows, _)) in zip(axes, CURVES.items(), strict=True):
        panel.axhline(100 * np.mean(plain), color=STYLE["ms"][0], linestyle="--", label="ms")
        for row in rows:
            done = {}
            for (of, value), point in curve_points(axis).items():
                names = [f"{row}/{name_of(point)}/fold-{fold}" for fold in range(len(FOLDS))]
                if of == row and found.keys() >= {*names}:
                    done[value] = 100 * np.mean([found[name]["scores"]["recall"]["1"] for name in names])
            colour, marker = STYLE[row]
            panel.plot(list(done), list(done.values()), color=colour, marker=marker, label=row)
        panel.set_xlabel({"weight": "λ (ω = 0.3)", "omega": "ω (λ = 1000)"}[axis])
        panel.grid(alpha=0.3)
    axes[0].set_xscale("log")
    axes[0].set_ylabel("Recall@1, held-out classes, %")
    axes[0].legend()
    _save(figure, "weight-omega")


def draw_carried() -> None:
    """Gains over the plain loss, held-out against test classes: a point for each row of each regime, and the small ones nearer."""
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.8))
    regimes = {regime: np.array(list(carried_gains(regime).values())) for regime in TITLES if results_of(regime)}
    for (regime, gains), (colour, marker) in zip(regimes.items(), STYLE.values(), strict=False):
        for panel in axes:
            panel.scatter(*gains.T, color=colour, marker=marker, label=TITLES[regime], alpha=0.8)
    everything = np.concatenate(list(regimes.values()))
    for panel, (low, high) in zip(axes, ((everything.min() - 0.5, everything.max() + 0.5), (-2, 3)), strict=True):
        panel.plot((low, high), (low, high), color="#999999", linewidth=1)
        panel.axhline(0, color="#cccccc", linewidth=1)
        panel.axvline(0, color="#cccccc", linewidth=1)
        panel.set(xlim=(low, high), ylim=(low, high), xlabel="gain on held-out classes, points", ylabel="gain on test classes, points")
    axes[0].legend(fontsize=7, loc="lower right")
    axes[1].set_title("the same, nearer", fontsize=10)
    _save(figure, "held-out-test")


def draw_training(regime: str) -> None:
    """Over the epochs: Recall@1 on held-out classes; in the test runs the training set's geometry and what the distillation was."""
    tested = {row: list(runs.values()) for row, runs in results_of(regime).items()}
    panels: list[tuple[str, dict[str, list[Record]], Callable[[Any], float | None]]] = [
        ("Recall@1, held-out classes", chosen_search(regime), lambda point: point.get("validation", {}).get("recall", {}).get("1")),
        (APART, tested, lambda point: point.get("train", {}).get("inter")),
        ("density", tested, lambda point: point.get("train", {}).get("density")),
        ("spectral decay", tested, lambda point: point.get("train", {}).get("spectral_decay")),
        ("entropy of the targets / log b", tested, lambda point: point.get("distillation", {}).get("entropy")),
        ("distillation's share of the gradient", tested, lambda point: point.get("distillation", {}).get("gradient_share")),
    ]
    figure, axes = plt.subplots(2, 3, figsize=(13, 7.5))
    for panel, (title, runs, of) in zip(axes.flat, panels, strict=True):
        for row in SHOWN:
            if row in runs:
                _draw_line(panel, row, runs[row], of)
        panel.set_yscale("log" if title == APART else "linear")
        panel.set_title(title, fontsize=10)
        panel.set_xlabel("epoch")
        panel.grid(alpha=0.3)
    handles, names = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="lower center", ncols=len(names))
    _save(figure, f"training-{regime}", below=0.05)


def chosen_search(regime: str) -> dict[str, list[Record]]:
    """The runs on held-out classes with the settings that were chosen, by row."""
    chosen = json.loads((RESULTS / regime / "chosen.json").read_text())
    found = records(f"{regime}/search")
    names = {row: [f"{row}/{name_of(entry['settings'])}/fold-{fold}" for fold in range(len(FOLDS))] for row, entry in chosen.items()}
    return {row: [found[name] for name in both] for row, both in names.items()}


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
        width = WIDER.get(row, 1.5)
        panel.plot(shared, [np.mean(values[epoch]) for epoch in shared], color=colour, marker=marker, markersize=4, lw=width, label=row)


def _save(figure: Any, name: str, below: float = 0.0) -> None:
    """With room below the panels, a share of the height, for a legend."""
    figure.tight_layout(rect=(0, below, 1, 1))
    figure.savefig(IMAGES / f"{name}.png", dpi=110, metadata={"Software": None})
    plt.close(figure)
