"""Plots of the results' pages, made from the records alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from study import advice
from study.held_out import carried_gains
from study.plan import CURVES, CURVES_REGIME, TITLES, curve_points, name_of
from study.reading import chosen_of, of_folds, recall, results_of
from study.records import ROOT, Record, records

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
APART = "cosine distance of class means"  # over three decades
DATA_STYLE = {"CUB": ("#0072B2", -0.12), "letters": ("#D55E00", 0.12)}  # colour, and how far above or below the line
WIDER = {"obd-sd": 7.0, "obd-sd-softmax": 4.0}  # rows that would lie hidden under the mix with the mean row


def draw_all() -> None:
    IMAGES.mkdir(exist_ok=True)
    draw_advice()
    draw_curves()
    draw_carried()
    for regime in ("cub-two-layer-long", "cub-linear-long"):
        draw_training(regime)


def draw_advice() -> None:
    """What each piece of advice gains, with its interval, and what its control gains: a panel for each score."""
    titles = [each.title for each in advice.ADVICE if any(each.title == title for title, *_ in advice.gains("R@1"))]
    figure, axes = plt.subplots(1, 2, figsize=(11, 0.5 * len(titles) + 1.6), sharey=True)
    for panel, score in zip(axes, advice.BOTH, strict=True):
        for title, data, gain, control in advice.gains(score):
            colour, apart = DATA_STYLE[data]
            y = titles.index(title) + apart
            reach = [[0.0], [0.0]] if np.isnan(gain.low) else [[gain.mean - gain.low], [gain.high - gain.mean]]
            panel.errorbar([gain.mean], [y], xerr=reach, fmt="o", color=colour, capsize=2, label=data)
            if control:
                panel.plot([control.mean], [y], "o", markerfacecolor="white", color=colour, label=f"{data}: its control")
        panel.axvline(0, color="#999999", linewidth=1)
        panel.set_xlabel(f"gain in {score}, points")
        panel.grid(alpha=0.3, axis="x")
    axes[0].set_yticks(range(len(titles)), titles)
    axes[0].set_ylim(len(titles) - 0.5, -0.5)
    labels = {label: handle for panel in axes for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)}
    figure.legend([labels[label] for label in sorted(labels)], sorted(labels), loc="lower center", ncols=len(labels))
    _save(figure, "advice", below=0.09)


def draw_curves() -> None:
    """Recall@1 on held-out classes over λ and over ω: the supplement's two curves."""
    runs = records(f"{CURVES_REGIME}/search")
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True)
    plain = 100 * np.mean([recall(record) for name, record in runs.items() if name.startswith("ms/")])
    for panel, (axis, (rows, _)) in zip(axes, CURVES.items(), strict=True):
        panel.axhline(plain, color=STYLE["ms"][0], linestyle="--", label="ms")
        for row in rows:
            colour, marker = STYLE[row]
            curve = _curve(axis, row, runs)
            panel.plot(list(curve), list(curve.values()), color=colour, marker=marker, label=row)
        panel.set_xlabel({"weight": "λ (ω = 0.3)", "omega": "ω (λ = 1000)"}[axis])
        panel.grid(alpha=0.3)
    axes[0].set_xscale("log")
    axes[0].set_ylabel("Recall@1, held-out classes, %")
    axes[0].legend()
    _save(figure, "weight-omega")


def _curve(axis: str, row: str, runs: Mapping[str, Record]) -> dict[float, float]:
    """Recall@1 in percent, mean of the folds, by the value of λ or ω, where all folds were trained."""
    curve = {}
    for (of, value), point in curve_points(axis).items():
        if of == row and (both := of_folds(runs, f"{of}/{name_of(point)}")):
            curve[value] = 100 * float(np.mean([recall(run) for run in both]))
    return curve


def draw_carried() -> None:
    """Gains over the plain loss, held-out against test classes: a point for each row of each regime, and an enlarged part."""
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.8))
    regimes = {regime: np.array(list(gains.values())) for regime, gains in carried_gains().items()}
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
    """Over the epochs: Recall@1 on held-out classes; for the test runs the training set's geometry and the distillation's readings."""
    tested = {row: list(seeds.values()) for row, seeds in results_of(regime).items()}
    panels: list[tuple[str, Mapping[str, list[Record]], str, str]] = [  # title, runs, where their curves have the values
        ("Recall@1, held-out classes", chosen_search(regime), "validation", "recall@1"),
        (APART, tested, "train", "inter"),
        ("density", tested, "train", "density"),
        ("spectral decay", tested, "train", "spectral-decay"),
        ("entropy of the targets / log b", tested, "distillation", "entropy"),
        ("distillation's share of the gradient", tested, "distillation", "gradient_share"),
    ]
    figure, axes = plt.subplots(2, 3, figsize=(13, 7.5))
    for panel, (title, runs, group, name) in zip(axes.flat, panels, strict=True):
        for row in (row for row in STYLE if row in runs):
            _draw_line(panel, row, runs[row], group, name)
        panel.set_yscale("log" if title == APART else "linear")
        panel.set_title(title, fontsize=10)
        panel.set_xlabel("epoch")
        panel.grid(alpha=0.3)
    handles, names = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="lower center", ncols=len(names))
    _save(figure, f"training-{regime}", below=0.05)


def chosen_search(regime: str) -> dict[str, list[Record]]:
    """The runs on held-out classes with the chosen settings, by row."""
    runs = records(f"{regime}/search")
    return {row: of_folds(runs, f"{row}/{name_of(entry['settings'])}") for row, entry in chosen_of(regime).items()}


def _draw_line(panel: Axes, row: str, runs: list[Record], group: str, name: str) -> None:
    """The mean over runs, at the epochs where all of them have a value."""
    values: dict[int, list[float]] = {}
    for record in runs:
        for point in record["curve"]:
            if (value := point.get(group, {}).get(name)) is not None:
                values.setdefault(point["epoch"] + 1, []).append(value)
    shared = sorted(epoch for epoch, found in values.items() if len(found) == len(runs))
    if shared:
        colour, marker = STYLE[row]
        means = [np.mean(values[epoch]) for epoch in shared]
        panel.plot(shared, means, color=colour, marker=marker, markersize=4, lw=WIDER.get(row, 1.5), label=row)


def _save(figure: Any, name: str, below: float = 0.0) -> None:
    """With room below the panels, a share of the height, for a legend."""
    figure.tight_layout(rect=(0, below, 1, 1))
    figure.savefig(IMAGES / f"{name}.png", dpi=110, metadata={"Software": None})
    plt.close(figure)
