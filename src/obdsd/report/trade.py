"""What a gain costs: each row's time of a step against its gain in Recall@1, as places in a picture without a script."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from obdsd.experiments.comparison import Comparison
from obdsd.report.content import Spot, Trade

TIMES = (0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 50, 100)  # where a tick may be
STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20)  # points between two ticks of the gain
TICKS = 6  # at most, of the gain
MARGIN = 0.08  # of an axis, beyond the outermost spot
LEAST_TIME, LEAST_GAIN = math.log(1.5), 0.5  # that the axes span
ROOM = (22.0, 6.0)  # a name's, in percent of the picture's width and height
TURN = 75.0  # from here on names stand on the left of their spots
APART = 7.0  # percent between two ticks of the time


class _Row(NamedTuple):
    name: str
    time: float
    gain: float  # points
    kind: str


def trade_of(comparison: Comparison) -> Trade | None:
    """The picture; None where no time was measured, or of a single row."""
    baseline, *others = comparison.lines
    rows = [_Row(baseline.name, 1.0, 0.0, "baseline")]
    for line in others:
        if line.time_ratio is not None and line.differences is not None:
            gain = line.differences["recall@1"]
            rows.append(_Row(line.name, line.time_ratio, 100 * gain.mean, gain.verdict))
    if len(rows) < 3:
        return None
    left, right = _ends([math.log(row.time) for row in rows], LEAST_TIME)
    low, high = _ends([row.gain for row in rows], LEAST_GAIN)

    def across(time: float) -> float:
        return round(100 * (math.log(time) - left) / (right - left), 2)

    def down(gain: float) -> float:
        return round(100 * (high - gain) / (high - low), 2)

    step = next((step for step in STEPS if (high - low) / step <= TICKS), STEPS[-1])
    gains = [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)]
    front = {row.name for row in rows if not any(_is_better(other, row) for other in rows)}
    places = [(across(row.time), down(row.gain)) for row in rows]
    named = _with_room(places, [row.name in front for row in rows])
    return Trade(
        spots=[
            Spot(name=row.name, kind=row.kind, x=x, y=y, words=_words(row), named=has_room, turned=x > TURN, best=row.name in front)
            for row, (x, y), has_room in zip(rows, places, named, strict=True)
        ],
        times=_apart(
            [(across(time), f"{time:g}×") for time in sorted(TIMES, key=lambda time: time != 1) if left <= math.log(time) <= right]
        ),
        gains=[(down(gain), f"{gain:+.2g}" if gain else "0") for gain in gains],
        sentence=(
            f"Time of a training step beside one of {baseline.name}, in turns, on an axis of ratios, against the gain in Recall@1 in "
            f"points. Up and to the left is better. Ringed rows: no other is as quick and gains more. Point at a dot for its numbers."
        ),
    )


def _words(row: _Row) -> str:
    return row.name if row.kind == "baseline" else f"{row.name}: {row.gain:+.1f} points at {row.time:.2f}× the time"


def _is_better(one: _Row, other: _Row) -> bool:
    """Whether one is at least as quick and gains at least as much, and is not just the same."""
    return one.time <= other.time and one.gain >= other.gain and (one.time, one.gain) != (other.time, other.gain)


def _ends(values: Sequence[float], least: float) -> tuple[float, float]:
    middle, half = (min(values) + max(values)) / 2, max(max(values) - min(values), least) / 2
    return middle - half * (1 + 2 * MARGIN), middle + half * (1 + 2 * MARGIN)


def _with_room(places: Sequence[tuple[float, float]], front: Sequence[bool]) -> list[bool]:
    """Which spots are named in the picture: the highest, then those of the front, as long as no name lies on another, nor on a spot."""
    named = [False] * len(places)
    for number in sorted(range(len(places)), key=lambda number: (not front[number], places[number][1])):
        x, y = places[number]
        covers = (x - ROOM[0], x) if x > TURN else (x, x + ROOM[0])
        hidden = [place != number and covers[0] <= a <= covers[1] and abs(y - b) < ROOM[1] / 2 for place, (a, b) in enumerate(places)]
        near = [abs(x - a) < ROOM[0] and abs(y - b) < ROOM[1] for (a, b), taken in zip(places, named, strict=True) if taken]
        named[number] = not any(near) and not (any(named) and any(hidden))
    return named


def _apart(ticks: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Ticks that leave each other room, the first of them in any case."""
    kept: list[tuple[float, str]] = []
    for place, words in ticks:
        if all(abs(place - other) >= APART for other, _ in kept):
            kept.append((place, words))
    return sorted(kept)
