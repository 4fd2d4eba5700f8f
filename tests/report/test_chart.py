"""The first picture by hand numbers, and as the page draws it without a script."""

import math
import re
from dataclasses import replace

import pytest

from obdsd.experiments.statistics import Interval
from obdsd.report import render
from obdsd.report.chart import drawing_of
from obdsd.report.content import Chart, Estimate
from tests.report.made_content import made_content


def chart(*rows, untrained=()):
    return Chart(rows=rows, untrained=dict(untrained), sentence="")


BASELINE = Estimate(name="ms", value=0.40)
BETTER = Estimate(name="better", value=0.43, difference=Interval(0.03, 0.01, 0.05))
WORSE = Estimate(name="worse", value=0.38, difference=Interval(-0.02, -0.03, -0.01))
UNDECIDED = Estimate(name="undecided", value=0.41, difference=Interval(0.01, -0.02, 0.04))
ONE_SEED = Estimate(name="one seed", value=0.42, difference=Interval(0.02, math.nan, math.nan))


def test_rows_lie_on_one_axis_and_intervals_start_from_the_baseline():
    drawing = drawing_of(chart(BASELINE, BETTER, WORSE, UNDECIDED, ONE_SEED))
    assert [mark.kind for mark in drawing.marks] == ["baseline", "better", "worse", "undecided", "single"]
    start, end = 37 - 0.06 * 8, 45 + 0.06 * 8  # worse's low end, better's high end, and a margin

    def place(points):
        return 100 * (points - start) / (end - start)

    assert drawing.baseline == pytest.approx(place(40), abs=1e-3)
    assert [mark.place for mark in drawing.marks] == pytest.approx([place(x) for x in (40, 43, 38, 41, 42)], abs=1e-3)
    assert drawing.marks[1].interval == pytest.approx((place(41), place(45)), abs=1e-3)
    assert drawing.marks[2].interval == pytest.approx((place(37), place(39)), abs=1e-3)
    assert drawing.marks[0].interval is drawing.marks[4].interval is None
    low, high = drawing.marks[3].interval
    assert low < drawing.baseline < high  # crosses the line: no difference can be told
    assert [(mark.value, mark.difference) for mark in drawing.marks] == [
        ("40.0 %", ""),
        ("43.0 %", "+3.0 (+1.0 to +5.0)"),
        ("38.0 %", "-2.0 (-3.0 to -1.0)"),
        ("41.0 %", "+1.0 (-2.0 to +4.0)"),
        ("42.0 %", "+2.0"),
    ]
    assert [label for _, label in drawing.ticks] == ["38", "40", "42", "44"]
    assert [at for at, _ in drawing.ticks] == pytest.approx([place(x) for x in (38, 40, 42, 44)], abs=1e-3)


def test_what_was_there_before_is_a_line_or_where_it_is_far_off_an_arrow():
    near, far, high = drawing_of(chart(BASELINE, BETTER, untrained={"features": 0.36, "far": 0.1, "high": 0.9})).marks[2:]
    assert (near.kind, near.name, near.value) == ("untrained", "features, untrained", "36.0 %")
    assert 0 < near.place < 100
    assert far.place < 0
    assert high.place > 100
    alone = drawing_of(chart(BASELINE, untrained={"far": 0.1}))  # nothing that a long axis would squeeze
    assert [mark.kind for mark in alone.marks] == ["single", "untrained"]
    assert all(0 < mark.place < 100 for mark in alone.marks)


def test_a_single_number_needs_no_picture():
    assert drawing_of(chart(BASELINE)) is None
    assert '<figure class="chart">' not in render(replace(made_content(), chart=chart(BASELINE)))


def test_equal_rows_have_an_axis_too():
    drawing = drawing_of(chart(BASELINE, replace(BASELINE, name="same")))
    assert [mark.place for mark in drawing.marks] == [50, 50]
    assert len(drawing.ticks) >= 2


def test_the_page_draws_each_row_without_a_script():
    text = render(replace(made_content(), chart=chart(BASELINE, BETTER, WORSE, UNDECIDED, untrained={"features": 0.36, "far": 0.01})))
    figure = text[text.index('<figure class="chart">') : text.index("</figure>")]
    drawing = drawing_of(chart(BASELINE, BETTER, WORSE, UNDECIDED, untrained={"features": 0.36, "far": 0.01}))
    assert re.findall(r'class="estimate (\w+)"', figure) == [*(mark.kind for mark in drawing.marks), "axis"]
    assert [float(x) for x in re.findall(r'<circle cx="([\d.-]+)%"', figure)] == [mark.place for mark in drawing.marks[:-1]]
    assert figure.count("<path") == 1
    assert figure.count('class="interval"') == 3 * 3
    assert figure.count('class="base"') == figure.count('class="before"') == 6  # a line through all rows
    assert 'role="img" aria-label="Dot plot of Recall@1 of all rows. The sentences and the table below hold its numbers."' in figure
