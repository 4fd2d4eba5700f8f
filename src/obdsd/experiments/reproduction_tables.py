"""A reproduced table beside the published one: for people, as Markdown and as CSV."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from obdsd.evaluation.metrics import metric
from obdsd.experiments.comparison import differences_by_class
from obdsd.experiments.published import published
from obdsd.experiments.recipes import Row
from obdsd.experiments.reproduction import TIMES, Reproduction, find, records, settled_before, time_key, with_seed
from obdsd.experiments.statistics import Interval, class_interval, t_interval
from obdsd.experiments.tables import ends, markdown_table, signed, write_texts
from obdsd.files import csv_table


@dataclass(frozen=True, kw_only=True)
class Line:
    """A row of ours (no seeds: one of the literature) beside what was published: percent, as printed; differences in points."""

    name: str
    paper: Mapping[str, float]
    seeds: int = 0
    ours: Mapping[str, Interval] = field(default_factory=dict)
    weight: float | None = None
    difference: Interval | None = None  # Recall@1, paired by seed
    over_classes: Interval | None = None
    paper_difference: float | None = None
    relative: float | None = None  # the difference as a share of the other row's Recall@1, in percent
    paper_relative: float | None = None
    extra_time: float | None = None  # percent
    paper_extra_time: float | None = None


def lines_of(asked: Reproduction) -> list[Line]:
    """All rows of the table, with the runs that are there; then the published rows that are others' work."""
    done, rows, paper = records(asked.out), asked.rows, _paper(asked)
    found = {name: _runs(asked, row, done) for name, row in rows.items()}
    lines = [_line(asked, row, found, paper) for row in rows.values()]
    return [*lines, *(Line(name=name, paper=numbers) for name, numbers in paper.items() if name not in rows)]


def _runs(asked: Reproduction, row: Row, done: Sequence[Mapping[str, Any]]) -> dict[int, Mapping[str, Any]]:
    """The finished runs of a row by seed, with the weight that was chosen for it."""
    options = settled_before(asked, row)
    by_seed = {} if options is None else {seed: find(done, with_seed(options, seed)) for seed in range(asked.seeds)}
    return {seed: record for seed, record in by_seed.items() if record is not None}


def _paper(asked: Reproduction) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for number in published(asked.table).values() if asked.recipe.printed else ():
        if number.data == asked.benchmark:
            found.setdefault(number.row, {})[number.metric] = number.value
    return found


def _line(asked: Reproduction, row: Row, found: Mapping[str, Mapping[int, Mapping[str, Any]]], paper: Mapping[str, Any]) -> Line:
    own, other = found[row.name], found.get(row.against or "", {})
    printed, others_printed = paper.get(row.name, {}), paper.get(row.against or "", {})
    pairs = [(own[seed], other[seed]) for seed in own if seed in other]
    difference, over_classes, relative = None, None, None
    if pairs:
        gains = np.array([_metric(a, "recall@1") - _metric(b, "recall@1") for a, b in pairs])
        ours, theirs = ([run["per_class"] for run in side] for side in zip(*pairs, strict=True))
        difference = t_interval(gains)
        over_classes = Interval(*(100 * value for value in class_interval(*differences_by_class(ours, theirs))))
        relative = 100 * difference.mean / float(np.mean([_metric(b, "recall@1") for _, b in pairs]))
    both = "recall@1" in printed and "recall@1" in others_printed
    gain = printed["recall@1"] - others_printed["recall@1"] if both else None
    values = {name: np.array([_metric(run, name) for run in own.values()]) for name in asked.recipe.metrics if own}
    options, ratio = settled_before(asked, row), asked.kept(TIMES).get(time_key(asked, row))
    return Line(
        name=row.name,
        paper=printed,
        seeds=len(own),
        ours={name: t_interval(numbers) for name, numbers in values.items() if not np.isnan(numbers).any()},
        weight=options.weight if own and options and options.distils else None,
        difference=difference,
        over_classes=over_classes,
        paper_difference=gain,
        relative=relative,
        paper_relative=printed.get("relative-recall@1", None if gain is None else 100 * gain / others_printed["recall@1"]),
        extra_time=None if ratio is None else 100 * (ratio - 1),
        paper_extra_time=printed.get("extra-time"),
    )


def _metric(run: Mapping[str, Any], name: str) -> float:
    """In the units of the paper: percent for recall and NMI."""
    entry = metric(name)
    value = run["train" if entry.on_training_set else "scores"].get(name)
    return float("nan") if value is None else float(value) * (100 if entry.percent else 1)


def header(asked: Reproduction) -> list[str]:
    metrics = [word for name in asked.recipe.metrics for word in (_title(name), "paper")]
    return ["row", "λ", "seeds", *metrics, "R@1 −", "95 % over seeds", "over classes", "paper", "relative", "paper", "time", "paper"]


def cells(asked: Reproduction, line: Line) -> list[str]:
    found = [line.name, "" if line.weight is None else f"{line.weight:g}", str(line.seeds or "")]
    for name in asked.recipe.metrics:
        digits = 1 if metric(name).percent else 3
        found += [_mean(line.ours.get(name), digits), "" if name not in line.paper else f"{line.paper[name]:g}"]
    gain = line.difference
    found += [signed(gain and gain.mean, 2), ends(gain, 1), ends(line.over_classes, 1), signed(line.paper_difference, 2)]
    percent = [line.relative, line.paper_relative, line.extra_time, line.paper_extra_time]
    return [*found, *(signed(value, 1, " %") for value in percent)]


def caption(asked: Reproduction) -> str:
    others = ", ".join(dict.fromkeys(row.against for row in asked.rows.values() if row.against))
    chosen = " λ was chosen on held-out training classes." if asked.scale == "small" else ""
    changed = f" Other settings than the table's: {asked.changed}." if asked.changes else ""
    return (
        f"{asked.recipe.title}; scale {asked.scale} on {asked.data}, the paper's numbers are those of {asked.benchmark} with a whole "
        f"network; mean with the half width of its 95 % interval over seeds, last epoch.{chosen}{changed} Differences to "
        f"{others or 'no row'}, "
        "paired by seed; time is that of the training beyond the other row's: steps that took turns, without loading and evaluation."
    )


def markdown(asked: Reproduction) -> str:
    return f"{markdown_table(rows_of(asked))}\n\n{caption(asked)}\n"


def rows_of(asked: Reproduction) -> list[list[str]]:
    return [header(asked), *(cells(asked, line) for line in lines_of(asked))]


def write(asked: Reproduction) -> list[Path]:
    """TABLE-SCALE-BENCHMARK.md and .csv in the folder of the reproduction; with changed settings, these are in the name."""
    (first, *others), place = rows_of(asked), {"scale": asked.scale, "data": asked.data}
    if asked.changes:
        place["changed"] = asked.changed
    table = [[*first, *place], *([*row, *place.values()] for row in others)]
    settings = (re.sub(r"[^\w.+-]", "-", f"{name}-{value}") for name, value in asked.changes.items())
    name = "-".join([asked.table, asked.scale, asked.benchmark, *settings])
    files = {asked.out / f"{name}.md": markdown(asked), asked.out / f"{name}.csv": csv_table(table)}
    write_texts(files)
    return list(files)


def _title(name: str) -> str:
    title = metric(name).title
    return title.replace("Recall@", "R@") if metric(name).percent else title.lower()


def _mean(value: Interval | None, digits: int) -> str:
    if value is None:
        return ""
    return f"{value.mean:.{digits}f}" + ("" if math.isnan(value.low) else f" ± {value.high - value.mean:.{digits}f}")
