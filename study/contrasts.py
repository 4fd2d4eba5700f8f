"""Tables that compare rows with each other, regime by regime: differences are paired by seed."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from scipy import stats

from study import reading
from study.plan import NOISE, REGIMES, REPLACED, TITLES, WALKS

HEADLINES = {
    "ms": "Multi-Similarity",
    "psd": "+ PSD",
    "balanced": "+ PSD, balanced (ours: nobody is near to everybody)",
    "obd-sd": "+ OBD-SD",
    "mean-mix": "+ MeanMix (control: no graph)",
    "flat": "+ flatter teacher (control: PSD, its cosines × 0.7)",
    "anchor": "+ anchor (ours: the untrained features teach)",
}
HEADLINE_REGIMES = ("cub-linear-free", "cub-projected-free", "letters-linear-free", "letters-projected-free", "cub-two-layer-long")
BOTH = ("R@1", "MAP@R")


def primary_table(_: str) -> reading.Rows:
    """The questions behind the paper's claim, with clean labels. Bold answers hold after Holm's correction for all questions."""
    others = ("ms", "psd", "mean-mix")
    regimes = {regime: rows for regime, rows in reading.tested_regimes("obd-sd", *others) if not REGIMES[regime].common.get("label_noise")}
    questions = [(regime, other) for regime in regimes for other in others]
    corrected = holm(_probability(reading.gains_of(regimes[regime], "obd-sd", other)) for regime, other in questions)
    sure = {question for question, probability in zip(questions, corrected, strict=True) if probability < 0.05}
    yield ["", "ms", *(f"obd-sd − {other}" for other in others), "the gain is"]
    for regime, results in regimes.items():
        gains = {other: reading.gain_of(results, "obd-sd", other) for other in others}
        cells = [f"**{gain}**" if (regime, other) in sure else gain for other, gain in gains.items()]
        yield [TITLES[regime], f"{reading.mean_score(results['ms']):.1f}", *cells, reading.verdict(reading.tested(regime))]


def _probability(gains: list[float]) -> float:
    """Two-sided probability of such gains if their true mean is 0, by Student's t; 1 for gains that are all 0."""
    return float(stats.ttest_1samp(gains, 0.0).pvalue) if np.any(gains) else 1.0


def holm(probabilities: Iterable[float]) -> list[float]:
    """Holm's correction: the chance of one wrong "yes" among all questions becomes what it was for one question.

    >>> holm([0.01, 0.04, 0.02])
    [0.03, 0.04, 0.04]
    """
    values = np.array(list(probabilities))
    order = np.argsort(values)
    stepped = np.minimum(1, np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1)))
    return [float(value) for value in stepped[np.argsort(order)]]


def answer_table(_: str) -> reading.Rows:
    """For each regime: is OBD-SD above the plain loss, and above the mix with the batch's mean row, which knows no graph?"""
    pairs = (("psd", "ms"), ("obd-sd", "ms"), ("obd-sd", "mean-mix"), ("obd-sd", reading.EQUAL))
    names = ["psd − ms", "obd-sd − ms", "obd-sd − mean-mix", "− mean-mix at OBD-SD's settings"]
    yield ["", "wrong labels", "seeds", "ms", *names, "the gain is"]
    for regime, title in TITLES.items():
        for share, stage in reading.stages_of(regime).items():
            results = reading.tested(regime) if stage == "test" else reading.results_of(regime, stage)
            if results.keys() >= {"ms", "obd-sd", "mean-mix"}:
                seeds = len(results["ms"].keys() & results["obd-sd"].keys())
                gains = [reading.gain_of(results, *pair) for pair in pairs]
                yield [title, f"{share:.0%}", str(seeds), f"{reading.mean_score(results['ms']):.1f}", *gains, reading.verdict(results)]


def graphless_table(_: str) -> reading.Rows:
    """OBD-SD minus every control that knows no graph, in the regimes that have all of them."""
    yield ["obd-sd −", *reading.GRAPHLESS]
    for regime, title in TITLES.items():
        results = reading.tested(regime)
        if results.keys() >= {*reading.GRAPHLESS} - {reading.EQUAL}:
            yield [title, *(reading.gain_of(results, "obd-sd", control) for control in reading.GRAPHLESS)]


def headline_table(_: str) -> reading.Rows:
    """The most important rows in the most important regimes."""
    regimes = {TITLES[regime]: reading.results_of(regime) for regime in HEADLINE_REGIMES}
    yield ["Recall@1", *regimes]
    for row in HEADLINES:
        cells = []
        for results in regimes.values():
            mean, gain = f"{reading.mean_score(results[row]):.1f}" if row in results else "", reading.gain_of(results, row, "ms")
            cells.append(mean if row == "ms" or not mean else f"{mean}, {gain}")
        yield [HEADLINES[row], *cells]


def precision_table(_: str) -> reading.Rows:
    """The answer for MAP@R, and OBD-SD minus PSD."""
    pairs = (("psd", "ms"), ("obd-sd", "ms"), ("obd-sd", "mean-mix"), ("obd-sd", "psd"))
    yield ["MAP@R", "ms", *(f"{row} − {other}" for row, other in pairs)]
    for regime, results in reading.tested_regimes("ms", "psd", "obd-sd", "mean-mix"):
        gains = [reading.gain_of(results, *pair, "MAP@R") for pair in pairs]
        yield [TITLES[regime], f"{reading.mean_score(results['ms'], 'MAP@R'):.1f}", *gains]


def balanced_table(_: str) -> reading.Rows:
    """PSD with balanced targets, minus the plain loss, PSD and OBD-SD, wherever it was tested."""
    others = ("ms", "psd", "obd-sd")
    yield ["", "", "balanced", *(f"− {other}" for other in others)]
    for regime, results in reading.tested_regimes("balanced"):
        for score in BOTH:
            gains = [reading.gain_of(results, "balanced", other, score) for other in others]
            yield [TITLES[regime], score, f"{reading.mean_score(results['balanced'], score):.1f}", *gains]


def stopped_table(_: str) -> reading.Rows:
    """Rows of long training minus the plain loss whose learning rate and epochs were chosen."""
    rows = ("ms", "psd", "obd-sd", "mean-mix", "anchor")
    yield ["", "ms, epochs chosen", *rows]
    for regime, results in reading.tested_regimes():
        if regime.endswith("-long"):
            results["stopped"] = reading.results_of(regime.replace("-long", "-free"))["ms"]
            mean = f"{reading.mean_score(results['stopped']):.1f}"
            yield [TITLES[regime], mean, *(reading.gain_of(results, row, "stopped") for row in rows)]


def projection_table(_: str) -> reading.Rows:
    """A head that begins as the projection minus one that begins at random; each row has its own settings."""
    rows = ("ms", "psd", "obd-sd", "mean-mix", "anchor")
    yield ["projected − random", "", *rows]
    for data in ("cub", "letters"):
        random, projected = reading.results_of(f"{data}-linear-free"), reading.results_of(f"{data}-projected-free")
        for score in BOTH:
            pairs = [{"random": random[row], "projected": projected[row]} for row in rows]
            yield [data, score, *(reading.gain_of(pair, "projected", "random", score) for pair in pairs)]


def robust_table(_: str) -> reading.Rows:
    """Gains over the plain loss by the share of wrong labels, in points and relative, where OBD-SD gains with clean labels."""
    yield ["", "", *(f"{share:.0%} wrong labels" for share in (0.0, *NOISE))]
    for regime, title in TITLES.items():
        stages = reading.by_wrong_labels(regime)
        clean = stages[0.0]
        if all(stages.values()) and reading.over_seeds(clean["obd-sd"], clean["ms"]).low > 0:
            for row in (row for row in clean if row != "ms"):
                yield [title, row, *(_both_ways(results, row) if row in results else "" for results in stages.values())]


def _both_ways(results: reading.Results, row: str) -> str:
    """The gain over the plain loss, in points and relative."""
    return f"{np.mean(reading.gains_of(results, row, 'ms')):+.1f}, {reading.relative_gain(results[row], results['ms']):+.0%}"


def replacement_table(_: str) -> reading.Rows:
    """Batches drawn with replacement minus batches drawn without, wherever both were trained."""
    taught = REPLACED[1:]
    pairs = [*((f"replaced {row}", row) for row in REPLACED), *((f"replaced {row}", "replaced ms") for row in taught)]
    yield ["with − without replacement", "", *REPLACED, *(f"with: {row} − ms" for row in taught)]
    for regime, title in TITLES.items():
        replaced = {f"replaced {row}": seeds for row, seeds in reading.results_of(regime, "replacement").items()}
        results = {**reading.results_of(regime), **replaced}
        for score in BOTH if replaced else ():
            yield [title, score, *(reading.gain_of(results, *pair, score) for pair in pairs)]


def margin_table(_: str) -> reading.Rows:
    """What OBD-SD adds to the Margin loss, each with its own settings, wherever both were tested."""
    yield ["margin+obd-sd − margin", *BOTH]
    for regime, results in reading.tested_regimes("margin"):
        yield [TITLES[regime], *(reading.gain_of(results, "margin+obd-sd", "margin", score) for score in BOTH)]


def equal_table(walk: str) -> reading.Rows:
    """A row with a walk minus its controls at the walk's settings, wherever one of them was tested with these: test classes."""
    yield [f"{walk} −", "", *WALKS[walk]]
    for regime, title in TITLES.items():
        results = reading.at_equal_settings(regime, walk) if walk in reading.results_of(regime) else {}
        for score in BOTH if len(results) > 1 else ():
            yield [title, score, *(reading.gain_of(results, walk, other, score) for other in WALKS[walk])]
