"""The first picture of a report as positions: dots and intervals on one axis. The page draws them as SVG, without a script."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from obdsd.report.content import Chart, Estimate

STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20)  # between two ticks, in points
TICKS = 8  # at most
REACH = 1.0  # spans of the rows that the axis is made longer to show what was there before the training
MARGIN = 0.06  # of the axis, beyond the outermost mark
LEAST = 0.5  # points that the axis spans

Kind = Literal["baseline", "better", "worse", "undecided", "single", "untrained"]


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A row of the picture; places are in percent of the axis's length."""

    name: str
    kind: Kind
    value: str
    difference: str
    place: float  # below 0 or above 100 if it lies beyond the axis
    interval: tuple[float, float] | None


@dataclass(frozen=True, kw_only=True)
class Drawing:
    marks: list[Mark]
    ticks: list[tuple[float, str]]
    baseline: float


def drawing_of(chart: Chart) -> Drawing | None:
    """The picture; None if there is a single number."""
    if len(chart.rows) + len(chart.untrained) < 2:
        return None
    start, end = _axis(chart)

    def place(points: float) -> float:
        return round(100 * (points - start) / (end - start), 3)

    def mark(row: Estimate, kind: Kind) -> Mark:
        points, gain = 100 * row.value, row.difference
        interval = _interval(row, chart)
        ends = "" if gain is None or interval is None else f" ({100 * gain.low:+.1f} to {100 * gain.high:+.1f})"
        return Mark(
            name=row.name,
            kind=kind,
            value=f"{points:.1f} %",
            difference="" if gain is None else f"{100 * gain.mean:+.1f}{ends}",
            place=place(points),
            interval=interval and (place(interval[0]), place(interval[1])),
        )

    marks = [mark(row, "single" if len(chart.rows) == 1 else _kind(row, number)) for number, row in enumerate(chart.rows)]
    marks += [mark(Estimate(name=f"{name}, untrained", value=value), "untrained") for name, value in chart.untrained.items()]
    step = next((step for step in STEPS if (end - start) / step <= TICKS), STEPS[-1])
    ticks = [number * step for number in range(math.ceil(start / step), math.floor(end / step) + 1)]
    return Drawing(marks=marks, ticks=[(place(tick), f"{tick:g}") for tick in ticks], baseline=place(100 * chart.rows[0].value))


def _kind(row: Estimate, number: int) -> Kind:
    if number == 0:
        return "baseline"
    if row.difference is None or math.isnan(row.difference.low):
        return "single"
    return "undecided" if not row.difference.tells_apart else "better" if row.difference.mean > 0 else "worse"


def _interval(row: Estimate, chart: Chart) -> tuple[float, float] | None:
    """The ends of the difference's interval in points, from the baseline on."""
    if row.difference is None or math.isnan(row.difference.low):
        return None
    baseline = chart.rows[0].value
    return 100 * (baseline + row.difference.low), 100 * (baseline + row.difference.high)


def _axis(chart: Chart) -> tuple[float, float]:
    """Its ends in points: all rows and intervals, and what was there before the training unless it is far off."""
    points = [100 * row.value for row in chart.rows]
    points += [end for row in chart.rows for end in _interval(row, chart) or ()]
    low, high = min(points), max(points)
    span = max(high - low, LEAST)
    near = [100 * value for value in chart.untrained.values() if low - REACH * span <= 100 * value <= high + REACH * span]
    if len(chart.rows) == 1:
        near = [100 * value for value in chart.untrained.values()]
    low, high = min([low, *near]), max([high, *near])
    margin = MARGIN * max(high - low, LEAST) + (LEAST - min(high - low, LEAST)) / 2
    return low - margin, high + margin
