"""Tables that set rows or regimes against each other: differences, paired by seed, and what held-out classes had said of them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from scipy import stats

from obdsd.experiments.tables import markdown_table
from study.plan import FOLDS, NOISE, REGIMES, REPLACED, ROWS, WALKS, beginning, name_of
from study.reading import (
    EQUAL,
    GRAPHLESS,
    SCORES,
    Results,
    at_equal_settings,
    by_wrong_labels,
    chosen_of,
    differences,
    gain_of,
    gains_of,
    relative_gain,
    results_of,
    stages_of,
    tested,
    verdict,
)
from study.records import records

HEADLINES = {
    "ms": "Multi-Similarity",
    "psd": "+ PSD",
    "balanced": "+ PSD, balanced (ours: nobody is near to everybody)",
    "obd-sd": "+ OBD-SD",
    "mean-mix": "+ MeanMix (control: no graph)",
    "flat": "+ flatter teacher (control: PSD, its cosines × 0.7)",
    "anchor": "+ anchor (ours: the untrained features teach)",
}
WEIGHTS = (1.0, 10.0, 100.0, 1000.0, 10000.0, 100000.0)
HEADLINE_REGIMES = ("cub-linear-free", "cub-projected-free", "letters-linear-free", "letters-projected-free", "cub-two-layer-long")
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


def primary_table(_: str) -> str:
    """The questions that the paper's claim comes to, with clean labels; bold where the answer holds after Holm's correction for all."""
    others = ("ms", "psd", "mean-mix")
    clean = [regime for regime in TITLES if not REGIMES[regime].common.get("label_noise")]
    regimes = {regime: results for regime in clean if (results := results_of(regime)).keys() >= {"obd-sd", *others}}
    asked = [(regime, other) for regime in regimes for other in others]
    small = dict(zip(asked, holm([_probability(gains_of(regimes[regime], "obd-sd", other)) for regime, other in asked]), strict=True))
    lines = [["", "ms", *(f"obd-sd − {other}" for other in others), "the gain is"]]
    for regime, results in regimes.items():
        cells = [gain_of(results, "obd-sd", other) for other in others]
        marked = [f"**{cell}**" if small[regime, other] < 0.05 else cell for cell, other in zip(cells, others, strict=True)]
        lines.append([TITLES[regime], mean_of(results, "ms"), *marked, verdict(tested(regime))])
    return markdown_table(lines)


def _probability(gains: list[float]) -> float:
    """Two-sided, of a mean of 0 by Student's t; 1 for gains that are all 0."""
    return float(stats.ttest_1samp(gains, 0.0).pvalue) if np.any(gains) else 1.0


def holm(probabilities: Iterable[float]) -> list[float]:
    """Corrected for asking so many questions: with these, the chance of one wrong "yes" among all is what it was for one.

    >>> holm([0.01, 0.04, 0.02])
    [0.03, 0.04, 0.04]
    """
    found = np.array(list(probabilities))
    order = np.argsort(found)
    stepped = np.minimum(1, np.maximum.accumulate(found[order] * np.arange(len(found), 0, -1)))
    return [float(value) for value in stepped[np.argsort(order)]]


def mean_of(results: Results, row: str, score: str = "R@1") -> str:
    return f"{np.mean([SCORES[score](record) for record in results[row].values()]):.1f}"


def answer_table(_: str) -> str:
    """Regime by regime: is OBD-SD above the plain loss, and above the mix with the batch's mean row, which knows no graph?"""
    mixes = ["obd-sd − mean-mix", "− mean-mix at OBD-SD's settings"]
    lines = [["", "wrong labels", "seeds", "ms", "psd − ms", "obd-sd − ms", *mixes, "the gain is"]]
    for regime, title in TITLES.items():
        for share, stage in stages_of(regime).items():
            results = tested(regime) if stage == "test" else results_of(regime, stage)
            if results.keys() >= {"ms", "obd-sd", "mean-mix"}:
                pairs = [gain_of(results, *pair) for pair in (("psd", "ms"), ("obd-sd", "ms"), ("obd-sd", "mean-mix"), ("obd-sd", EQUAL))]
                seeds = str(len(results["ms"].keys() & results["obd-sd"].keys()))
                lines.append([title, f"{share:.0%}", seeds, mean_of(results, "ms"), *pairs, verdict(results)])
    return markdown_table(lines)


def graphless_table(_: str) -> str:
    """OBD-SD beside every control that knows no graph, in the regimes that have all of them."""
    lines = [["obd-sd −", *GRAPHLESS]]
    for regime, title in TITLES.items():
        results = tested(regime)
        if results.keys() >= {*GRAPHLESS} - {EQUAL}:
            lines.append([title, *(gain_of(results, "obd-sd", control) for control in GRAPHLESS)])
    return markdown_table(lines)


def headline_table(_: str) -> str:
    """The README's: the rows that the answer is about, regime by regime."""
    regimes = {TITLES[regime]: results_of(regime) for regime in HEADLINE_REGIMES}
    lines = [["Recall@1", *regimes]]
    for row, name in HEADLINES.items():
        cells = []
        for results in regimes.values():
            gain = f", {gain_of(results, row, 'ms')}" if row != "ms" else ""
            cells.append(mean_of(results, row) + gain if row in results else "")
        lines.append([name, *cells])
    return markdown_table(lines)


def precision_table(_: str) -> str:
    """Regime by regime, what the first table says of Recall@1 said of MAP@R, and OBD-SD beside PSD."""
    lines = [["MAP@R", "ms", "psd − ms", "obd-sd − ms", "obd-sd − mean-mix", "obd-sd − psd"]]
    for regime, title in TITLES.items():
        results = results_of(regime)
        if results.keys() >= {"ms", "psd", "obd-sd", "mean-mix"}:
            pairs = (("psd", "ms"), ("obd-sd", "ms"), ("obd-sd", "mean-mix"), ("obd-sd", "psd"))
            lines.append([title, mean_of(results, "ms", "MAP@R"), *(gain_of(results, *pair, "MAP@R") for pair in pairs)])
    return markdown_table(lines)


def balanced_table(_: str) -> str:
    """PSD with balanced targets beside the plain loss, PSD and OBD-SD, wherever it was tested."""
    lines = [["", "", "balanced", "− ms", "− psd", "− obd-sd"]]
    for regime, title in TITLES.items():
        results = results_of(regime)
        for score in ("R@1", "MAP@R") if "balanced" in results else ():
            mean = mean_of(results, "balanced", score)
            lines.append([title, score, mean, *(gain_of(results, "balanced", other, score) for other in ("ms", "psd", "obd-sd"))])
    return markdown_table(lines)


def stopped_table(_: str) -> str:
    """Rows of long training beside the plain loss with learning rate and epochs chosen."""
    rows = ("ms", "psd", "obd-sd", "mean-mix", "anchor")
    lines = [["", "ms, epochs chosen", *rows]]
    for regime in long_regimes():
        stopped = results_of(regime.replace("-long", "-free"))["ms"]
        results = {**results_of(regime), "stopped": stopped}
        lines.append([TITLES[regime], mean_of(results, "stopped"), *(gain_of(results, row, "stopped") for row in rows)])
    return markdown_table(lines)


def projection_table(_: str) -> str:
    """A head that begins as the projection beside one that begins at random, each row with its own settings, paired by seed."""
    lines = [["projected − random", "", "ms", "psd", "obd-sd", "mean-mix", "anchor"]]
    for data in ("cub", "letters"):
        random, projected = (results_of(f"{data}-{head}-free") for head in ("linear", "projected"))
        for score in ("R@1", "MAP@R"):
            pairs = ({"random": random[row], "projected": projected[row]} for row in lines[0][2:])
            lines.append([data, score, *(gain_of(pair, "projected", "random", score) for pair in pairs)])
    return markdown_table(lines)


def long_regimes() -> list[str]:
    return [regime for regime in TITLES if regime.endswith("-long") and results_of(regime)]


def robust_table(_: str) -> str:
    """Gains over the plain loss by the share of wrong labels, in points and relative to it, where OBD-SD gains with clean ones."""
    lines = [["", "", *(f"{share:.0%} wrong labels" for share in (0.0, *NOISE))]]
    for regime, title in TITLES.items():
        stages = by_wrong_labels(regime)
        if not all(stages.values()) or not differences(stages[0.0]["obd-sd"], stages[0.0]["ms"])[0].low > 0:
            continue
        for row in (row for row in stages[0.0] if row != "ms"):
            cells = [
                f"{np.mean(gains_of(found, row, 'ms')):+.1f}, {relative_gain(found[row], found['ms']):+.0%}" if row in found else ""
                for found in stages.values()
            ]
            lines.append([title, row, *cells])
    return markdown_table(lines)


def alike_table(regime: str) -> str:
    """All rows with the very same settings, those that the search begins with, but for λ: on held-out classes, mean of the folds."""
    rows = ("ms", "psd", "obd-sd", "obd-sd-softmax", "mean-mix", "uniform-mix", "flat", "balanced")
    found, done = records(f"{regime}/search"), {}
    for row in rows:
        begin = beginning(REGIMES[regime], row)
        for weight in WEIGHTS:
            point = name_of({**begin, "weight": weight} if "weight" in begin else begin)
            names = [f"{row}/{point}/fold-{fold}" for fold in range(len(FOLDS))]
            if found.keys() >= {*names}:
                means = (np.mean([SCORES[score](found[name]) for name in names]) for score in ("R@1", "MAP@R"))
                done[row, weight] = ", ".join(f"{mean:.1f}" for mean in means)
    weights = [weight for weight in WEIGHTS if all((row, weight) in done for row in rows)]
    lines = [[row, *(done[row, weight] for weight in weights)] for row in rows]
    return markdown_table([["", *(f"λ = {weight:g}" for weight in weights)], *lines])


def carried_table(_: str) -> str:
    """What held-out classes had said of each row beside what the test classes said: gains over the plain loss."""
    gains = {title: carried_gains(regime) for regime, title in TITLES.items() if results_of(regime)}
    lines = [["held-out, test", *gains]]
    for row in ROWS:
        cells = ["{:+.1f}, {:+.1f}".format(*found[row]) if row in found else "" for found in gains.values()]
        lines += [[row, *cells]] if any(cells) else []
    return markdown_table(lines)


def agreement_table(_: str) -> str:
    """How often the test classes agreed with the held-out ones on whether a row is above the plain loss, by how much those had said."""
    long = np.concatenate([[regime.endswith("-long")] * len(carried_gains(regime)) for regime in TITLES if results_of(regime)])
    said, came = np.array([gain for regime in TITLES if results_of(regime) for gain in carried_gains(regime).values()]).T
    groups = {
        "1 point or more, 150 epochs": (said >= 1) & long,
        "1 point or more, elsewhere": (said >= 1) & ~long,
        "less than 1 point, either way": np.abs(said) < 1,
        "-1 point or less": said <= -1,
    }
    lines = [["held-out classes said", "rows", "test classes agreed", "held-out gain, mean", "test gain, mean"]]
    for words, among in groups.items():
        if among.any():
            means = (f"{gains[among].mean():+.1f}" for gains in (said, came))
            lines.append([words, str(among.sum()), str((said * came > 0)[among].sum()), *means])
    return markdown_table(lines)


def carried_gains(regime: str) -> dict[str, tuple[float, float]]:
    """By row, gains in Recall@1 over the plain loss: on held-out classes at the chosen settings, on test classes over the seeds of both."""
    chosen, results = chosen_of(regime), results_of(regime)
    return {
        row: (100 * (chosen[row]["validation"] - chosen["ms"]["validation"]), float(np.mean(gains_of(results, row, "ms"))))
        for row in results
        if row != "ms"
    }


def replacement_table(_: str) -> str:
    """Batches drawn with replacement beside those without, row by row, wherever both were trained."""
    taught = REPLACED[1:]
    lines = [["with − without replacement", "", *REPLACED, *(f"with: {row} − ms" for row in taught)]]
    for regime, title in TITLES.items():
        replaced = {f"replaced {row}": found for row, found in results_of(regime, "replacement").items()}
        results = {**results_of(regime), **replaced}
        for score in ("R@1", "MAP@R") if replaced else ():
            beside = [(f"replaced {row}", row) for row in REPLACED] + [(f"replaced {row}", "replaced ms") for row in taught]
            lines.append([title, score, *(gain_of(results, *pair, score) for pair in beside)])
    return markdown_table(lines)


def margin_table(_: str) -> str:
    """What OBD-SD adds to the Margin loss, each with its own settings, wherever both were tested."""
    lines = [["margin+obd-sd − margin", "R@1", "MAP@R"]]
    for regime, title in TITLES.items():
        results = results_of(regime)
        if "margin" in results:
            lines.append([title, *(gain_of(results, "margin+obd-sd", "margin", score) for score in ("R@1", "MAP@R"))])
    return markdown_table(lines)


def equal_table(walk: str) -> str:
    """A row with a walk beside its controls at the very settings of the walk, wherever one of them was tested there: test classes."""
    lines = [[f"{walk} −", "", *WALKS[walk]]]
    for regime, title in TITLES.items():
        results = at_equal_settings(regime, walk) if walk in results_of(regime) else {}
        for score in ("R@1", "MAP@R") if len(results) > 1 else ():
            lines.append([title, score, *(gain_of(results, walk, other, score) for other in WALKS[walk])])
    return markdown_table(lines)
