"""The map of the items."""

import sys
import types

import numpy as np
import pytest

from obdsd.data import open_data
from obdsd.errors import InputError
from obdsd.report import gather
from obdsd.report.map import draw_map, draw_maps
from obdsd.training import RunRecord
from obdsd.training.build import collection_of
from tests.report.conftest import embed_part


def test_the_first_training_classes_on_the_map(compared, content):
    run = compared / "ms" / "seed-3"
    trained = gather([run], points="train", device="cpu")
    part = collection_of(RunRecord.read(run).options)["train"]
    assert len(trained.names) == 60 + len(part)
    np.testing.assert_array_equal(trained.shown, 60 + np.arange(len(part)))
    np.testing.assert_array_equal(trained.asking, np.arange(60))
    assert [trained.names[i] for i in trained.shown] == [part.name(i) for i in range(len(part))]
    assert trained.runs[0].map.shape == (len(part), 2)
    assert (trained.runs[0].neighbours.indices[60:] >= 60).all()
    np.testing.assert_array_equal(trained.runs[0].neighbours.indices[:60], content.runs[0].neighbours.indices)
    assert np.isnan(trained.runs[0].per_class[10:]).all()
    assert list(trained.runs[0].per_class[:10]) == list(content.runs[0].per_class)
    assert trained.facts["map"] == "t-SNE of the first 20 training classes"


def test_the_map_is_seeded_and_keeps_neighbours_together():
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), 20)
    rows = generator.standard_normal((6, 16))[labels] + 0.1 * generator.standard_normal((120, 16))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    stages = []
    first, moved = draw_maps([rows, rows + np.float32(0.01)], "tsne", 0, lambda *stage: stages.append(stage))
    np.testing.assert_array_equal(first, draw_map(rows, "tsne", 0))
    assert stages == [("map", 0, 2), ("map", 1, 2), ("map", 2, 2)]
    distance = np.linalg.norm(first[:, None] - first[None], axis=2)
    np.fill_diagonal(distance, np.inf)
    assert (labels[distance.argmin(axis=1)] == labels).all()
    # another run's map begins where the first ended
    centres = [np.stack([places[labels == c].mean(axis=0) for c in range(6)]) for places in (first, moved)]
    assert np.corrcoef(*(np.linalg.norm(c[:, None] - c[None], axis=2).ravel() for c in centres))[0, 1] > 0.8


def test_a_map_of_few_or_equal_items():
    rows = np.eye(4, 16, dtype=np.float32)
    assert draw_map(rows, "tsne", 0).shape == (4, 2)
    line = draw_map(np.array([[1.0], [-1.0], [1.0]], dtype=np.float32), "tsne", 0)
    np.testing.assert_allclose(np.abs(line), [[2 / 3, 0], [4 / 3, 0], [2 / 3, 0]], atol=1e-6)
    assert np.isfinite(draw_map(np.ones((12, 3), dtype=np.float32), "tsne", 0)).all()


def test_umap_is_an_extra(compared, monkeypatch):
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(InputError, match=r"map=umap needs the package umap-learn; pip install it, or use map=tsne"):
        gather([compared], map="umap")

    def fake(**options):
        return types.SimpleNamespace(fit_transform=lambda rows: rows[:, :2] * options["random_state"])

    monkeypatch.setitem(sys.modules, "umap", types.SimpleNamespace(UMAP=fake))
    found = gather([compared / "ms" / "seed-3"], map="umap", seed=2, device="cpu")
    rows = embed_part(found.runs[0], open_data(found.runs[0].options["data"])["test"])
    np.testing.assert_allclose(found.runs[0].map, 2 * rows[:, :2], atol=1e-6)
    assert found.facts["map"] == "UMAP of the scored classes"
