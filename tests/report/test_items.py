"""Which items a report shows and what each of them finds, against slow truths."""

import json
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from obdsd.data import open_data
from obdsd.errors import InputError
from obdsd.evaluation.points import Points
from obdsd.evaluation.retrieval import nearest
from obdsd.report import gather
from obdsd.report.items import MOST, choose_items, read_queries
from obdsd.report.map import draw_map, draw_maps
from obdsd.training import RunRecord
from obdsd.training.build import collection_of
from tests.report.conftest import embed_part, quick_run
from tests.report.made_content import right


def test_neighbours_are_those_of_a_brute_force_search(content):
    labels = content.labels
    for run in content.runs:
        part = open_data(run.options["data"])["test"]
        assert [content.classes[label] for label in labels] == part.classes.tolist()
        rows = embed_part(run, part)
        similar = rows @ rows.T
        np.fill_diagonal(similar, -9)
        order = np.argsort(-similar, axis=1, kind="stable")[:, :5]
        np.testing.assert_allclose(run.neighbours.cosines, np.take_along_axis(similar, order, axis=1), atol=1e-6)
        np.testing.assert_allclose(np.take_along_axis(similar, run.neighbours.indices, axis=1), run.neighbours.cosines, atol=1e-6)
        kin = np.where(labels[:, None] == labels[None, :], similar, -9)
        np.testing.assert_array_equal(run.positive.indices[:, 0], kin.argmax(axis=1))
        np.testing.assert_allclose(run.positive.cosines[:, 0], kin.max(axis=1), atol=1e-6)


def test_recall_is_the_runs_own_and_the_mean_of_what_is_right(content):
    for run in content.runs:
        record, found = json.loads((Path(run.folder) / "per_class.json").read_text()), right(run, content.labels)
        assert found.mean() == pytest.approx(RunRecord.read(run.folder).scores["recall@1"])
        by_name = dict(zip(record["labels"], record["recall@1"], strict=True))
        assert list(run.per_class) == [by_name[name] for name in content.classes]
        np.testing.assert_allclose(run.per_class, [found[content.labels == c].mean() for c in range(len(content.classes))], atol=1e-6)


def test_fewer_are_found_where_fewer_are_there():
    rows = np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]], dtype=np.float32)
    indices, cosines = nearest(Points(rows, np.array([0, 0, 1])), None, 5)
    assert indices.tolist() == [[1, 2], [0, 2], [1, 0]]
    np.testing.assert_allclose(cosines, [[0.8, 0], [0.8, 0.6], [0.6, 0]], atol=1e-6)
    with pytest.raises(InputError, match="gallery: holds nothing that could be found but what is ignored; give more classes or groups"):
        nearest(Points(rows, np.zeros(3, dtype=np.int64), np.zeros(3, dtype=np.int64)), None, 5)


def test_chosen_queries(compared, content, tmp_path):
    names, known = tmp_path / "names.txt", content.names
    names.write_text(f"{known[7]}\n\n  {known[2]}\n{known[7]}\n")
    assert gather([compared / "ms" / "seed-3"], queries=names, device="cpu").chosen_queries.tolist() == [7, 2]


@pytest.mark.parametrize(
    ("written", "line"),
    [
        (b"row 1\nrwo 1\n", r", line \d: 'r\w+ 1' is no item of test; did you mean 'row \d+'\?"),
        (b"%%%%%%\n", ", line 1: '%+' is no item of test; names are such as 'row \\d+'"),
        (b"\n", ": holds no name; give one item name a line, such as 'row"),
        (b"\xff\xfe\x00", r": is no text file \(UnicodeDecodeError\); give one item name a line"),
    ],
    ids=["nearly", "unknown", "none", "no text"],
)
def test_queries_that_cannot_be_read(content, tmp_path, written, line):
    file = tmp_path / "names.txt"
    file.write_bytes(written)
    with pytest.raises(InputError, match=f"^queries={file}{line}"):
        read_queries(file, open_data(content.runs[0].options["data"]), "test")


def test_of_too_many_items_whole_classes_are_shown_those_asked_for_among_them(content):
    collection = open_data(content.runs[0].options["data"])
    part = collection["test"]
    assert choose_items(collection, "test", "test").left_out == 0
    asked = [part.name(59), part.name(0)]
    for seed in range(3):
        some = choose_items(collection, "test", "test", asked, seed, most=25)
        assert (len(some.names), some.left_out) == (24, 36)
        assert set(asked) <= set(some.names)
        assert np.bincount(some.labels).tolist() == [6] * 4
    assert MOST > 5_924


def test_query_and_gallery_search_each_other_and_groups_are_ignored(tmp_path):
    """Five views of each class by two cameras: what the same camera saw of the class is no find."""
    generator = np.random.default_rng(1)
    labels = np.repeat(np.arange(12), 8)
    rows = generator.standard_normal((12, 10))[labels] + generator.standard_normal((96, 10))
    split = np.where(labels < 6, "train", np.where(np.arange(96) % 8 < 3, "query", "gallery"))
    groups = generator.integers(0, 3, 96)
    np.savez(tmp_path / "x.npz", embeddings=rows.astype(np.float32), labels=labels, split=split, group=groups)
    found = gather([quick_run("ms", tmp_path / "x.npz", tmp_path / "run", epochs=1)], device="cpu")
    run, collection = found.runs[0], open_data(str(tmp_path / "x.npz"))
    queries, gallery = len(collection["query"]), len(collection["gallery"])
    np.testing.assert_array_equal(found.asking, np.arange(queries))
    assert len(found.names) == queries + gallery
    assert (run.neighbours.indices >= queries).all()
    assert (run.neighbours.indices != np.arange(queries + gallery)[:, None]).all()
    y, near = found.labels, run.neighbours.indices
    camera = np.concatenate([collection[name].groups for name in ("query", "gallery")])
    assert collection["query"].groups is not None
    assert not ((y[near] == y[:, None]) & (camera[near] == camera[:, None])).any()
    alone = run.positive.indices[:queries, 0] < 0
    assert right(run, y)[:queries][~alone].mean() == pytest.approx(RunRecord.read(run.folder).scores["recall@1"])
    assert run.batch.which == ""  # nobody taught


# ---- The map of the items.


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
    assert (stages[0], stages[-1]) == (("map", 0, 500), ("map", 500, 500))  # two maps of 250 steps
    assert [done for _, done, _ in stages] == sorted(25 * place for place in range(21))
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
