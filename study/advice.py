"""What to do: each piece of advice with its gain and its control on both data sets, and all recipes, from the records that are there."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from obdsd.experiments.statistics import Interval, t_interval
from study import reading
from study.numbers import RERANKED, rows_in

RECIPE, CONTROL = "soft", "soft-uniform"
RECIPE_NAME, CONTROL_NAME = "soft labels", "smooth labels, no teacher"
"""The row that is advised and the same without a teacher, and what pages call them. Tables and picture follow."""
PLAIN = ("ms", "ms-tuned", "supcon")
"""Plain losses, each with settings of its own; the one that is best on held-out classes stands for them."""
UNTRAINED = "frozen features"
DATA: dict[str, dict[str, str]] = {
    "CUB": {"regime": "cub224-recipes", "study": "cub", "frozen": "reranking/CUB, frozen, 224 px"},
    "letters": {"regime": "letters-recipes", "study": "letters", "frozen": "reranking/letters, frozen, 64 px"},
}
BOTH = ("R@1", "MAP@R")
BREAK = "<br>"  # of a line inside a cell
WAYS = (("", ""), (", re-ranked", RERANKED))
"""Behind the name of a row: what tables and records say if it is re-ranked."""


class Advice(NamedTuple):
    """What to do, and rows in their places (study/numbers.py): ours, what it is compared with, and the control."""

    title: str
    ours: str
    instead: str
    other: str
    control: str = ""
    controlled: str = ""


PLAIN_HERE = "{plain} in {regime}"
ADVICE = (
    Advice(
        "larger images: 224 px",
        "none in reranking/CUB, frozen, 224 px",
        "128 px, nothing trained",
        "none in reranking/CUB, frozen, 128 px",
    ),
    Advice(
        "re-rank what the untrained features find",
        "diffusion in {frozen}",
        "the cosine",
        "none in {frozen}",
        "query expansion, without a walk",
        "alpha-qe in {frozen}",
    ),
    Advice("train a head: the plain loss, tuned", PLAIN_HERE, "untrained features", f"{UNTRAINED} in {{regime}}"),
    Advice("begin the head as the projection", "ms in {study}-projected-free", "a random head (CUB: 128 px)", "ms in {study}-linear-free"),
    Advice(RECIPE_NAME, f"{RECIPE} in {{regime}}", "the plain loss", PLAIN_HERE, CONTROL_NAME, f"{CONTROL} in {{regime}}"),
    Advice("PSD", "psd in {regime}", "the plain loss", PLAIN_HERE),
    Advice("OBD-SD", "obd-sd in {regime}", "the plain loss", PLAIN_HERE, "the batch's mean row, no graph", "mean-mix in {regime}"),
    Advice("re-rank what a trained head finds", f"{{plain}}{RERANKED} in {{regime}}", "the plain loss", PLAIN_HERE),
    Advice(
        f"{RECIPE_NAME}, re-ranked",
        f"{RECIPE}{RERANKED} in {{regime}}",
        "the plain loss, re-ranked",
        f"{{plain}}{RERANKED} in {{regime}}",
        f"{CONTROL_NAME}, re-ranked",
        f"{CONTROL}{RERANKED} in {{regime}}",
    ),
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
    places = DATA[data]
    name, _, place = row.format(**places, plain=plain_of(places["regime"])).partition(" in ")
    return rows_in(place).get(name, {}) if place.startswith(_own(data)) else {}


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
    """For the README: untrained, plain and recipe, each with and without re-ranking."""
    yield ["", *(f"{data}: {score}" for data in DATA for score in ("Recall@1", "MAP@R"))]
    untrained = (("untrained features", "none in {frozen}"), ("untrained features, re-ranked", "diffusion in {frozen}"))
    trained = (("plain loss", "{plain}"), (RECIPE_NAME, RECIPE))
    rows = [*untrained, *((f"{name}{tail}", f"{row}{way} in {{regime}}") for name, row in trained for tail, way in WAYS)]
    for name, row in rows:
        runs = [seeds_of(row, data) for data in DATA]
        if any(runs):
            yield [name, *(f"{reading.mean_score(seeds, score):.1f}" if seeds else "" for seeds in runs for score in BOTH)]


def recipes_table(data: str) -> reading.Rows:
    """All rows of the recipes' regime, with and without re-ranking, and what they gain over the plain loss."""
    regime = DATA[data]["regime"]
    rows, plain = rows_in(regime), plain_of(regime)
    gained = [f"{score} − {plain}" for score in BOTH]
    yield ["", "seeds", *BOTH, *gained, *(f"{score}, re-ranked" for score in BOTH), *(f"{gain}, re-ranked" for gain in gained)]
    for row, seeds in rows.items():
        if not row.endswith(RERANKED):
            cells = [_scores_and_gains(rows, f"{row}{way}", f"{plain}{way}") for _, way in WAYS]
            yield [f"*{row}*" if row not in reading.ROWS else row, str(len(seeds)), *cells[0], *cells[1]]


def _scores_and_gains(rows: Mapping[str, reading.Seeds], row: str, plain: str) -> list[str]:
    """Both scores of a row, and both gains; empty without records."""
    if row not in rows:
        return [""] * (2 * len(BOTH))
    means = [f"{reading.mean_score(rows[row], score):.1f}" for score in BOTH]
    return [*means, *("" if row == plain else reading.gain_of(dict(rows), row, plain, score) for score in BOTH)]


def recipe_gains_table(data: str) -> reading.Rows:
    """The recipe and its relatives minus what they must beat, paired by seed."""
    others = ("supcon", CONTROL, "soft-random")
    results = reading.results_of(DATA[data]["regime"])
    yield ["", *(f"{score} − {other}" for score in BOTH for other in others)]
    for row in results:
        if row.startswith("soft") and row not in others:
            yield [row, *(reading.gain_of(results, row, other, score) for score in BOTH for other in others)]
