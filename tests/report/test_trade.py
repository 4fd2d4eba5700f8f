"""Time against gain: places by hand numbers, who is on the front, and names that lie on no other."""

import math
import re
from dataclasses import replace

import pytest

from obdsd.experiments.comparison import Comparison, Line
from obdsd.experiments.statistics import Interval
from obdsd.report import render
from obdsd.report.trade import ROOM, trade_of
from tests.report.made_content import made_content

ROWS = {"quick": (0.8, 1.0), "slow": (4.0, 3.0), "no use": (2.0, -1.0), "same as ms": (1.0, 0.0), "untimed": (None, 9.0)}


def comparison(rows, half=0.5):
    lines = [Line(name="ms", means={"recall@1": Interval(0.4, 0.4, 0.4)}, differences=None, over_classes=None, time_ratio=1.0, folders=[])]
    for name, (time, gain) in rows.items():
        gains = {"recall@1": Interval(gain / 100, (gain - half) / 100, (gain + half) / 100)}
        lines.append(replace(lines[0], name=name, differences=gains, time_ratio=time))
    return Comparison(lines=lines, seeds=[0, 1], data="x", epochs="last epoch", scored="test", reference={})


def test_places_are_ratios_of_time_and_points_of_gain():
    trade = trade_of(comparison(ROWS))
    spots = {spot.name: spot for spot in trade.spots}
    assert [*spots] == ["ms", "quick", "slow", "no use", "same as ms"]
    assert [spot.kind for spot in trade.spots] == ["baseline", "better", "better", "worse", "undecided"]
    left, right = math.log(0.8), math.log(4.0)
    wide, margin = (right - left) * 1.16, (right - left) * 0.08
    for name, time in {"ms": 1.0, "quick": 0.8, "slow": 4.0, "no use": 2.0}.items():
        assert spots[name].x == pytest.approx(100 * (math.log(time) - left + margin) / wide, abs=0.01)
    for name, gain in {"ms": 0, "quick": 1, "slow": 3, "no use": -1}.items():
        assert spots[name].y == pytest.approx(100 * (3.32 - gain) / 4.64, abs=0.01)
    assert [spot.name for spot in trade.spots if spot.best] == ["quick", "slow"]  # all others are slower and gain less
    assert spots["slow"].words == "slow: +3.0 points at 4.00× the time"
    assert [words for _, words in trade.times] == ["1×", "1.5×", "2×", "3×"]
    assert [words for _, words in trade.gains] == ["-1", "0", "+1", "+2", "+3"]


def test_no_name_lies_on_another():
    many = {f"row {number}": (1 + number / 100, number / 50) for number in range(30)}
    named = [spot for spot in trade_of(comparison(many)).spots if spot.named]
    assert named
    for number, one in enumerate(named):
        for other in named[:number]:
            assert abs(one.x - other.x) >= ROOM[0] or abs(one.y - other.y) >= ROOM[1]
    crowd = {"best": (1.0, 2.0), **{f"row {number}": (1.001, 1.9) for number in range(5)}}
    assert {spot.name for spot in trade_of(comparison(crowd)).spots if spot.named} <= {"best", "ms"}
    hidden = {"beside": (1.2, 0.0), "far": (9.0, 3.0)}
    assert [spot.named for spot in trade_of(comparison(hidden)).spots] == [False, True, True]  # the baseline's name would lie on it


def test_there_is_no_picture_of_a_single_row_or_without_times():
    assert trade_of(comparison({"one": (1.2, 1.0)})) is None
    assert trade_of(comparison({"one": (None, 1.0), "two": (None, 1.0)})) is None
    assert 'class="chart trade"' not in render(made_content())


def test_the_page_draws_it_without_a_script():
    trade = trade_of(comparison({**ROWS, "<b>": (3.0, 2.5)}))
    text = render(replace(made_content(), trade=trade))
    figure = text[text.index('<figure class="chart trade">') :]
    figure = figure[: figure.index("</figure>")]
    spots = re.findall(r'<circle cx="([\d.]+)%" cy="([\d.]+)%" r="5"/>', figure)
    assert [(float(x), float(y)) for x, y in spots] == [(spot.x, spot.y) for spot in trade.spots]
    assert figure.count('class="ring"') == sum(spot.best for spot in trade.spots)
    assert "<title>&lt;b&gt;: +2.5 points at 3.00× the time</title>" in figure
