"""Curves against the lines of metrics.jsonl."""

import json
from pathlib import Path

import pytest

from obdsd.evaluation.metrics import METRICS, Metric
from obdsd.report.curves import curves_of, sources
from obdsd.training import RunRecord


def test_curves_are_those_of_the_metrics_file(content):
    curves = {curve.title: curve for curve in content.curves}
    where = {
        "Base loss": ("loss", "base"),
        "Distillation loss": ("loss", "distillation"),
        "Share of the distillation in the gradient": ("distillation", "gradient_share"),
        "Recall@1, held-out classes": ("validation", "recall@1"),
        "R-precision, held-out classes": ("validation", "r-precision"),
        "MAP@R, held-out classes": ("validation", "map@r"),
        "Recall@1, test classes (nothing is chosen by them)": ("test", "recall@1"),
        "R-precision, test classes (nothing is chosen by them)": ("test", "r-precision"),
        "MAP@R, test classes (nothing is chosen by them)": ("test", "map@r"),
        "Density": ("train", "density"),
        "Distance inside classes": ("train", "intra"),
        "Distance between classes": ("train", "inter"),
        "Spectral decay": ("train", "spectral-decay"),
    }
    assert list(curves) == list(where)
    for place, run in enumerate(content.runs):
        lines = [json.loads(line) for line in (Path(run.folder) / "metrics.jsonl").read_text().splitlines()]
        for title, (group, name) in where.items():
            expected = [(line["epoch"] + 1, line[group][name]) for line in lines if line.get(group, {}).get(name) is not None]
            assert curves[title].lines[place] == expected
        assert [epoch for epoch, _ in curves["Recall@1, test classes (nothing is chosen by them)"].lines[place]] == [2]
        assert len(curves["Recall@1, held-out classes"].lines[place]) == 3
    assert curves["Share of the distillation in the gradient"].lines[0] == []
    assert all(curve.sentence.endswith(".") for curve in content.curves)
    assert curves["Density"].sentence == METRICS["density"].sentence


def test_the_next_metric_has_its_curves_by_itself(compared, monkeypatch):
    new = Metric(name="new", title="New", sentence="Something new.", per_query=lambda ranking: ranking.hits[:, 0])
    monkeypatch.setitem(METRICS, "new", new)
    assert [source for source in sources() if source.keys == ("validation", "new")] == [
        ("New, held-out classes", "Something new.", ("validation", "new"))
    ]
    record = RunRecord.read(compared / "ms" / "seed-3")
    assert "New, held-out classes" not in {curve.title for curve in curves_of([record])}  # it was not measured yet
    record.metrics[0]["validation"]["new"] = 0.25
    (curve,) = (curve for curve in curves_of([record]) if curve.title == "New, held-out classes")
    assert curve.lines == [[(1, pytest.approx(0.25))]]
