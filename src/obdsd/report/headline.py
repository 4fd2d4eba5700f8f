"""What stands at the top of a report: the first picture, a sentence for each row, the table, the data, and how to repeat it.

The picture is dots and intervals on one axis, here as places; the page draws them as SVG, without a script.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from obdsd.data import Collection, short_name
from obdsd.data.unusable import left_out_lines
from obdsd.evaluation.metrics import metric
from obdsd.experiments.comparison import Comparison, compared_metrics, summarise
from obdsd.experiments.statistics import Interval, Verdict
from obdsd.experiments.tables import (
    GROUPS,
    below_untrained,
    caption,
    ends,
    ranked,
    reranked,
    rows_of,
    sentences,
    title_of,
    units,
    untrained,
    weights,
)
from obdsd.preprocessing import Preprocessing
from obdsd.report.content import Chart, Kind, Mark, Trade
from obdsd.report.items import TRAINING_CLASSES, Shown
from obdsd.report.trade import trade_of
from obdsd.training import RunRecord

RECALL = "recall@1"  # what the first picture and the sentences are about
ONE_RUN = "A dot is one run: there is no interval over seeds."
BEFORE = "Before any training"  # above what there was, where rows stand in groups
STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20)  # between two ticks, in points
TICKS = 8  # at most
REACH = 1.0  # spans of the rows that the axis is made longer to show what was there before the training
MARGIN = 0.06  # of the axis, beyond the outermost mark
LEAST = 0.5  # points that the axis spans


class Estimate(NamedTuple):
    """A row of the picture: its score, and the 95 % interval of its difference to the baseline where there is one."""

    name: str
    value: float
    difference: Interval | None = None


class Headline(NamedTuple):
    chart: Chart | None
    sentences: list[str]
    header: list[str]
    rows: list[list[str]]
    caption: str
    trade: Trade | None = None


def headline_of_comparison(comparison: Comparison) -> Headline:
    """A comparison's own table, caption and sentences; rows from the best to the worst, in groups."""
    comparison = replace(comparison, lines=ranked(comparison))
    baseline, *others = [line.name for line in comparison.lines]
    how = ONE_RUN
    if len(comparison.seeds) > 1:
        how = f"A dot is the mean over {len(comparison.seeds)} seeds."
        if others:
            how += (
                f" A bar is the 95 % interval of the difference to {baseline}. Where it crosses the line of {baseline}, no difference can "
                "be told, and the dot is empty."
            )
    rows = [
        Estimate(line.name, line.means[RECALL].mean, line.differences[RECALL] if line.differences else None) for line in comparison.lines
    ]
    first, *table = rows_of(comparison)
    return Headline(_chart(rows, comparison, how), sentences(comparison), first, table, caption(comparison), trade_of(comparison))


def headline_of_runs(runs: Mapping[str, RunRecord]) -> Headline:
    """Single runs beside the first of them: no interval over seeds."""
    comparison = summarise({name: [record] for name, record in runs.items()}, [])
    baseline, *others = comparison.lines
    told, rows = sentences(comparison)[:1], []
    for line, record in zip(comparison.lines, runs.values(), strict=True):
        difference = ["", ""] if others else []
        if line.differences is not None:
            gain = 100 * line.differences[RECALL].mean
            difference = [f"{gain:+.2f}", ends(line.over_classes)]
            result = f"{line.name}: {100 * line.means[RECALL].mean:.1f} %, {gain:+.1f} points to {baseline.name}"
            told.append(f"{result} with one run each: no interval over seeds, no conclusion.")
        scores = [metric(name).text(mean.mean) for name, mean in line.means.items()]
        rows.append([line.name, *scores, *difference, str(record.options.seed)])
    told += [f"{untrained(name)}, untrained: {100 * value:.1f} %." for name, value in comparison.reference.items()]
    told += [*weights(comparison), *(sentence for line in comparison.lines for sentence in reranked(line)), *below_untrained(comparison)]
    titles = list(map(title_of, compared_metrics()))
    paired = " Differences are to the first run, their interval by bootstrap over classes (95 %)." if others else ""
    return Headline(
        _chart([Estimate(line.name, line.means[RECALL].mean) for line in comparison.lines], comparison, ONE_RUN),
        told,
        ["", *titles, *(["Recall@1, difference", "over classes"] if others else []), "seed"],
        rows,
        f"{short_name(comparison.data)}, {comparison.scored} classes; {units()}.{paired}",
    )


def _chart(rows: Sequence[Estimate], comparison: Comparison, how: str) -> Chart | None:
    recall = metric(RECALL)
    return chart_of(rows, comparison.reference, f"{recall.title} on the {comparison.scored} classes, in percent. {recall.sentence} {how}")


def chart_of(rows: Sequence[Estimate], before: Mapping[str, float], sentence: str) -> Chart | None:
    """The picture; None if there is a single number. The first row is the baseline; `before` is what there was untrained, by name."""
    if len(rows) + len(before) < 2:
        return None
    baseline = rows[0].value
    start, end = _axis(rows, [100 * value for value in before.values()])

    def place(points: float) -> float:
        return round(100 * (points - start) / (end - start), 3)

    def mark(row: Estimate, kind: Kind, heading: str = "") -> Mark:
        gain, interval = row.difference, _interval(row, baseline)
        ends = "" if gain is None or interval is None else f" ({100 * gain.low:+.1f} to {100 * gain.high:+.1f})"
        return Mark(
            name=row.name,
            kind=kind,
            value=f"{100 * row.value:.1f} %",
            difference="" if gain is None else f"{100 * gain.mean:+.1f}{ends}",
            place=place(100 * row.value),
            interval=interval and (place(interval[0]), place(interval[1])),
            heading=heading,
        )

    kinds = [_kind(row) for row in rows]
    marks = [mark(rows[0], "single" if len(rows) == 1 else "baseline")]
    for number, row in enumerate(rows[1:], start=1):
        begins = kinds[number] != "single" and (number == 1 or kinds[number] != kinds[number - 1])
        marks.append(mark(row, kinds[number], f"{GROUPS[kinds[number]]} {rows[0].name}" if begins else ""))
    for name, value in before.items():
        heading = BEFORE if any(each.heading for each in marks) and marks[-1].kind != "untrained" else ""
        marks.append(mark(Estimate(f"{untrained(name)}, untrained", value), "untrained", heading))
    step = next((step for step in STEPS if (end - start) / step <= TICKS), STEPS[-1])
    ticks = [number * step for number in range(math.ceil(start / step), math.floor(end / step) + 1)]
    return Chart(marks=marks, ticks=[(place(tick), f"{tick:g}") for tick in ticks], baseline=place(100 * baseline), sentence=sentence)


def _kind(row: Estimate) -> Verdict:
    return "single" if row.difference is None else row.difference.verdict


def _interval(row: Estimate, baseline: float) -> tuple[float, float] | None:
    """The ends of the difference's interval in points, from the baseline on."""
    if row.difference is None or math.isnan(row.difference.low):
        return None
    return 100 * (baseline + row.difference.low), 100 * (baseline + row.difference.high)


def _axis(rows: Sequence[Estimate], untrained: Sequence[float]) -> tuple[float, float]:
    """Its ends in points: all rows and intervals, and what was there before the training unless it is far off."""
    points = [100 * row.value for row in rows]
    points += [end for row in rows for end in _interval(row, rows[0].value) or ()]
    low, high = min(points), max(points)
    reach = REACH * max(high - low, LEAST) if len(rows) > 1 else math.inf
    near = [value for value in untrained if low - reach <= value <= high + reach]
    low, high = min([low, *near]), max([high, *near])
    margin = MARGIN * max(high - low, LEAST) + (LEAST - min(high - low, LEAST)) / 2
    return low - margin, high + margin


def facts_of(
    records: Sequence[RunRecord], collection: Collection, shown: Shown, preprocessing: Preprocessing | None, how: str
) -> dict[str, str]:
    """What a reader must know of the data and of what the page shows of them."""
    options, things = records[0].options, "images" if preprocessing else "embeddings"
    scored = {name: collection[name] for name in shown.parts if name != "train"}
    train = collection["train"]
    epochs = [f"{record.chosen_by} (epoch {record.epoch + 1} of {record.options.epochs})" for record in records]
    facts = {
        "data": short_name(options.data),
        "trained on": f"{len(train.class_names):,} classes, {len(train):,} {things}",
        "scored on": f"{len(next(iter(scored.values())).class_names):,} other classes, "
        + " and ".join(f"{len(part):,} {things} ({name})" for name, part in scored.items()),
        "resolution": f"{preprocessing.size} × {preprocessing.size} pixels" if preprocessing else f"vectors of length {len(train[0][0])}",
        "epoch": ", ".join(dict.fromkeys(epochs)),
        "model": ", ".join(dict.fromkeys(record.options.backbone for record in records)),
    }
    if collection.left_out:
        facts["left out"] = "; ".join(left_out_lines(collection))
    if shown.left_out:
        facts["shown"] = (
            f"{sum(len(shown.parts[name]) for name in scored):,} of the scored items, whole classes drawn by a seed; neighbours are "
            "searched among these, while scores are of all"
        )
    what = f"the first {TRAINING_CLASSES} training classes" if "train" in shown.parts else "the scored classes"
    together = "; each starts from the first run's, so that places can be compared" if len(records) > 1 else ""
    return {**facts, "map": f"{'t-SNE' if how == 'tsne' else 'UMAP'} of {what}{together}"}


def commands_of(records: Sequence[RunRecord], folders: Sequence[Path]) -> list[str]:
    """What repeats each run shown, and this page."""
    again = [
        shlex.join(["obdsd", "train", "--config", str(record.folder / "config.yaml"), "--out", f"{record.folder}-again"])
        for record in records
    ]
    return [*again, shlex.join(["obdsd", "report", *map(str, folders)])]
