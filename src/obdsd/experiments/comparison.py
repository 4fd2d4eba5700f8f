"""Several settings, several seeds, one table: every run once, finished ones not repeated, interrupted ones continued."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obdsd.arena import budget_of
from obdsd.convert import fits
from obdsd.errors import InputError
from obdsd.evaluation.metrics import METRICS, Metric
from obdsd.experiments.runs import carry_out, tell
from obdsd.experiments.statistics import Interval, class_interval, t_interval
from obdsd.experiments.timing import SECONDS, relative_time
from obdsd.experiments.tuning import SEARCH, candidates, read_chosen, runs_of, tune
from obdsd.files import check_format, read_mapping, write_json
from obdsd.options import OPENING, TrainOptions
from obdsd.terminal import Count
from obdsd.training import RunRecord
from obdsd.training.build import check_taught
from obdsd.training.run_folder import RunFolder

FORMAT = 1  # of comparison.json
TIMES = "times.json"  # beside it
SAME = ("data", "split_seed", "test_fraction", "val_fraction", "val_fold", "score", "ks", *OPENING)
"""Options that all rows share: they say what is scored."""


def compared_metrics() -> list[Metric]:
    """The metrics that comparisons show."""
    return [metric for metric in METRICS.values() if metric.compared]


def value_of(record: RunRecord, metric: Metric) -> float:
    """A metric's value in a run: that of the training set where it is measured there, as in the paper; NaN if there is none."""
    value = (record.train if metric.on_training_set else record.scores).get(metric.name)
    return math.nan if value is None else value


@dataclass(frozen=True, kw_only=True)
class Line:
    """One row of the table. Differences are to the baseline, paired by seed; the baseline itself has none."""

    name: str
    means: dict[str, Interval]  # by metric
    differences: dict[str, Interval] | None  # by metric
    over_classes: Interval | None  # recall@1, bootstrap over test classes
    time_ratio: float | None  # steps that took turns with the baseline's; None if that was not measured
    folders: list[Path]
    weight: float | None = None  # λ of the distillation; None if nobody teaches
    reranked: dict[str, dict[str, float]] | None = None  # means of the re-ranked scores, by the re-ranker
    chosen: str | None = None  # the main setting, if held-out classes chose it, as weight=10
    budget: dict[str, str] | None = None  # where it saw more or other batches than the baseline: its own, by option


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What the runs came to; the first line is the baseline."""

    lines: list[Line]
    seeds: list[int]
    data: str
    epochs: str
    scored: str  # test or validation classes
    reference: dict[str, float]  # recall@1 of the untrained features, where there are any
    left_out: dict[str, str] | None = None  # rows that could not be trained on these data, with the reason

    @property
    def timed(self) -> bool:
        """Whether any row's time was measured beside the baseline's."""
        return any(line.time_ratio is not None for line in self.lines[1:])


def compare(
    rows: Mapping[str, TrainOptions],
    seeds: Sequence[int],
    out: Path,
    *,
    jobs: int = 1,
    show: bool = True,
    keep_going: bool = False,
    tuned: bool = False,
    left_out: Mapping[str, str] = MappingProxyType({}),
) -> Comparison:
    """Train each row with each seed, in `out/ROW/seed-N`, and compare all rows with the first.

    Whatever is finished there already, with the same options, is read and not repeated; what was interrupted goes on. A run that fails
    ends the others, which keep their state; with `keep_going` they are trained to the end first. With `tuned`, each row's main setting is
    chosen on held-out training classes before, by runs in `out/search`. `left_out` tells of rows that cannot be trained.
    """
    _check_comparable(rows)
    for name in rows:
        _place(out, name, 0)
    tried = candidates(rows) if tuned else {}
    count = Count("runs", runs_of(tried) + len(rows) * len(seeds))
    how: dict[str, Any] = {"jobs": jobs, "show": show, "keep_going": keep_going, "count": count}
    settled = tune(rows, out, **how) if tuned else rows
    plan = {
        (name, seed): options.replace(seed=seed, out=str(_place(out, name, seed))) for seed in seeds for name, options in settled.items()
    }
    carry_out(plan, **how)
    runs = {name: [RunRecord.read(_place(out, name, seed)) for seed in seeds] for name in rows}
    return summarise(runs, seeds, measure_times(runs, out, show), read_chosen(out) if tuned else {}, left_out)


def measure_times(runs: Mapping[str, Sequence[RunRecord]], out: Path, show: bool) -> dict[str, float]:
    """How long each row takes beside the first: steps of both, taking turns, in a few seconds. What is known already is not measured."""
    times, (baseline, *others) = read_times(out), runs
    for name in others:
        if f"{name} beside {baseline}" in times:
            continue
        tell(show, f"measuring the time of {name} beside {baseline}")
        try:
            own, other = (runs[row][0].options.replace(data=runs[row][0].source) for row in (name, baseline))
            times[f"{name} beside {baseline}"] = round(relative_time(own, other, seconds=SECONDS), 4)
        except InputError as fault:  # what a training began with may be gone
            tell(show, f"the time of {name} is not known: {fault}")
            continue
        write_json(out / TIMES, times)
    return times


def read_times(out: Path) -> dict[str, float]:
    """What was measured of a comparison's times, by `ROW beside BASELINE`."""
    found = read_mapping(out / TIMES) if (out / TIMES).exists() else {}
    if not fits(found, Mapping[str, float]):
        raise InputError(f"{out / TIMES}: holds other things than times; remove it, and the same obdsd compare measures them")
    return found


def _place(out: Path, row: str, seed: int) -> Path:
    """Where a run of a comparison is. No row's name leads out of the folder, and none is a formula to a spreadsheet."""
    if not re.fullmatch(r"\w[\w.+-]*", str(row)):
        raise InputError(f"row={row!r} names a folder; begin with a letter or digit, and use letters, digits and . + - _")
    if row == SEARCH or Path(row).suffix in (".json", ".csv", ".md", ".html"):
        raise InputError(f"row={row!r} has the name of what the comparison writes beside its rows; choose another")
    return out / row / f"seed-{seed}"


def read_comparison(out: Path) -> tuple[dict[str, list[RunRecord]], Comparison]:
    """A finished comparison: the runs of each row, and what they came to."""
    file = out / "comparison.json"
    if not file.exists():
        raise InputError(f"{out}: {RunFolder(out, writes=False).unfinished()}")
    written = read_mapping(file)
    check_format(file, "comparison", written, FORMAT, "the same obdsd compare writes it anew")
    lines, seeds = written.get("lines"), written.get("seeds")
    if not (fits(lines, Sequence[Mapping[str, Any]]) and lines and fits(seeds, Sequence[int]) and seeds):
        raise InputError(f"{file}: is no comparison of obdsd; give the folder of a finished obdsd compare")
    names = [str(line.get("name")) for line in lines]
    runs = {name: [RunRecord.read(_place(out, name, seed)) for seed in seeds] for name in names}
    left_out = written.get("left_out") or {}
    if not fits(left_out, Mapping[str, str]):
        raise InputError(f"{file}: its left_out holds other things than reasons; the same obdsd compare writes it anew")
    return runs, summarise(runs, seeds, read_times(out), read_chosen(out), left_out)


def _check_comparable(rows: Mapping[str, TrainOptions]) -> None:
    """Rows must be scored on the same classes, and differ in something. What is wrong with one is told before any is trained."""
    (baseline, first), *_ = rows.items()
    if first.score == "none" or first.test_fraction == 0:
        raise InputError(f"score={first.score} with test_fraction={first.test_fraction:g} scores nothing to compare; leave them out")
    for name, options in rows.items():
        try:
            check_taught(options)
        except InputError as fault:
            raise InputError(f"row {name}: {fault}") from fault
        for field in SAME:
            if getattr(options, field) != getattr(first, field):
                raise InputError(f"rows {baseline} and {name} differ in {field}; they would be scored on different classes, make it equal")
    named = {name: options.identity() for name, options in rows.items()}
    for (one, settings), (other, others_settings) in itertools.combinations(named.items(), 2):
        if settings == others_settings:
            raise InputError(f"rows {one} and {other} have the same settings; there is nothing to compare")


def summarise(
    runs: Mapping[str, Sequence[RunRecord]],
    seeds: Sequence[int],
    times: Mapping[str, float] = MappingProxyType({}),
    chosen: Mapping[str, str] = MappingProxyType({}),
    left_out: Mapping[str, str] = MappingProxyType({}),
) -> Comparison:
    """The comparison of finished runs, by row; the first row is the baseline. `times` are those that were measured, `chosen` what a search
    chose of each row, and `left_out` rows that could not be trained."""
    (beside, baseline), *_ = runs.items()
    first = baseline[0]
    return Comparison(
        lines=[_line(name, records, baseline, times.get(f"{name} beside {beside}"), chosen.get(name)) for name, records in runs.items()],
        seeds=list(seeds),
        data=first.options.data,
        epochs=", ".join(sorted({record.chosen_by for records in runs.values() for record in records})),
        scored=first.options.score,
        reference={name: scores["recall@1"] or 0.0 for name, scores in first.reference.items()},
        left_out=dict(left_out) or None,
    )


def _line(name: str, records: Sequence[RunRecord], baseline: Sequence[RunRecord], time: float | None, chosen: str | None) -> Line:
    values, others = (
        {metric.name: np.array([value_of(record, metric) for record in side]) for metric in compared_metrics()}
        for side in (records, baseline)
    )
    classes = differences_by_class([record.per_class for record in records], [record.per_class for record in baseline])
    return Line(
        name=name,
        means={metric: t_interval(numbers) for metric, numbers in values.items()},
        differences=None if records is baseline else {metric: t_interval(values[metric] - others[metric]) for metric in values},
        over_classes=None if records is baseline else class_interval(*classes),
        time_ratio=1.0 if records is baseline else time,
        folders=[record.folder for record in records],
        weight=records[0].options.weight if records[0].options.distils else None,
        reranked=_reranked(records),
        chosen=chosen,
        budget=_budget(records[0], baseline[0]),
    )


def _budget(record: RunRecord, baseline: RunRecord) -> dict[str, str] | None:
    """Where a row saw more or other batches than the baseline, as `4, not 2`."""
    own, usual = budget_of(record.options), budget_of(baseline.options)
    return {name: f"{value}, not {usual[name]}" for name, value in own.items() if value != usual[name]} or None


def _reranked(records: Sequence[RunRecord]) -> dict[str, dict[str, float]] | None:
    """Means over the runs of what each re-ranker that all of them were scored with came to."""
    shared = [name for name in records[0].reranked if all(name in record.reranked for record in records)]
    scores = {name: [record.reranked[name] for record in records] for name in shared}
    means = {name: {each: float(np.mean([own[each] for own in runs])) for each in ("recall@1", "map@r")} for name, runs in scores.items()}
    return means or None


def differences_by_class(
    ours: Sequence[Mapping[str, Any]], theirs: Sequence[Mapping[str, Any]]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Of the `per_class` of runs: each class's mean over seeds of the difference of its recall, and its number of queries."""
    recalls = [np.array([classes["recall@1"] for classes in side]) for side in (ours, theirs)]
    return (recalls[0] - recalls[1]).mean(axis=0), np.array(ours[0]["queries"])
