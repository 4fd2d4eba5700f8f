"""What to do: each piece of advice with its gain and its control on both data sets, and all recipes, from the records that are there."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from obdsd.experiments.statistics import Interval, t_interval
from study import reading
from study.numbers import RERANKED, rows_in

PLAIN = ("ms", "ms-tuned")
"""The plain loss, Multi-Similarity, with two sets of settings; the one that is better on held-out classes stands for both."""
UNTRAINED = "frozen features"
DATA: dict[str, dict[str, str]] = {
    "CUB": {
        "regime": "cub224-gem",
        "before": "cub224-recipes",
        "pooled": "cub224-gem-128",
        "longer": "cub224-512",
        "study": "cub",
        "averages": "reranking/CUB, frozen, 224 px",
        "gem": "reranking/CUB, frozen, gem, 224 px",
    },
    "letters": {
        "regime": "letters-gem",
        "before": "letters-recipes",
        "pooled": "letters-gem-128",
        "longer": "letters-512",
        "study": "letters",
        "averages": "reranking/letters, frozen, 64 px",
        "gem": "reranking/letters, frozen, gem, 64 px",
    },
}
"""Places of a data set: `regime` has generalised-mean pooling and rows of 512 numbers, `before` averages and rows of 128.
`pooled` has the pooling alone, `longer` the length alone."""
BOTH = ("R@1", "MAP@R")
BREAK = "<br>"  # of a line inside a cell
WAYS = (("", ""), (", re-ranked", RERANKED))
"""Behind the name of a row: what tables and records say if it is re-ranked."""
HOW = ("none", "diffusion")
"""The same of untrained features: their rows in results/reranking.json."""


class Advice(NamedTuple):
    """What to do, and rows in their places (study/numbers.py): ours, what it is compared with, and the control."""

    title: str
    ours: str
    instead: str
    other: str
    control: str = ""
    controlled: str = ""


PLAIN_HERE, PLAIN_BEFORE = "{plain} in {regime}", "{plain} in {before}"
ADVICE = (
    Advice(
        "larger images: 224 px",
        "none in reranking/CUB, frozen, 224 px",
        "128 px, nothing trained",
        "none in reranking/CUB, frozen, 128 px",
    ),
    Advice("generalised-mean pooling", "none in {gem}", "averages, nothing trained", "none in {averages}"),
    Advice(
        "re-rank what the untrained features find",
        "diffusion in {gem}",
        "the cosine",
        "none in {gem}",
        "query expansion, without a walk",
        "alpha-qe in {gem}",
    ),
    Advice("train a head: the plain loss, tuned", PLAIN_HERE, "untrained features", f"{UNTRAINED} in {{regime}}"),
    Advice("begin the head as the projection", "ms in {study}-projected-free", "a random head (CUB: 128 px)", "ms in {study}-linear-free"),
    Advice(
        "generalised-mean pooling and 512 numbers, plain loss",
        PLAIN_HERE,
        "averages and 128 numbers, plain loss",
        PLAIN_BEFORE,
    ),
    Advice("the pooling alone", "{plain} in {pooled}", "averages and 128 numbers, plain loss", PLAIN_BEFORE),
    Advice("the length alone", "{plain} in {longer}", "averages and 128 numbers, plain loss", PLAIN_BEFORE),
    Advice("re-rank what a trained head finds", f"{{plain}}{RERANKED} in {{regime}}", "the plain loss", PLAIN_HERE),
    Advice("SupCon", "supcon in {regime}", "the plain loss", PLAIN_HERE),
    Advice("soft labels", "soft in {regime}", "the plain loss", PLAIN_HERE, "smooth labels, no teacher", "soft-uniform in {regime}"),
    Advice("PSD", "psd in {regime}", "the plain loss", PLAIN_HERE),
    Advice(
        "the features of a larger network teach, by the KL",
        "psd-better in {regime}",
        "the plain loss",
        PLAIN_HERE,
        "the epoch before teaches (PSD)",
        "psd in {regime}",
    ),
    Advice(
        "the features of a larger network share the labels",
        "soft-better in {regime}",
        "the plain loss",
        PLAIN_HERE,
        "smooth labels, no teacher",
        "soft-uniform in {regime}",
    ),
    Advice("OBD-SD (averages, 128 numbers)", "obd-sd in {before}", "the plain loss", PLAIN_BEFORE, "PSD, no walk", "psd in {before}"),
    Advice(
        "a whole network at 96 px: features at 224 px teach it",
        "without labels, taught in teachers",
        "its features, untrained",
        "frozen features in teachers",
        "labels alone",
        "plain loss in teachers",
    ),
)


def plain_of(regime: str) -> str:
    """The plain loss that held-out classes prefer, of those that were tested."""
    chosen, tested = reading.chosen_of(regime), reading.results_of(regime)
    return max((row for row in PLAIN if row in tested), key=lambda row: chosen[row]["validation"], default=PLAIN[0])


def seeds_of(row: str, data: str) -> reading.Seeds:
    """The runs of `ROW in PLACE` on a data set; none if there are no such records."""
    name, _, place = row.partition(" in ")
    place = place.format(**DATA[data])
    return rows_in(place).get(name.format(plain=plain_of(place)), {}) if place.startswith(_own(data)) else {}


def _own(data: str) -> tuple[str, ...]:
    """How the places of a data set begin."""
    return ("cub", "reranking/CUB", "teachers") if data == "CUB" else ("letters", "reranking/letters")


def advice_table(_: str) -> reading.Rows:
    """A line for each piece of advice, below it one for its control. Cells: the score, and the gain with its interval."""
    yield ["what to do", *(f"{data}: {score}" for data in DATA for score in BOTH)]
    for advice in ADVICE:
        for title, row in (
            (f"**{advice.title}**{BREAK}instead of {advice.instead}", advice.ours),
            (f"*control: {advice.control}*", advice.controlled),
        ):
            cells = [_cell(seeds_of(row, data), seeds_of(advice.other, data), score) if row else "" for data in DATA for score in BOTH]
            if any(cells):
                yield [title, *cells]


def _cell(ours: reading.Seeds, other: reading.Seeds, score: str) -> str:
    gain = gain_between(ours, other, score)
    return f"{reading.mean_score(ours, score):.1f}{BREAK}{told(gain)}" if gain else ""


def gain_between(ours: reading.Seeds, other: reading.Seeds, score: str) -> Interval | None:
    """A difference in points, paired by seed."""
    gains = reading.gains_of({"ours": ours, "other": other}, "ours", "other", score)
    return t_interval(np.array(gains)) if gains else None


def told(gain: Interval) -> str:
    """A gain with its interval, where there are several seeds."""
    return f"{gain.mean:+.1f}" + ("" if math.isnan(gain.low) else f" ({gain.low:+.1f} to {gain.high:+.1f})")


def gains(score: str) -> Iterator[tuple[str, str, Interval, Interval | None]]:
    """Of each piece of advice on each data set, its gain and its control's."""
    for advice in ADVICE:
        for data in DATA:
            other = seeds_of(advice.other, data)
            if gain := gain_between(seeds_of(advice.ours, data), other, score):
                control = gain_between(seeds_of(advice.controlled, data), other, score) if advice.control else None
                yield advice.title, data, gain, control


def short_table(_: str) -> reading.Rows:
    """For the README: untrained by both poolings and the plain loss, each with and without re-ranking."""
    yield ["", *(f"{data}: {score}" for data in DATA for score in ("Recall@1", "MAP@R"))]
    untrained = (("untrained features", "averages"), ("untrained, `--pooling gem`", "gem"))
    rows = [
        *((f"{name}{tail}", f"{how} in {{{place}}}") for name, place in untrained for (tail, _), how in zip(WAYS, HOW, strict=True)),
        *((f"a head on these, Multi-Similarity, 512 numbers{tail}", f"{{plain}}{way} in {{regime}}") for tail, way in WAYS),
    ]
    for name, row in rows:
        runs = [seeds_of(row, data) for data in DATA]
        if any(runs):
            yield [name, *(f"{reading.mean_score(seeds, score):.1f}" if seeds else "" for seeds in runs for score in BOTH)]


def recipes_table(regime: str) -> reading.Rows:
    """All rows of a regime, with and without re-ranking, and what they gain over the plain loss."""
    rows, plain, chosen = rows_in(regime), plain_of(regime), reading.chosen_of(regime)
    gained = [f"{score} − {plain}" for score in BOTH]
    again = [*(f"{score}, re-ranked" for score in BOTH), *(f"{gain}, re-ranked" for gain in gained)]
    yield ["", "seeds", "R@1, held-out", *BOTH, *gained, *again]
    for row, seeds in rows.items():
        if not row.endswith(RERANKED):
            cells = [_scores_and_gains(rows, f"{row}{way}", f"{plain}{way}") for _, way in WAYS]
            held_out = f"{100 * chosen[row]['validation']:.1f}" if row in chosen else ""
            yield [f"*{row}*" if row not in reading.ROWS else row, str(len(seeds)), held_out, *cells[0], *cells[1]]


def _scores_and_gains(rows: Mapping[str, reading.Seeds], row: str, plain: str) -> list[str]:
    """Both scores of a row, and both gains; empty without records."""
    if row not in rows:
        return [""] * (2 * len(BOTH))
    means = [f"{reading.mean_score(rows[row], score):.1f}" for score in BOTH]
    return [*means, *("" if row == plain else reading.gain_of(dict(rows), row, plain, score) for score in BOTH)]


def soft_labels_table(_: str) -> reading.Rows:
    """Soft labels minus the same loss with the labels alone, and minus the control without a teacher, paired by seed."""
    others = ("supcon", "soft-uniform")
    yield ["features", *(f"{score} − {other}" for score in BOTH for other in others)]
    for data, places in DATA.items():
        for title, place in (("averages", "before"), ("generalised mean", "regime")):
            results = reading.results_of(places[place])
            if "soft" in results:
                yield [f"{data}, {title}", *(reading.gain_of(results, "soft", other, score) for score in BOTH for other in others)]
