"""What stands at the top of a report: the first picture by hand numbers, the rest against the comparison's tables and the runs' results."""

import math
import re
from dataclasses import replace

import pytest

from obdsd.experiments.comparison import read_comparison
from obdsd.experiments.statistics import Interval
from obdsd.experiments.tables import caption, cells, header, ranked, sentences
from obdsd.report import gather, render
from obdsd.report.headline import Estimate, chart_of
from obdsd.training import RunRecord
from tests.report.made_content import made_content

BASELINE = Estimate("ms", 0.40)
BETTER = Estimate("better", 0.43, Interval(0.03, 0.01, 0.05))
WORSE = Estimate("worse", 0.38, Interval(-0.02, -0.03, -0.01))
UNDECIDED = Estimate("undecided", 0.41, Interval(0.01, -0.02, 0.04))
ONE_SEED = Estimate("one seed", 0.42, Interval(0.02, math.nan, math.nan))


def test_a_comparison_is_its_own_headline_and_shows_the_first_seed_of_each_row(compared, content):
    _, comparison = read_comparison(compared)
    assert list(content.header) == header()
    in_order = ranked(comparison)
    assert content.rows == [cells(line) for line in in_order]
    assert content.caption == caption(comparison)
    assert content.sentences == sentences(replace(comparison, lines=in_order))
    assert [(run.name, run.seed, run.folder) for run in content.runs] == [(line.name, 3, str(line.folders[0])) for line in comparison.lines]
    assert content.title == "ms, ms+psd, ms+obd-sd on rows.npz"
    assert content.facts["data"] == "rows.npz"
    assert not any(str(compared.parent / "rows.npz") in words for words in (content.title, content.caption, *content.facts.values()))
    assert content.caption.startswith("rows.npz, test classes, last epoch.")
    assert [cell for cell in content.header if "training set" in cell] == ["Density, training set", "Spectral decay, training set"]
    assert content.facts["trained on"] == "6 classes, 36 embeddings"
    assert content.facts["scored on"] == "10 other classes, 60 embeddings (test)"
    assert content.facts["epoch"] == "last epoch (epoch 3 of 3)"
    assert content.facts["map"] == "t-SNE of the scored classes; each starts from the first run's, so that places can be compared"
    assert content.commands[-1] == f"obdsd report {compared}"
    rows = [Estimate(line.name, line.means["recall@1"].mean, (line.differences or {}).get("recall@1")) for line in in_order]
    assert sorted(comparison.reference) == ["frozen features", "their PCA"]
    assert content.chart == chart_of(rows, comparison.reference, content.chart.sentence)
    assert content.chart.sentence.startswith(
        "Recall@1 on the test classes, in percent. Share of queries whose nearest other item has the same"
    )
    assert "A dot is the mean over 2 seeds. A bar is the 95 % interval of the difference to ms." in content.chart.sentence


def test_scores_are_those_of_the_table_of_metrics(content):
    for run in content.runs:
        scores = RunRecord.read(run.folder).scores
        shown = ["recall@1", "recall@2", "recall@4", "recall@8", "r-precision", "map@r", "nmi", "ami"]
        titles = ["Recall@1, %", "Recall@2, %", "Recall@4, %", "Recall@8, %", "R-precision, %", "MAP@R, %", "NMI, %", "AMI, %"]
        assert run.scores == {title: f"{100 * scores[name]:.2f}" for title, name in zip(titles, shown, strict=True)}


def test_runs_side_by_side(compared):
    found = gather([compared / name / "seed-3" for name in ("ms", "ms+obd-sd")], device="cpu")
    assert [run.name for run in found.runs] == ["ms", "ms+obd-sd"]
    record, other = (RunRecord.read(run.folder) for run in found.runs)
    recalls = [record.scores["recall@1"], other.scores["recall@1"]]
    gain = 100 * (recalls[1] - recalls[0])
    assert found.rows[1][found.header.index("Recall@1, difference")] == f"{gain:+.2f}"
    low, high = map(float, found.rows[1][found.header.index("over classes")].split(" to "))
    assert low <= gain <= high
    assert [len(row) for row in found.rows] == [len(found.header)] * 2
    assert (found.header[-1], [row[-1] for row in found.rows]) == ("seed", ["3", "3"])
    assert found.sentences[0] == f"ms: for {100 * recalls[0]:.1f} % of the queries the nearest other item is of their class."
    assert found.sentences[1].endswith(f"{gain:+.1f} points to ms with one run each: no interval over seeds, no conclusion.")
    assert found.sentences[2].startswith("frozen features, untrained: ")
    assert found.sentences[3].startswith("their PCA to the embedding's length, untrained: ")
    assert [mark.name for mark in found.chart.marks[2:]] == ["frozen features, untrained", "their PCA to the embedding's length, untrained"]
    assert "Density, training set" in found.header
    untrained = {name: scores["recall@1"] for name, scores in record.reference.items()}
    assert found.chart == chart_of([Estimate("ms", recalls[0]), Estimate("ms+obd-sd", recalls[1])], untrained, found.chart.sentence)
    assert found.chart.sentence.endswith("A dot is one run: there is no interval over seeds.")


def test_rows_lie_on_one_axis_and_intervals_start_from_the_baseline():
    chart = chart_of([BASELINE, BETTER, WORSE, UNDECIDED, ONE_SEED], {}, "")
    assert [mark.kind for mark in chart.marks] == ["baseline", "better", "worse", "undecided", "single"]
    assert [mark.heading for mark in chart.marks] == ["", "Better than ms", "Worse than ms", "Not told apart from ms", ""]
    start, end = 37 - 0.06 * 8, 45 + 0.06 * 8  # worse's low end, better's high end, and a margin

    def places(*points):
        return pytest.approx([100 * (point - start) / (end - start) for point in points], abs=1e-3)

    assert [chart.baseline] == places(40)
    assert [mark.place for mark in chart.marks] == places(40, 43, 38, 41, 42)
    assert list(chart.marks[1].interval) == places(41, 45)
    assert list(chart.marks[2].interval) == places(37, 39)
    assert chart.marks[0].interval is chart.marks[4].interval is None
    low, high = chart.marks[3].interval
    assert low < chart.baseline < high  # crosses the line: no difference can be told
    assert [mark.value for mark in chart.marks] == ["40.0 %", "43.0 %", "38.0 %", "41.0 %", "42.0 %"]
    assert [mark.difference for mark in chart.marks] == ["", "+3.0 (+1.0 to +5.0)", "-2.0 (-3.0 to -1.0)", "+1.0 (-2.0 to +4.0)", "+2.0"]
    assert [label for _, label in chart.ticks] == ["38", "40", "42", "44"]
    assert [place for place, _ in chart.ticks] == places(38, 40, 42, 44)


def test_what_was_there_before_is_a_line_or_where_it_is_far_off_an_arrow():
    near, far, high = chart_of([BASELINE, BETTER], {"features": 0.36, "far": 0.1, "high": 0.9}, "").marks[2:]
    assert (near.kind, near.name, near.value) == ("untrained", "features, untrained", "36.0 %")
    assert far.place < 0 < near.place < 100 < high.place
    alone = chart_of([BASELINE], {"far": 0.1}, "")  # nothing that a long axis would squeeze
    assert [mark.kind for mark in alone.marks] == ["single", "untrained"]
    assert all(0 < mark.place < 100 for mark in alone.marks)


def test_a_single_number_needs_no_picture_and_equal_rows_have_an_axis_too():
    assert chart_of([BASELINE], {}, "") is None
    assert '<figure class="chart">' not in render(replace(made_content(), chart=None))
    equal = chart_of([BASELINE, BASELINE], {}, "")
    assert [mark.place for mark in equal.marks] == [50, 50]
    assert len(equal.ticks) >= 2


def test_the_page_draws_each_row_without_a_script():
    chart = chart_of([BASELINE, BETTER, WORSE, UNDECIDED], {"features": 0.36, "far": 0.01}, "")
    text = render(replace(made_content(), chart=chart))
    figure = text[text.index('<figure class="chart">') : text.index("</figure>")]
    assert re.findall(r'class="estimate (\w+)"', figure) == [*(mark.kind for mark in chart.marks), "axis"]
    assert [float(x) for x in re.findall(r'<circle cx="([\d.-]+)%"', figure)] == [mark.place for mark in chart.marks[:-1]]
    assert figure.count("<path") == 1
    assert figure.count('class="interval"') == 3 * 3
    assert figure.count('class="base"') == figure.count('class="before"') == 6  # a line through all rows
    assert 'role="img" aria-label="Dot plot of Recall@1 of all rows. The sentences and the table below hold its numbers."' in figure
