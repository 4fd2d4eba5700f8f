"""The first picture of a report as positions: dots and intervals on one axis. The page draws them as SVG, without a script."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from obdsd.experiments.statistics import Interval
from obdsd.report.content import Chart, Kind, Mark

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


def chart_of(rows: Sequence[Estimate], untrained: Mapping[str, float], sentence: str) -> Chart | None:
    """The picture; None if there is a single number. The first row is the baseline; `untrained` is what there was before, by name."""
    if len(rows) + len(untrained) < 2:
        return None
    baseline = rows[0].value
    start, end = _axis(rows, [100 * value for value in untrained.values()])

    def place(points: float) -> float:
        return round(100 * (points - start) / (end - start), 3)

    def mark(row: Estimate, kind: Kind) -> Mark:
        gain, interval = row.difference, _interval(row, baseline)
        ends = "" if gain is None or interval is None else f" ({100 * gain.low:+.1f} to {100 * gain.high:+.1f})"
        return Mark(
            name=row.name,
            kind=kind,
            value=f"{100 * row.value:.1f} %",
            difference="" if gain is None else f"{100 * gain.mean:+.1f}{ends}",
            place=place(100 * row.value),
            interval=interval and (place(interval[0]), place(interval[1])),
        )

    marks = [mark(rows[0], "single" if len(rows) == 1 else "baseline"), *(mark(row, _kind(row)) for row in rows[1:])]
    marks += [mark(Estimate(f"{name}, untrained", value), "untrained") for name, value in untrained.items()]
    step = next((step for step in STEPS if (end - start) / step <= TICKS), STEPS[-1])
    ticks = [number * step for number in range(math.ceil(start / step), math.floor(end / step) + 1)]
    return Chart(marks=marks, ticks=[(place(tick), f"{tick:g}") for tick in ticks], baseline=place(100 * baseline), sentence=sentence)


def _kind(row: Estimate) -> Kind:
    if row.difference is None or math.isnan(row.difference.low):
        return "single"
    return "undecided" if not row.difference.tells_apart else "better" if row.difference.mean > 0 else "worse"


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
