"""What stands at the top of a report, against the comparison's own tables and the runs' own results."""

import pytest

from obdsd.experiments.comparison import read_comparison
from obdsd.experiments.tables import caption, cells, header, sentences
from obdsd.report import gather
from obdsd.training import RunRecord


def test_a_comparison_is_its_own_headline_and_shows_the_first_seed_of_each_row(compared, content):
    _, comparison = read_comparison(compared)
    assert list(content.header) == header()
    assert content.rows == [cells(line) for line in comparison.lines]
    assert content.caption == caption(comparison)
    assert content.sentences == sentences(comparison)
    assert [(run.name, run.seed, run.folder) for run in content.runs] == [(line.name, 3, str(line.folders[0])) for line in comparison.lines]
    assert content.facts["trained on"] == "6 classes, 36 embeddings"
    assert content.facts["scored on"] == "10 other classes, 60 embeddings (test)"
    assert content.facts["epoch"] == "last epoch (epoch 3 of 3)"
    assert content.facts["map"] == "t-SNE of the scored classes; each starts from the first run's, so that places can be compared"
    assert content.commands[-1] == f"obdsd report {compared}"


def test_the_first_picture_is_of_the_comparison(compared, content):
    _, comparison = read_comparison(compared)
    for row, line in zip(content.chart.rows, comparison.lines, strict=True):
        assert (row.name, row.value) == (line.name, line.means["recall@1"].mean)
        assert row.difference == (line.differences["recall@1"] if line.differences else None)
    assert content.chart.untrained == comparison.reference
    assert sorted(content.chart.untrained) == ["frozen features", "their PCA"]
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
    recalls = [RunRecord.read(run.folder).scores["recall@1"] for run in found.runs]
    gain = 100 * (recalls[1] - recalls[0])
    assert found.rows[1][found.header.index("Recall@1, difference")] == f"{gain:+.2f}"
    low, high = map(float, found.rows[1][found.header.index("over classes")].split(" to "))
    assert low <= gain <= high
    assert [len(row) for row in found.rows] == [len(found.header)] * 2
    assert found.sentences[0] == f"ms: for {100 * recalls[0]:.1f} % of the queries the nearest other item is of their class."
    assert found.sentences[1].endswith(f"{gain:+.1f} points to ms with one run each: no interval over seeds, no conclusion.")
    assert found.sentences[2].startswith("frozen features, untrained: ")
    assert [(row.name, row.difference) for row in found.chart.rows] == [("ms", None), ("ms+obd-sd", None)]
    assert [row.value for row in found.chart.rows] == pytest.approx(recalls)
    assert found.chart.sentence.endswith("A dot is one run: there is no interval over seeds.")
