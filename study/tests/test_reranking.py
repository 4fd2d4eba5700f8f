"""The study of re-ranking: every kind is tried, the best on held-out classes is the one that is scored."""

import json

import numpy as np
import pytest

from obdsd.evaluation import Points
from obdsd.search.scoring import GRID, scores_of
from study import reranking, tables


def made_up(seed):
    generator = np.random.default_rng(seed)
    labels = np.repeat(np.arange(6), 8)
    return Points(generator.normal(size=(6, 5))[labels] + generator.normal(scale=0.7, size=(48, 5)), labels)


def test_every_kind_is_in_the_grid():
    assert {reranking.kind_of(spec) for spec in GRID} == {*reranking.KINDS}


def test_what_held_out_classes_prefer_is_scored_on_the_others():
    held_out, test = made_up(0), made_up(1)
    found = reranking.compared(held_out, test)
    assert len(found["tried"]) == len(GRID)
    for kind, entry in found["test"].items():
        tried = {spec: value for spec, value in found["tried"].items() if reranking.kind_of(spec) == kind}
        assert tried[entry["rerank"]] == max(tried.values())
        assert entry["map@r"] == pytest.approx(100 * scores_of(entry["rerank"], test)["map@r"], abs=0.006)


def test_the_table_shows_the_scores_and_the_settings(monkeypatch, tmp_path):
    scores = dict.fromkeys(("recall@1", "recall@2", "recall@4", "recall@8"), 50.0) | {"map@r": 12.34}
    kinds = {"none": {"rerank": "none", **scores}, "diffusion": {"rerank": "diffusion(omega=0.8)", **scores}}
    (tmp_path / "reranking.json").write_text(json.dumps({"birds": {"tried": {}, "test": kinds}}))
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    _, *rows = tables.reranking_table("")
    assert rows == [
        ["birds", "cosine", "", "50.0", "50.0", "50.0", "50.0", "12.3"],
        ["birds", "diffusion", "`diffusion(omega=0.8)`", "50.0", "50.0", "50.0", "50.0", "12.3"],
    ]
