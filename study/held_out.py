"""Tables of the search on held-out classes: all rows at equal settings, and whether the test classes agreed with the held-out ones."""

from __future__ import annotations

import numpy as np

from study.plan import REGIMES, ROWS, TITLES, beginning, name_of
from study.reading import SCORES, Rows, chosen_of, gains_of, of_folds, tested_regimes
from study.records import records

WEIGHTS = (1.0, 10.0, 100.0, 1000.0, 10000.0, 100000.0)
ALIKE = ("ms", "psd", "obd-sd", "obd-sd-softmax", "mean-mix", "uniform-mix", "flat", "balanced")


def alike_table(regime: str) -> Rows:
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
    yield ["", *(f"λ = {weight:g}" for weight in weights)]
    yield from ([row, *(cells[row, weight] for weight in weights)] for row in ALIKE)


def carried_gains() -> dict[str, dict[str, tuple[float, float]]]:
    """Gains in Recall@1 over the plain loss, by regime and row: on held-out classes at the chosen settings, and on test classes."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for regime, results in tested_regimes():
        recalls = {row: 100 * entry["validation"] for row, entry in chosen_of(regime).items()}
        gains = {row: float(np.mean(gains_of(results, row, "ms"))) for row in results if row != "ms"}
        found[regime] = {row: (recalls[row] - recalls["ms"], gain) for row, gain in gains.items()}
    return found


def carried_table(_: str) -> Rows:
    """Gains over the plain loss on held-out classes, beside those on test classes."""
    regimes = carried_gains()
    yield ["held-out, test", *(TITLES[regime] for regime in regimes)]
    for row in ROWS:
        cells = ["{:+.1f}, {:+.1f}".format(*gains[row]) if row in gains else "" for gains in regimes.values()]
        if any(cells):
            yield [row, *cells]


def agreement_table(_: str) -> Rows:
    """How often test and held-out classes agreed on whether a row is above the plain loss, by the gain on held-out classes."""
    found = [(regime.endswith("-long"), *both) for regime, gains in carried_gains().items() for both in gains.values()]
    long, held_out, test = (np.array(column) for column in zip(*found, strict=True))
    groups = {
        "1 point or more, 150 epochs": (held_out >= 1) & long,
        "1 point or more, elsewhere": (held_out >= 1) & ~long,
        "less than 1 point, either way": np.abs(held_out) < 1,
        "-1 point or less": held_out <= -1,
    }
    yield ["gain on held-out classes", "rows", "test classes agreed", "held-out gain, mean", "test gain, mean"]
    for name, group in groups.items():
        if group.any():
            agreed = (held_out * test > 0)[group].sum()
            yield [name, str(group.sum()), str(agreed), f"{held_out[group].mean():+.1f}", f"{test[group].mean():+.1f}"]
