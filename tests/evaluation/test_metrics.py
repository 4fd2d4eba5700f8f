import json
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from obdsd.evaluation import METRICS, Metric, evaluate, metric, register_metric
from obdsd.evaluation.metrics import recall_at
from obdsd.evaluation.scores import geometry
from tests.oracles import slow
from tests.refusing import refused

PAGE = Path(__file__).parents[2] / "docs" / "evaluation.md"
ROWS, LABELS = slow.unit_rows(30, 4, seed=0).numpy(), np.repeat(["a", "b", "c"], 10)

PRECISION = Metric(
    name="precision@3", title="P", sentence="P.", depth=3, per_query=lambda ranking: (ranking.hit & (ranking.rank <= 3)).sum(axis=1) / 3
)
SPREAD = Metric(name="spread", title="Spread", sentence="Variance.", of_space=lambda space: float(space.rows.var()), on_training_set=True)


@pytest.fixture
def registered():
    """Two metrics from outside, gone after the test."""
    with patch.dict(METRICS):
        register_metric(PRECISION)
        register_metric(SPREAD)
        yield


@pytest.mark.usefixtures("registered")
def test_a_metric_from_outside_is_in_every_score():
    scores = evaluate(ROWS, LABELS, ks=(1,), clusters=False, details=True)
    cosines = ROWS @ ROWS.T - 2 * np.eye(30)
    right = np.array([(LABELS[np.argsort(-row)[:3]] == label).mean() for row, label in zip(cosines, LABELS, strict=True)])
    assert scores["precision@3"] == pytest.approx(right.mean())
    assert scores.per_query["precision@3"] == pytest.approx(right)
    assert scores.per_class.values["precision@3"] == pytest.approx(right.reshape(3, 10).mean(axis=1))
    assert scores["spread"] == geometry(ROWS, LABELS)["spread"] == ROWS.var()
    assert json.loads(json.dumps(scores.as_dict())) == {**scores.values, "queries": 30, "lone_queries": 0}
    assert list(scores.values)[-2:] == ["precision@3", "spread"]
    assert metric("spread") is SPREAD


def test_a_metric_gets_the_neighbours_that_it_needs_and_no_say_in_queries_that_do_not_count():
    rows, labels = ROWS[:7], [0, 0, 1, 1, 2, 2, 3]  # R = 1, and a lone query
    values = lambda ranking: np.where(ranking.relevant, ranking.rank.max(axis=1), np.nan)  # noqa: E731
    with patch.dict(METRICS):
        register_metric(replace(PRECISION, name="depth", depth=4, per_query=values))
        scores = evaluate(rows, labels, ks=(1,), clusters=False, details=True)
    assert scores["depth"] >= 4
    assert scores.per_query["depth"][-1] == 0


def test_the_table_in_its_order():
    assert list(METRICS) == ["recall@1", "r-precision", "map@r", "nmi", "ami", "density", "intra", "inter", "spectral-decay"]
    assert [name for name, entry in METRICS.items() if not entry.compared] == ["intra", "inter"]
    assert [name for name, entry in METRICS.items() if entry.on_training_set] == ["density", "intra", "inter", "spectral-decay"]


@pytest.mark.parametrize("entry", [*METRICS.values(), recall_at(4)], ids=lambda entry: entry.name)
def test_a_sentence_says_which_direction_is_better(entry):
    assert sum(words in entry.sentence for words in ("Higher is better", "Lower is better", "Neither direction is always better")) == 1


def test_values_as_tables_show_them():
    assert [metric("map@r").text(value) for value in (0.361, 1.0, None, float("nan"))] == ["36.10", "100.00", "", ""]
    assert [metric("density").text(value) for value in (0.361, float("inf"))] == ["0.361", "inf"]


def test_recall_at_any_depth_is_one_metric():
    assert metric("recall@1") is METRICS["recall@1"]
    assert metric("recall@16") is recall_at(16)
    assert not recall_at(16).compared


def test_the_page_has_the_table():
    """Change the page where this fails: it must hold these lines."""
    rows = [f"| `{entry.name}` | {entry.title} | {entry.sentence} |" for entry in METRICS.values()]
    table = "\n".join(["| name | title | what it says |", "|---|---|---|", *rows])
    assert f"<!-- metrics -->\n{table}\n<!-- end -->" in PAGE.read_text()


BAD = [
    (lambda: metric("map_at_r"), "metric='map_at_r' is not known; did you mean map@r?"),
    (lambda: metric("recall@0"), "metric='recall@0' is not known; did you mean recall@1?"),
    (lambda: metric("xyz"), "metric='xyz' is not known; there are recall@1, r-precision, map@r, nmi, ami, density, intra, inter, spect"),
    (lambda: register_metric(replace(PRECISION, name="map@r")), "metric='map@r' is there already; choose another name"),
    (lambda: register_metric(replace(PRECISION, name="recall@5")), "metric='recall@5' is there already; choose another name"),
    (lambda: replace(PRECISION, per_query=None), "metric precision@3 must have per_query or of_space, and not both; give one function"),
    (lambda: replace(PRECISION, of_space=SPREAD.of_space), "metric precision@3 must have per_query or of_space, and not both"),
    (lambda: replace(PRECISION, needs_clusters=True), "metric precision@3: needs_clusters and on_training_set are for of_space; leave"),
    (lambda: replace(PRECISION, on_training_set=True), "metric precision@3: needs_clusters and on_training_set are for of_space"),
]


test_a_wrong_metric_is_one_clear_line = refused(BAD)
