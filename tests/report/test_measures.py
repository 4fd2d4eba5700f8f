"""Curves against the lines of metrics.jsonl, and the geometry of the training set against all its pairs."""

import json
from pathlib import Path

import numpy as np
import pytest

from obdsd.data import open_data
from obdsd.evaluation.metrics import METRICS, Metric
from obdsd.report.measures import curves_of, sample_of
from obdsd.training import RunRecord
from obdsd.training.build import collection_of
from tests.report.conftest import embed_part

HELD_OUT, TEST = "held-out classes", "test classes (nothing is chosen by them)"
SCORES = {"Recall@1": "recall@1", "R-precision": "r-precision", "MAP@R": "map@r"}
WHERE = {
    "Base loss": ("loss", "base"),
    "Distillation loss": ("loss", "distillation"),
    "Share of the distillation in the gradient": ("distillation", "gradient_share"),
    **{f"{title}, {HELD_OUT}": ("validation", name) for title, name in SCORES.items()},
    **{f"{title}, {TEST}": ("test", name) for title, name in SCORES.items()},
    "Density": ("train", "density"),
    "Distance inside classes": ("train", "intra"),
    "Distance between classes": ("train", "inter"),
    "Spectral decay": ("train", "spectral-decay"),
}


def test_curves_are_those_of_the_metrics_file(content):
    curves = {curve.title: curve for curve in content.curves}
    assert list(curves) == list(WHERE)
    for place, run in enumerate(content.runs):
        lines = [json.loads(line) for line in (Path(run.folder) / "metrics.jsonl").read_text().splitlines()]
        for title, (group, name) in WHERE.items():
            expected = [(line["epoch"] + 1, line[group][name]) for line in lines if line.get(group, {}).get(name) is not None]
            assert curves[title].lines[place] == expected
        assert [epoch for epoch, _ in curves[f"Recall@1, {TEST}"].lines[place]] == [2]
        assert len(curves[f"Recall@1, {HELD_OUT}"].lines[place]) == 3
    assert curves["Share of the distillation in the gradient"].lines[0] == []
    assert all(curve.sentence.endswith(".") for curve in content.curves)
    assert curves["Density"].sentence == METRICS["density"].sentence


def test_the_next_metric_has_its_curves_by_itself(compared, monkeypatch):
    new = Metric(name="new", title="New", sentence="Something new.", per_query=lambda ranking: ranking.hits[:, 0])
    monkeypatch.setitem(METRICS, "new", new)
    record = RunRecord.read(compared / "ms" / "seed-3")
    assert "New, held-out classes" not in {curve.title for curve in curves_of([record])}  # it was not measured yet
    record.metrics[0]["validation"]["new"] = 0.25
    (curve,) = (curve for curve in curves_of([record]) if curve.title == "New, held-out classes")
    assert curve.sentence == "Something new."
    assert curve.lines == [[(1, pytest.approx(0.25))]]


def test_histograms_and_shares_are_of_a_whole(content):
    for run in content.runs:
        space = run.geometry
        assert sum(space.spectrum) == pytest.approx(1)
        assert list(space.spectrum) == sorted(space.spectrum, reverse=True)
        assert space.distances.centres == pytest.approx(np.arange(0.025, 2, 0.05))
        part = collection_of(RunRecord.read(run.folder).options)["train"]
        rows = embed_part(run, part)
        distance, same = 1 - rows @ rows.T, part.labels[:, None] == part.labels[None, :]
        np.fill_diagonal(distance, np.nan)
        for shares, pairs in ((space.distances.same, same), (space.distances.different, ~same)):
            assert sum(shares) == pytest.approx(1)
            assert np.dot(shares, space.distances.centres) == pytest.approx(np.nanmean(distance[pairs]), abs=0.02)
        if run.name == "ms":
            assert space.gradient is None
        else:
            assert space.gradient.centres == pytest.approx(np.arange(-0.975, 1, 0.05))
            assert sum(space.gradient.same) + sum(space.gradient.different) == pytest.approx(1)


def test_a_sample_of_the_training_set_has_pairs_of_all_classes(content):
    part = open_data(content.runs[0].options["data"])["train"]
    assert sample_of(part, 0) is part
    assert np.bincount(sample_of(part, 0, most=30).labels).tolist() == [3] * 10
    few = np.bincount(sample_of(part, 0, most=8).labels)
    assert sorted(few[few > 0]) == [2] * 4
