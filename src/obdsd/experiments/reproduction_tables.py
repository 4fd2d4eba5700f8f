"""A reproduced table beside the published one: for people, as Markdown and as CSV."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from obdsd.evaluation.metrics import metric
from obdsd.experiments.comparison import differences_by_class
from obdsd.experiments.published import published
from obdsd.experiments.recipes import Row
from obdsd.experiments.reproduction import Reproduction, find, records, time_key, times, with_chosen_weight, with_seed
from obdsd.experiments.statistics import Interval, class_interval, t_interval
from obdsd.experiments.tables import csv_table, ends, markdown_table, signed, write_texts


@dataclass(frozen=True, kw_only=True)
class Line:
    """A row of ours (no seeds: one of the literature) beside what was published: percent, as printed; differences in points."""

    name: str
    seeds: int
    ours: Mapping[str, Interval]
    paper: Mapping[str, float]
    against: str | None
    difference: Interval | None  # Recall@1, paired by seed
    over_classes: Interval | None
    paper_difference: float | None
    relative: float | None  # the difference as a share of the other row's Recall@1, in percent
    paper_relative: float | None
    extra_time: float | None  # percent
    paper_extra_time: float | None
    weight: float | None


def lines_of(asked: Reproduction) -> list[Line]:
    """All rows of the table, with the runs that are there; then the published rows that are others' work."""
    done, rows = records(asked.out), asked.rows
    found = {row.name: _runs(asked, row, done) for row in rows}
    paper = _paper(asked)
    lines = [_line(asked, row, found, paper) for row in rows]
    known = {row.name for row in rows}
    return [*lines, *(_literature(name, numbers) for name, numbers in paper.items() if name not in known)]


def _runs(asked: Reproduction, row: Row, done: Sequence[Mapping[str, Any]]) -> dict[int, Mapping[str, Any]]:
    """The finished runs of a row by seed, with the weight that was chosen for it."""
    options = with_chosen_weight(asked, row)
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
        difference, over_classes = t_interval(gains), _over_classes([a for a, _ in pairs], [b for _, b in pairs])
        relative = 100 * float(gains.mean()) / float(np.mean([_metric(b, "recall@1") for _, b in pairs]))
    both = "recall@1" in printed and "recall@1" in others_printed
    gain = printed["recall@1"] - others_printed["recall@1"] if both else None
    values = {name: np.array([_metric(run, name) for run in own.values()]) for name in asked.recipe.metrics if own}
    weights = {run["options"]["weight"] for run in own.values() if _distils(run["options"])}
    return Line(
        name=row.name,
        seeds=len(own),
        ours={name: t_interval(numbers) for name, numbers in values.items() if not np.isnan(numbers).any()},
        paper=printed,
        against=row.against,
        difference=difference,
        over_classes=over_classes,
        paper_difference=gain,
        relative=relative,
        paper_relative=printed.get("relative-recall@1", None if gain is None else 100 * gain / others_printed["recall@1"]),
        extra_time=_extra_time(asked, row),
        paper_extra_time=printed.get("extra-time"),
        weight=weights.pop() if len(weights) == 1 else None,
    )


def _extra_time(asked: Reproduction, row: Row) -> float | None:
    other = next((each for each in asked.rows if each.name == row.against), None)
    ratio = None if other is None else times(asked.out).get(time_key(asked, row, other))
    return None if ratio is None else 100 * (ratio - 1)


def _over_classes(ours: list[Mapping[str, Any]], theirs: list[Mapping[str, Any]]) -> Interval:
    differences = differences_by_class([run["per_class"] for run in ours], [run["per_class"] for run in theirs])
    return Interval(*(100 * value for value in class_interval(*differences)))


def _literature(name: str, printed: Mapping[str, float]) -> Line:
    nothing: dict[str, Any] = dict.fromkeys(
        ("against", "difference", "over_classes", "paper_difference", "relative", "paper_relative", "extra_time", "paper_extra_time")
    )
    return Line(name=name, seeds=0, ours={}, paper=printed, weight=None, **nothing)


def _distils(options: Mapping[str, Any]) -> bool:
    return options["teacher"] != "none" or options["system"] != "standard"


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
    chosen = " λ was chosen on held-out training classes." if asked.scale == "small" else ""
    return (
        f"{asked.recipe.title}; scale {asked.scale} on {asked.data}, the paper's numbers are those of {asked.benchmark} with a whole "
        f"network; mean with the half width of its 95 % interval over seeds, last epoch.{chosen} Differences to {_references(asked)}, "
        "paired by seed; time is that of the training beyond the other row's: steps that took turns, without loading and evaluation."
    )


def _references(asked: Reproduction) -> str:
    return ", ".join(dict.fromkeys(row.against for row in asked.rows if row.against)) or "no row"


def markdown(asked: Reproduction) -> str:
    return f"{markdown_table(rows_of(asked))}\n\n{caption(asked)}\n"


def rows_of(asked: Reproduction) -> list[list[str]]:
    return [header(asked), *(cells(asked, line) for line in lines_of(asked))]


def write(asked: Reproduction) -> list[Path]:
    """TABLE-SCALE-BENCHMARK.md and .csv in the folder of the reproduction."""
    (first, *others), place = rows_of(asked), [asked.scale, asked.data]
    table = [[*first, "scale", "data"], *([*row, *place] for row in others)]
    name = f"{asked.table}-{asked.scale}-{asked.benchmark}"
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
