"""Tables of the search on held-out classes: all rows at equal settings, and whether the test classes agreed with the held-out ones."""

from __future__ import annotations

import numpy as np

from obdsd.experiments.tables import markdown_table
from study.plan import REGIMES, ROWS, TITLES, beginning, name_of
from study.reading import SCORES, chosen_of, gains_of, of_folds, results_of
from study.records import records

WEIGHTS = (1.0, 10.0, 100.0, 1000.0, 10000.0, 100000.0)
ALIKE = ("ms", "psd", "obd-sd", "obd-sd-softmax", "mean-mix", "uniform-mix", "flat", "balanced")


def alike_table(regime: str) -> str:
    """All rows with the settings at which the search begins, over λ: Recall@1 and MAP@R on held-out classes, mean of the folds."""
    runs, cells = records(f"{regime}/search"), {}
    for row in ALIKE:
        begin = beginning(REGIMES[regime], row)
        for weight in WEIGHTS:
            point = name_of({**begin, "weight": weight} if "weight" in begin else begin)
            if both := of_folds(runs, f"{row}/{point}"):
                means = [np.mean([SCORES[score](run) for run in both]) for score in ("R@1", "MAP@R")]
                cells[row, weight] = ", ".join(f"{mean:.1f}" for mean in means)
    weights = [weight for weight in WEIGHTS if all((row, weight) in cells for row in ALIKE)]
    lines = [[row, *(cells[row, weight] for weight in weights)] for row in ALIKE]
    return markdown_table([["", *(f"λ = {weight:g}" for weight in weights)], *lines])


def carried_gains(regime: str) -> dict[str, tuple[float, float]]:
    """Gains in Recall@1 over the plain loss, by row: on held-out classes at the chosen settings, and on test classes."""
    chosen, results = chosen_of(regime), results_of(regime)
    return {
        row: (100 * (chosen[row]["validation"] - chosen["ms"]["validation"]), float(np.mean(gains_of(results, row, "ms"))))
        for row in results
        if row != "ms"
    }


def all_carried_gains() -> dict[str, dict[str, tuple[float, float]]]:
    """The same for every regime that was tested."""
    return {regime: carried_gains(regime) for regime in TITLES if results_of(regime)}


def carried_table(_: str) -> str:
    """Gains over the plain loss on held-out classes, beside those on test classes."""
    regimes = all_carried_gains()
    lines = [["held-out, test", *(TITLES[regime] for regime in regimes)]]
    for row in ROWS:
        cells = ["{:+.1f}, {:+.1f}".format(*gains[row]) if row in gains else "" for gains in regimes.values()]
        if any(cells):
            lines.append([row, *cells])
    return markdown_table(lines)


def agreement_table(_: str) -> str:
    """How often test and held-out classes agreed on whether a row is above the plain loss, by the gain on held-out classes."""
    found = [(regime.endswith("-long"), *both) for regime, gains in all_carried_gains().items() for both in gains.values()]
    long, held_out, test = (np.array(column) for column in zip(*found, strict=True))
    groups = {
        "1 point or more, 150 epochs": (held_out >= 1) & long,
        "1 point or more, elsewhere": (held_out >= 1) & ~long,
        "less than 1 point, either way": np.abs(held_out) < 1,
        "-1 point or less": held_out <= -1,
    }
    lines = [["gain on held-out classes", "rows", "test classes agreed", "held-out gain, mean", "test gain, mean"]]
    for name, group in groups.items():
        if group.any():
            agreed = (held_out * test > 0)[group].sum()
            lines.append([name, str(group.sum()), str(agreed), f"{held_out[group].mean():+.1f}", f"{test[group].mean():+.1f}"])
    return markdown_table(lines)
