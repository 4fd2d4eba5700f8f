"""A report's content against the files of the runs, and against slow truths."""

import io
import json
import shutil
import sys
import types
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from obdsd.data import open_data
from obdsd.data.transforms import evaluation_transform
from obdsd.errors import InputError
from obdsd.evaluation.embedding import embed
from obdsd.evaluation.points import Points
from obdsd.evaluation.retrieval import nearest
from obdsd.experiments import compare
from obdsd.experiments.reporting import gather
from obdsd.experiments.reporting.cost import cost_of
from obdsd.experiments.reporting.items import MOST, Crops, choose_items, thumbnail
from obdsd.experiments.reporting.measures import sample_of
from obdsd.experiments.reporting.runs import open_runs
from obdsd.experiments.reporting.search import layout
from obdsd.experiments.tables import HEADER, caption, cells, plain_words, write_tables
from obdsd.method.targets import BatchDiffusion, MeanMix, PairwiseTargets
from obdsd.method.teachers import PreviousEpochTeacher
from obdsd.models import Embedder
from obdsd.presets import preset
from obdsd.training import train
from obdsd.training.assembly import collection_of, training_part
from obdsd.training.batches import TrainingBatches
from obdsd.training.checkpoints import read_state
from tests.made_up import write_rows

SMALL = {"epochs": 3, "batch_size": 12, "dim": 5, "lr": 1e-3, "evaluate_every": 1, "device": "cpu", "reference": False}


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """A comparison of three rows and two seeds on rows of an embeddings file: 10 test classes × 6."""
    folder = tmp_path_factory.mktemp("compared")
    data = write_rows(folder / "rows.npz", 20, 6, 12)
    rows = {name: preset(name, data, **SMALL) for name in ("ms", "ms+psd", "ms+obd-sd")}
    comparison = compare(rows, (3, 4), folder / "out", show=False)
    write_tables(comparison, folder / "out")
    return comparison, folder / "out"


@pytest.fixture(scope="module")
def content(compared):
    return gather([compared[1]], device="cpu")


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """A folder of 8 classes × 6 images, and a run on it."""
    folder = tmp_path_factory.mktemp("photographs")
    generator = np.random.default_rng(0)
    for c in range(8):
        (folder / "images" / f"class {c}").mkdir(parents=True)
        pattern = generator.integers(0, 255, (6, 5, 3))
        for i in range(6):
            pixels = np.clip(np.kron(pattern, np.ones((16, 24, 1))) + generator.normal(0, 25, (96, 120, 3)), 0, 255)
            Image.fromarray(pixels.astype(np.uint8)).save(folder / "images" / f"class {c}" / f"{i}.png")
    small = {"epochs": 2, "batch_size": 8, "dim": 6, "lr": 1e-3, "backbone": "tiny-conv", "weights": "none", "device": "cpu"}
    train(preset("ms+obd-sd", f"folder:{folder / 'images'}", **small, workers=0, out=str(folder / "run")), show=False)
    return folder


@pytest.fixture(scope="module")
def pictured(photographs):
    return gather([photographs / "run"], device="cpu")


def rows_of(folder, part):
    return embed(Embedder.load(Path(folder) / "model"), part, batch_size=256)


def test_a_comparison_is_its_own_headline_and_shows_the_first_seed_of_each_row(compared, content):
    comparison, out = compared
    assert list(content.header) == HEADER
    assert content.rows == [cells(line) for line in comparison.lines]
    assert content.caption == caption(comparison)
    assert sorted(content.words) == sorted(plain_words(comparison).splitlines())
    assert content.words[0].startswith("ms+psd: ")
    assert [(run.name, run.seed, run.folder) for run in content.runs] == [(line.name, 3, str(line.folders[0])) for line in comparison.lines]
    assert content.facts["scored on"] == "10 other classes, 60 embeddings (test)"
    assert content.facts["epoch"] == "last epoch (epoch 3 of 3)"
    assert content.commands[-1] == f"obdsd report {out}"


def test_neighbours_are_those_of_a_brute_force_search(content):
    for run in content.runs:
        config = Path(run.folder)
        part = open_data(run.options["data"])["test"]
        rows = rows_of(config, part)
        similar = rows @ rows.T
        np.fill_diagonal(similar, -9)
        order = np.argsort(-similar, axis=1, kind="stable")[:, :5]
        np.testing.assert_allclose(run.neighbours.cosines, np.take_along_axis(similar, order, axis=1), atol=1e-6)
        np.testing.assert_allclose(np.take_along_axis(similar, run.neighbours.indices, axis=1), run.neighbours.cosines, atol=1e-6)
        labels = np.array([item.label for item in content.items])
        np.testing.assert_array_equal(run.right, labels[run.neighbours.indices[:, 0]] == labels)
        assert run.right.mean() == pytest.approx(run.scores["Recall@1"])
        kin = np.where(labels[:, None] == labels[None, :], similar, -9)
        np.testing.assert_array_equal(run.positive.indices[:, 0], kin.argmax(axis=1))
        np.testing.assert_allclose(run.positive.cosines[:, 0], kin.max(axis=1), atol=1e-6)
        assert [content.classes[label] for label in labels] == [part.class_names[label] for label in part.labels]


def test_fewer_are_found_where_fewer_are_there():
    rows = np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]], dtype=np.float32)
    indices, cosines = nearest(Points(rows, np.array([0, 0, 1])), None, 5)
    assert indices.tolist() == [[1, 2], [0, 2], [1, 0]]
    np.testing.assert_allclose(cosines, [[0.8, 0], [0.8, 0.6], [0.6, 0]], atol=1e-6)
    with pytest.raises(InputError, match="gallery: holds nothing that could be found but what is ignored; give more classes or groups"):
        nearest(Points(rows, np.zeros(3, dtype=np.int64), np.zeros(3, dtype=np.int64)), None, 5)


def test_recall_of_classes_is_the_runs_own_and_the_mean_of_what_is_right(content):
    labels = np.array([item.label for item in content.items])
    for run in content.runs:
        record = json.loads((Path(run.folder) / "per_class.json").read_text())
        by_name = dict(zip(record["labels"], record["recall@1"], strict=True))
        assert list(run.per_class) == [by_name[name] for name in content.classes]
        np.testing.assert_allclose(run.per_class, [run.right[labels == c].mean() for c in range(len(content.classes))], atol=1e-6)


def test_curves_are_those_of_the_metrics_file(content):
    for run in content.runs:
        lines = [json.loads(line) for line in (Path(run.folder) / "metrics.jsonl").read_text().splitlines()]
        assert run.curves["loss: base"] == [(line["epoch"] + 1, line["loss"]["base"]) for line in lines]
        assert run.curves["density"] == [(line["epoch"] + 1, line["train"]["density"]) for line in lines]
        assert run.curves["distance of class means"] == [(line["epoch"] + 1, line["train"]["inter"]) for line in lines]
        assert run.curves["spectral decay"] == [(line["epoch"] + 1, line["train"]["spectral-decay"]) for line in lines]
        shares = [(line["epoch"] + 1, line["distillation"]["gradient_share"]) for line in lines if "distillation" in line]
        assert run.curves.get("share of the distillation in the gradient", []) == shares


def test_held_out_classes_have_their_curve(compared, tmp_path):
    options = preset("ms", compared[0].data, **SMALL, val_fraction=0.4, test_every=2, out=str(tmp_path / "run"))
    train(options, show=False)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    curves = gather([tmp_path / "run"], device="cpu").runs[0].curves
    assert curves["Recall@1, held-out classes"] == [(line["epoch"] + 1, line["validation"]["recall@1"]) for line in lines]
    assert curves["Recall@1, test classes (nothing is chosen by them)"] == [(2, lines[1]["test"]["recall@1"])]


def test_histograms_and_shares_are_of_a_whole(content):
    for run in content.runs:
        space = run.geometry
        assert sum(space.spectrum) == pytest.approx(1)
        assert list(space.spectrum) == sorted(space.spectrum, reverse=True)
        for side in (space.intra, space.inter):
            assert sum(side.shares) == pytest.approx(1)
            assert (len(side.edges), side.edges[0], side.edges[-1]) == (len(side.shares) + 1, 0, 2)
        middle = [np.dot(side.shares, (np.array(side.edges[1:]) + side.edges[:-1]) / 2) for side in (space.intra, space.inter)]
        rows, labels = training_rows(run)
        distance = 1 - rows @ rows.T
        same = labels[:, None] == labels[None, :]
        np.fill_diagonal(distance, np.nan)
        assert middle[0] == pytest.approx(np.nanmean(distance[same]), abs=0.02)
        assert middle[1] == pytest.approx(np.nanmean(distance[~same]), abs=0.02)
        if run.name == "ms":
            assert space.gradient == {}
        else:
            assert sum(space.gradient["positive"]) + sum(space.gradient["negative"]) == pytest.approx(1)


def training_rows(run):
    part = open_data(run.options["data"])["train"]
    return rows_of(run.folder, part), part.labels


def test_the_heat_maps_are_of_the_runs_own_batch_and_teacher(compared, content):
    """By hand: the first batch of the last epoch, the trained model, and the weights that taught, from the checkpoint before."""
    options = replace(preset("ms+obd-sd", compared[0].data, **SMALL), seed=3)
    run = content.runs[2]
    student = Embedder.load(Path(run.folder) / "model")
    state = read_state(Path(run.folder) / "checkpoints" / "before.pt")
    assert (state["epoch"], state["step"]) == (2, 0)
    teacher = Embedder.load(Path(run.folder) / "model")
    teacher.load_state_dict({name.removeprefix("model."): value for name, value in state["teacher"].items()})
    part = training_part(options, collection_of(options))
    inputs, labels, _ = next(TrainingBatches(options, part, student).epoch(2))
    order = np.argsort(labels.numpy(), kind="stable")
    with torch.no_grad():
        z, t = student(inputs[order]), teacher(inputs[order])
    assert not torch.allclose(z, t, atol=1e-4)
    expected = [t @ t.T, PairwiseTargets()(t), BatchDiffusion(options.omega)(t), MeanMix(options.omega)(t), z @ z.T]
    names = ["teacher", "PSD", "OBD-SD", "control", "student"]
    for (name, matrix), wanted, word in zip(run.heatmaps.matrices.items(), expected, names, strict=True):
        assert word in name
        np.testing.assert_allclose(matrix, wanted.numpy(), atol=1e-5)
        if name.startswith("targets"):
            np.testing.assert_allclose(matrix.sum(axis=1), 1, atol=1e-5)
    assert list(run.heatmaps.classes) == [part.class_names[int(label)] for label in labels[order]]
    assert run.heatmaps.batch == "first batch of epoch 3; teacher: previous-epoch"
    assert content.runs[0].heatmaps.batch.endswith("the model an epoch before, though it did not teach")


def test_without_checkpoints_the_model_stands_for_its_teacher(compared, tmp_path):
    shutil.copytree(compared[1] / "ms+psd" / "seed-3", tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    run = gather([tmp_path / "run"], device="cpu").runs[0]
    assert run.heatmaps.batch.endswith("the model itself, as no checkpoint of its teacher is left")
    np.testing.assert_allclose(run.heatmaps.matrices["teacher similarity"], run.heatmaps.matrices["student similarity"], atol=1e-6)
    assert run.geometry.gradient == {}


@pytest.mark.parametrize("name", ["ms+bar", "ms+anchor", "ms+s2sd-dsd", "ms+global", "proxy-anchor+proxy-diffusion", "margin+uniform-mix"])
def test_every_kind_of_system_can_be_shown(compared, tmp_path, name):
    options = preset(name, compared[0].data, **{**SMALL, "epochs": 2, "evaluate_every": 0}, out=str(tmp_path / "run"))
    train(options, show=False)
    run = gather([tmp_path / "run"], device="cpu").runs[0]
    assert run.cost.seconds > 0
    assert 0 <= run.cost.teacher + run.cost.targets <= 1
    assert run.cost.teacher > 0
    assert run.cost.targets > 0
    assert run.heatmaps.matrices["teacher similarity"].shape == (12, 12)


@pytest.mark.parametrize("teacher", ["ema", "memory"])
def test_teachers_that_move_within_an_epoch(compared, tmp_path, teacher):
    options = preset("ms+psd", compared[0].data, **SMALL, teacher=teacher, out=str(tmp_path / "run"))
    train(options, show=False)
    run = gather([tmp_path / "run"], device="cpu").runs[0]
    assert run.heatmaps.batch.endswith(f"teacher: {teacher}")


def test_the_cost_is_measured_on_a_copy(compared, content):
    """The model that is given is the same after the steps, and so is all that is gathered again."""
    (run,), _ = open_runs([compared[1] / "ms+psd" / "seed-3"])
    model = Embedder.load(run.folder.path / "model")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    part = training_part(run.options, collection_of(run.options))
    cost_of(run, model, PreviousEpochTeacher(model), part, torch.device("cpu"))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not model.training
    for run in content.runs:
        assert run.cost.seconds > 0
        assert run.cost.memory_mib > sum(p.nbytes for p in Embedder.load(Path(run.folder) / "model").parameters()) / 2**20
        assert run.cost.training_seconds == json.loads((Path(run.folder) / "result.json").read_text())["seconds"]
    assert (content.runs[0].cost.teacher, content.runs[0].cost.targets) == (0, 0)
    assert content.runs[1].cost.teacher > 0
    again = gather([compared[1]], device="cpu")
    for one, two in zip(content.runs, again.runs, strict=True):
        np.testing.assert_array_equal(one.neighbours.indices, two.neighbours.indices)
        np.testing.assert_array_equal(one.map, two.map)
        np.testing.assert_array_equal(one.heatmaps.matrices["student similarity"], two.heatmaps.matrices["student similarity"])


def test_rows_of_a_file_have_no_pictures(content):
    assert all(item.picture is None for item in content.items)
    assert len(content.local_queries) == len(content.local_pictures) == 0
    assert all(run.local is None and run.local_recall is None for run in content.runs)
    assert content.items[0].name.startswith("row ")


def test_rows_may_borrow_the_pictures_of_what_they_were_made_of(photographs, pictured, tmp_path):
    collection = open_data(f"folder:{photographs / 'images'}")
    generator = np.random.default_rng(0)
    parts = list(collection.parts.values())
    names = np.array([part.name(i) for part in parts for i in range(len(part))])
    labels = np.array([part.class_names[label] for part in parts for label in part.labels])
    splits = np.repeat(list(collection.parts), [len(part) for part in parts])
    order = generator.permutation(len(names))
    file = tmp_path / "x.npz"
    np.savez(
        file,
        embeddings=generator.standard_normal((len(names), 9)).astype(np.float32),
        labels=labels[order],
        split=splits[order],
        names=names[order],
    )
    train(preset("ms", str(file), **{**SMALL, "batch_size": 8}, out=str(tmp_path / "run")), show=False)
    found = gather([tmp_path / "run"], pictures=f"folder:{photographs / 'images'}", device="cpu")
    expected = {item.name: item.picture for item in pictured.items}
    assert {item.name: item.picture for item in found.items} == expected
    assert found.runs[0].local is None
    with pytest.raises(InputError, match=r"pictures=glyphs: has no item of the name 'class .*'; give the images that were embedded"):
        gather([tmp_path / "run"], pictures="glyphs", device="cpu")
    with pytest.raises(InputError, match=r"pictures=.*x.npz: holds embeddings, no images; give the images that were embedded"):
        gather([tmp_path / "run"], pictures=str(file), device="cpu")


def test_pictures_are_small_and_show_the_item(photographs, pictured):
    part = open_data(f"folder:{photographs / 'images'}")["test"]
    for index, item in enumerate(pictured.items):
        shown = Image.open(io.BytesIO(item.picture))
        assert shown.size == (56, 45)
        assert len(item.picture) < 3000  # noise compresses badly
        original = part[index][0].resize((56, 45), Image.Resampling.BOX)
        assert np.abs(np.asarray(shown.convert("RGB"), float).mean(axis=(0, 1)) - np.asarray(original, float).mean(axis=(0, 1))).max() < 10
    tiny = Image.new("RGB", (20, 9), "red")
    assert Image.open(io.BytesIO(thumbnail(tiny))).size == (20, 9)
    assert Image.open(io.BytesIO(thumbnail(Image.new("RGB", (900, 2))))).size == (56, 1)


def test_rows_that_a_run_kept_are_not_computed_again(photographs, pictured, tmp_path):
    shutil.copytree(photographs / "run", tmp_path / "run")
    kept = tmp_path / "run" / "rows.npz"
    collection = open_data(f"folder:{photographs / 'images'}")
    model = Embedder.load(tmp_path / "run" / "model")
    with np.load(kept) as file:
        assert sorted(file.files) == ["test", "train"]
        for name in file.files:
            part = collection[name].replace(transform=evaluation_transform(model.preprocessing))
            np.testing.assert_allclose(file[name], embed(model, part), atol=1e-6)
        turned = {name: file[name][:, ::-1] for name in file.files}  # the same cosines, and a trace of where they come from
        changed = {**turned, "test": np.roll(turned["test"], 1, axis=0)}
    kept.unlink()
    anew = gather([tmp_path / "run"], device="cpu")
    np.testing.assert_array_equal(anew.runs[0].neighbours.indices, pictured.runs[0].neighbours.indices)
    np.savez(kept, **changed)
    rolled = gather([tmp_path / "run"], device="cpu").runs[0]
    expected = np.roll((pictured.runs[0].neighbours.indices + 1) % len(pictured.items), 1, axis=0)
    assert (rolled.neighbours.indices == expected).mean() > 0.95
    kept.write_bytes(b"PK nothing")
    with pytest.raises(InputError, match=r"rows.npz: is damaged \(.*\); remove it, and it is computed anew"):
        gather([tmp_path / "run"])


def test_a_crop_searches_for_the_whole_but_never_finds_its_own_image(photographs, pictured):
    run = pictured.runs[0]
    np.testing.assert_array_equal(pictured.local_queries, np.arange(len(pictured.items)))
    labels = np.array([item.label for item in pictured.items])
    assert not (run.local.indices == pictured.local_queries[:, None]).any()
    assert run.local_recall == pytest.approx((labels[run.local.indices[:, 0]] == labels).mean())
    assert all(Image.open(io.BytesIO(picture)).size == (56, 45) for picture in pictured.local_pictures)
    part = open_data(f"folder:{photographs / 'images'}")["test"]
    crop, again, other = (Crops(part, seed, np.asarray)[3][0] for seed in (0, 0, 1))
    np.testing.assert_array_equal(crop, again)
    assert crop.shape == (48, 60, 3)
    whole = np.asarray(part[3][0])
    places = [(y, x) for y in range(49) for x in range(61) if np.array_equal(whole[y : y + 48, x : x + 60], crop)]
    assert len(places) == 1
    assert not np.array_equal(crop, other)


def test_the_first_training_classes_on_the_map(compared, content):
    run = compared[1] / "ms" / "seed-3"
    trained = gather([run], points="train", device="cpu")
    part = open_data(compared[0].data)["train"]
    assert len(trained.items) == 60 + len(part)
    np.testing.assert_array_equal(trained.shown, 60 + np.arange(len(part)))
    np.testing.assert_array_equal(trained.asking, np.arange(60))
    assert {trained.items[i].name for i in trained.shown} == {part.name(i) for i in range(len(part))}
    assert trained.runs[0].map.shape == (len(part), 2)
    assert (trained.runs[0].neighbours.indices[60:] >= 60).all()
    np.testing.assert_array_equal(trained.runs[0].neighbours.indices[:60], content.runs[0].neighbours.indices)
    assert np.isnan(trained.runs[0].per_class[10:]).all()
    assert list(trained.runs[0].per_class[:10]) == list(content.runs[0].per_class)


def test_the_map_is_seeded_and_keeps_neighbours_together():
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), 20)
    rows = generator.standard_normal((6, 16))[labels] + 0.1 * generator.standard_normal((120, 16))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    first, again = layout(rows, "tsne", 0), layout(rows, "tsne", 0)
    np.testing.assert_array_equal(first, again)
    distance = np.linalg.norm(first[:, None] - first[None], axis=2)
    np.fill_diagonal(distance, np.inf)
    assert (labels[distance.argmin(axis=1)] == labels).all()
    moved = layout(rows + np.float32(0.01), "tsne", 0, first)  # another run's map begins where the first ended
    centres = [np.stack([places[labels == c].mean(axis=0) for c in range(6)]) for places in (first, moved)]
    assert np.corrcoef(*(np.linalg.norm(c[:, None] - c[None], axis=2).ravel() for c in centres))[0, 1] > 0.8
    assert layout(rows[:4], "tsne", 0).shape == (4, 2)
    assert layout(np.array([[1.0], [-1.0], [1.0]], dtype=np.float32), "tsne", 0).shape == (3, 2)


def test_umap_is_an_extra(compared, monkeypatch):
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(InputError, match=r"map=umap needs the package umap-learn; pip install it, or use map=tsne"):
        gather([compared[1]], map="umap")

    class UMAP:
        def __init__(self, **options):
            self.options = options

        def fit_transform(self, rows):
            return rows[:, :2] * self.options["random_state"]

    monkeypatch.setitem(sys.modules, "umap", types.SimpleNamespace(UMAP=UMAP))
    found = gather([compared[1] / "ms" / "seed-3"], map="umap", seed=2, device="cpu")
    rows = rows_of(compared[1] / "ms" / "seed-3", open_data(compared[0].data)["test"])
    np.testing.assert_allclose(found.runs[0].map, 2 * rows[:, :2], atol=1e-6)
    assert found.facts["map"] == "UMAP of the scored classes"


def test_runs_side_by_side(compared):
    folders = [compared[1] / name / "seed-3" for name in ("ms", "ms+obd-sd")]
    found = gather(folders, device="cpu")
    assert [run.name for run in found.runs] == ["ms", "ms+obd-sd"]
    gain = 100 * (found.runs[1].scores["Recall@1"] - found.runs[0].scores["Recall@1"])
    assert found.rows[1][found.header.index("recall@1, difference")] == f"{gain:+.2f}"
    assert f"{gain:+.1f} points to ms with a single run each: no interval over seeds, no conclusion." in found.words[0]
    low, high = map(float, found.rows[1][found.header.index("over classes")].split(" to "))
    assert low <= gain <= high
    seeds = gather([compared[1] / "ms" / f"seed-{seed}" for seed in (3, 4)], device="cpu")
    assert [run.name for run in seeds.runs] == ["ms, seed 3", "ms, seed 4"]
    twice = gather([folders[0], folders[0]], device="cpu")
    assert [run.name for run in twice.runs] == [str(folders[0])] * 2


def test_chosen_queries(compared, tmp_path):
    names = tmp_path / "names.txt"
    run = compared[1] / "ms" / "seed-3"
    known = [item.name for item in gather([run], device="cpu").items]
    names.write_text(f"{known[7]}\n\n  {known[2]}\n{known[7]}\n")
    assert gather([run], queries=names, device="cpu").chosen_queries.tolist() == [7, 2]
    names.write_text(f"{known[7]}\nrwo {known[2].split()[1]}\n")
    with pytest.raises(InputError, match=rf"queries={names}, line 2: 'rwo \d+' is no item of test; did you mean 'row \d+'\?"):
        gather([run], queries=names)
    names.write_text("%%%%%%\n")
    with pytest.raises(InputError, match=rf"line 1: '%+' is no item of test; names are such as '{known[0]}'"):
        gather([run], queries=names)
    names.write_text("\n")
    with pytest.raises(InputError, match="holds no name; give one item name a line, such as"):
        gather([run], queries=names)
    names.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is no text file"):
        gather([run], queries=names)


def test_of_too_many_items_whole_classes_are_shown_those_asked_for_among_them(compared):
    collection = open_data(compared[0].data)
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
    train(preset("ms", str(tmp_path / "x.npz"), **SMALL, out=str(tmp_path / "run")), show=False)
    found = gather([tmp_path / "run"], device="cpu")
    run, collection = found.runs[0], open_data(str(tmp_path / "x.npz"))
    queries, gallery = len(collection["query"]), len(collection["gallery"])
    np.testing.assert_array_equal(found.asking, np.arange(queries))
    assert len(found.items) == queries + gallery
    assert (run.neighbours.indices >= queries).all()
    assert (run.neighbours.indices != np.arange(queries + gallery)[:, None]).all()
    y = np.array([item.label for item in found.items])
    camera = np.concatenate([collection[name].groups for name in ("query", "gallery")])
    near = run.neighbours.indices
    assert collection["query"].groups is not None
    assert not ((y[near] == y[:, None]) & (camera[near] == camera[:, None])).any()
    alone = run.positive.indices[:queries, 0] < 0
    assert run.right[:queries][~alone].mean() == pytest.approx(run.scores["Recall@1"])


def test_a_sample_of_the_training_set_has_pairs_of_all_classes(compared):
    part = open_data(compared[0].data)["train"]
    assert sample_of(part, 0) is part
    assert np.bincount(sample_of(part, 0, most=30).labels).tolist() == [3] * 10
    few = np.bincount(sample_of(part, 0, most=8).labels)
    assert sorted(few[few > 0]) == [2] * 4


def broken(folder, tmp_path, change):
    shutil.copytree(folder, tmp_path / "broken")
    change(tmp_path / "broken")
    return tmp_path / "broken"


def other_data(folder):
    record = json.loads((folder / "run.json").read_text())
    record["data"]["test"]["items"] += 1
    (folder / "run.json").write_text(json.dumps(record))


FAULTS = {
    r"its training is not finished \(no result.json\), go on with it by obdsd train --resume": lambda folder: (
        folder / "result.json"
    ).unlink(),
    r"its training failed \(the loss is not finite\), train it anew": lambda folder: (
        (folder / "result.json").unlink(),
        (folder / "failure.json").write_text('{"fault": "the loss is not finite"}'),
    ),
    r"holds no run \(no config.yaml\), give the folder of a finished": lambda folder: (folder / "config.yaml").unlink(),
    "its result cannot be read": lambda folder: (folder / "result.json").write_text("{"),
    r"config.yaml is of another version of obdsd \(option zeal\); use that version": lambda folder: (folder / "config.yaml").write_text(
        (folder / "config.yaml").read_text() + "zeal: 1\n"
    ),
    "model.json: no such file": lambda folder: shutil.rmtree(folder / "model"),
    r"changed since the run in .* was trained; restore it": other_data,
}


@pytest.mark.parametrize("line", FAULTS)
def test_a_folder_that_cannot_be_shown_is_named(compared, tmp_path, line):
    folder = broken(compared[1] / "ms" / "seed-3", tmp_path, FAULTS[line])
    with pytest.raises(InputError, match=rf"{folder}.*{line}" if "changed" not in line else line) as refused:
        gather([folder])
    assert "\n" not in str(refused.value)


def test_comparisons_that_cannot_be_shown(compared, tmp_path):
    unfinished = broken(compared[1], tmp_path, lambda folder: (folder / "comparison.json").unlink())
    with pytest.raises(InputError, match=r"broken: the comparison is not finished \(no comparison.json\), the same obdsd compare goes on"):
        gather([unfinished])
    (unfinished / "comparison.json").write_text("{}")
    with pytest.raises(InputError, match=r"comparison.json: is no comparison of obdsd; give the folder"):
        gather([unfinished])
    shutil.copy(compared[1] / "comparison.json", unfinished)
    (unfinished / "ms" / "seed-4" / "result.json").unlink()
    with pytest.raises(InputError, match=r"broken/ms/seed-4: its training is not finished"):
        gather([unfinished])


def test_every_folder_that_is_wrong_is_named_in_one_line(compared, tmp_path):
    with pytest.raises(InputError, match=rf"{tmp_path}/a: no such folder, .*; {tmp_path}: holds no run"):
        gather([tmp_path / "a", compared[1], tmp_path])


def test_runs_on_different_items_are_not_shown_together(compared, photographs):
    with pytest.raises(InputError, match=r"seed-3 and .*run differ in data; they were scored on different items, report them apart"):
        gather([compared[1] / "ms" / "seed-3", photographs / "run"])
