"""A run's last epoch: one real batch against the weights of the checkpoints, and what a step costs."""

import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from obdsd.data import open_data
from obdsd.evaluation.metrics import METRICS, Metric
from obdsd.method.targets import BatchDiffusion, MeanMix, PairwiseTargets, balance
from obdsd.models import Embedder
from obdsd.report import cost, gather
from obdsd.report.measures import curves_of, sample_of
from obdsd.report.page import split_options
from obdsd.training import RunRecord
from obdsd.training.build import collection_of, training_part
from obdsd.training.checkpoints import read_state
from obdsd.training.loader import TrainingBatches
from tests.report.conftest import embed_part, quick_run

SYSTEMS = {
    "ms+bar": {},
    "ms+anchor": {},
    "ms+s2sd-dsd": {"system": "s2sd(widths=[16])"},
    "ms+global": {"targets": "global-diffusion(omega=0.3, neighbours=8)"},
    "proxy-anchor+proxy-diffusion": {},
    "margin+uniform-mix": {},
    "ms+psd-balanced": {},
    "ms+psd": {"teacher": "ema"},
    "ms+obd-sd": {"teacher": "memory"},
}


@pytest.fixture(scope="module")
def systems(content, tmp_path_factory):
    """A run of every kind of system, side by side in one report, on a clock of its own."""
    folder, data = tmp_path_factory.mktemp("systems"), content.runs[0].options["data"]
    folders = [quick_run(name, data, folder / name, val_fraction=0.4, **changes) for name, changes in SYSTEMS.items()]
    seconds = {"teach": 1.0, "_refine": 0.5, "step": 4.0}  # of the teacher, of its targets, of the whole step
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost, "seconds_of", lambda act, device: (seconds[act.func.__name__], act()))
        runs = gather(folders, device="cpu").runs
    return dict(zip(SYSTEMS, runs, strict=True))


def test_the_matrices_are_of_the_runs_own_batch_and_teacher(content):
    """By hand: the first batch of the last epoch, the trained model, and the weights that taught, from the checkpoint before."""
    run = content.runs[2]
    options = RunRecord.read(run.folder).options
    student = Embedder.load(Path(run.folder) / "model")
    state = read_state(Path(run.folder) / "checkpoints" / "before.pt")
    assert (state["place"]["epoch"], state["place"]["step"]) == (2, 0)
    teacher = Embedder.load(Path(run.folder) / "model")
    taught = {name.removeprefix("teacher.model."): value for name, value in state["system"].items() if name.startswith("teacher.model.")}
    teacher.load_state_dict(taught)
    part = training_part(options, collection_of(options))
    inputs, labels, _ = next(TrainingBatches(options, part, student).epoch(2))
    order = np.argsort(labels.numpy(), kind="stable")
    with torch.no_grad():
        z, t = student(inputs[order]), teacher(inputs[order])
    assert not torch.allclose(z, t, atol=1e-4)
    expected = [
        ("Teacher's similarities", "similarity", t @ t.T),
        ("Targets of PSD", "targets", PairwiseTargets()(t)),
        ("Targets of OBD-SD", "refined", BatchDiffusion(0.3)(t)),
        ("Control without a graph", "refined", MeanMix(0.3)(t)),
        ("Student's similarities", "similarity", z @ z.T),
    ]
    for matrix, (title, kind, wanted) in zip(run.batch.matrices, expected, strict=True):
        assert (matrix.title, matrix.kind) == (title, kind)
        np.testing.assert_allclose(matrix.values, wanted.numpy(), atol=1e-5)
        if kind != "similarity":
            np.testing.assert_allclose(matrix.values.sum(axis=1), 1, atol=1e-5)
    assert len({matrix.sentence for matrix in run.batch.matrices}) == 5
    assert list(run.batch.classes) == [part.class_names[int(label)] for label in labels[order]]
    assert run.batch.which == "first batch of epoch 3; teacher: previous-epoch"
    assert list(content.runs[0].batch.matrices) == []  # nobody taught


@pytest.mark.parametrize("damage", ["gone", "damaged"])
def test_without_checkpoints_the_model_stands_for_its_teacher(compared, tmp_path, damage):
    shutil.copytree(compared / "ms+psd" / "seed-3", tmp_path / "run")
    for file in list((tmp_path / "run" / "checkpoints").glob("*.pt")):
        file.unlink() if damage == "gone" else file.write_bytes(b"PK" + file.read_bytes()[9:])
    run = gather([tmp_path / "run"], device="cpu").runs[0]
    assert run.batch.which.endswith("the model itself, as no checkpoint of its teacher is left")
    np.testing.assert_allclose(run.batch.matrices[0].values, run.batch.matrices[-1].values, atol=1e-6)
    assert run.geometry.gradient is None
    assert run.cost.teacher > 0  # a step asks its teacher all the same


def test_a_teacher_whose_model_is_gone(compared, content, tmp_path):
    teacher = shutil.copytree(compared / "ms" / "seed-3", tmp_path / "teacher")
    folder = quick_run("ms+psd", content.runs[0].options["data"], tmp_path / "run", val_fraction=0.4, teacher=f"frozen({teacher})")
    run = gather([folder], device="cpu").runs[0]
    assert "teacher: frozen(" in run.batch.which
    assert run.cost.teacher > 0
    shutil.rmtree(teacher)
    run = gather([folder], device="cpu").runs[0]
    assert run.batch.which.endswith("the model itself, as no checkpoint of its teacher is left")
    assert run.cost is None


def test_a_larger_model_that_was_learned_from_alone(photographs, tmp_path):
    """Its similarities are those of what it was shown; items have no class in such a run, and every step asks it."""
    Embedder("tiny-conv", dim=7, size=48, seed=5).save(tmp_path / "larger")
    images = {"backbone": "tiny-conv", "pretrained": "none", "workers": 0, "loss": "none", "supervision": "none", "teacher_precision": "32"}
    data, teacher = f"folder:{photographs / 'images'}", f"frozen({tmp_path / 'larger'})"
    run = gather([quick_run("ms+psd", data, tmp_path / "run", **images, teacher=teacher)], device="cpu").runs[0]
    assert run.batch.which == f"first batch of epoch 2; teacher: frozen(source={tmp_path / 'larger'})"
    options = RunRecord.read(run.folder).options
    part, student = training_part(options, collection_of(options)), Embedder.load(Path(run.folder) / "model")
    larger = Embedder.load(tmp_path / "larger")
    *_, labels, _, shown = next(TrainingBatches(options, part, student, teachers=larger.preprocessing).epoch(1))
    with torch.no_grad():
        rows = larger(shown[labels.argsort()])
    np.testing.assert_allclose(run.batch.matrices[0].values, (rows @ rows.T).numpy(), atol=1e-5)
    assert run.cost.teacher > 0


def test_a_file_that_no_longer_holds_what_taught(content, tmp_path):
    data, file = content.runs[0].options["data"], tmp_path / "z.npz"
    names, rows = [f"row {row}" for row in range(120)], np.random.default_rng(0).normal(size=(120, 4))
    np.savez(file, names=names, x=rows)
    folder = quick_run("ms+psd", data, tmp_path / "run", val_fraction=0.4, teacher=f"embeddings({file})")
    assert gather([folder], device="cpu").runs[0].batch.which.endswith(f"teacher: embeddings(file={file})")
    np.savez(file, names=names, x=rows[::-1])
    assert gather([folder], device="cpu").runs[0].batch.which.endswith("the model itself, as no checkpoint of its teacher is left")


def test_every_kind_of_system_can_be_shown_and_its_teacher_is_named(systems):
    teachers = {"ms+bar": "born-again", "ms+anchor": "features", "ms+psd": "ema", "ms+obd-sd": "memory"}
    for name, run in systems.items():
        taught = name != "ms+s2sd-dsd"  # its heads learn in the same pass
        assert run.taught
        assert [matrix.values.shape for matrix in run.batch.matrices[:1]] == [(12, 12)] * taught, name
        assert not taught or run.batch.which.endswith(f"teacher: {teachers.get(name, 'previous-epoch')}")
        assert (run.cost.seconds, run.cost.teacher, run.cost.targets) == ((4, 1 / 4, 1 / 8) if taught else (4, None, None))
        assert (run.geometry.gradient is not None) == taught
        if taught:
            assert sum(run.geometry.gradient.same) + sum(run.geometry.gradient.different) == pytest.approx(1)


def test_targets_of_other_kinds_stand_beside_the_paper_s(systems):
    refined = {name: [matrix for matrix in run.batch.matrices if matrix.kind == "refined"] for name, run in systems.items()}
    for name in ("ms+obd-sd", "ms+bar"):
        assert [matrix.title for matrix in refined[name]] == ["Targets of OBD-SD", "Control without a graph"]
    assert refined.pop("ms+s2sd-dsd") == []  # no teacher
    for matrices in refined.values():
        assert matrices[0].sentence.endswith("Here: batch-diffusion(omega=0.3).")
        assert matrices[1].sentence.endswith("Here: mean-mix(omega=0.3).")
    own = {name: matrices[2].sentence for name, matrices in refined.items() if len(matrices) > 2}
    assert own == {
        "ms+global": "What this run was taught: global-diffusion(omega=0.3, neighbours=8).",
        "proxy-anchor+proxy-diffusion": "What this run was taught: proxy-diffusion(omega=0.3).",
        "margin+uniform-mix": "What this run was taught: uniform-mix(omega=0.3).",
        "ms+psd-balanced": "What this run was taught: balanced(pairwise).",
    }
    pairwise, balanced = (systems["ms+psd-balanced"].batch.matrices[place].values for place in (1, 4))
    np.testing.assert_allclose(balanced, balance(torch.from_numpy(pairwise)).numpy(), atol=1e-5)


def test_a_step_is_measured_and_nothing_else_changes(compared, content):
    """All that is gathered again is the same, and so are the files of the runs."""
    before = {file: file.read_bytes() for file in compared.rglob("*") if file.is_file() and file.name != "report.html"}
    again = gather([compared], device="cpu")
    assert {file: file.read_bytes() for file in before} == before
    for one, two in zip(content.runs, again.runs, strict=True):
        np.testing.assert_array_equal(one.neighbours.indices, two.neighbours.indices)
        np.testing.assert_array_equal(one.map, two.map)
        assert len(one.batch.matrices) == len(two.batch.matrices) == (0 if one.name == "ms" else 5)
        for mine, theirs in zip(one.batch.matrices, two.batch.matrices, strict=True):
            np.testing.assert_array_equal(mine.values, theirs.values)
        assert one.geometry == two.geometry
    for run in content.runs:
        assert run.cost.seconds > 0
        assert run.cost.memory_mib is None  # the CPU does not tell
        assert run.training_seconds == json.loads((Path(run.folder) / "result.json").read_text())["seconds"]
    assert (content.runs[0].cost.teacher, content.runs[0].cost.targets) == (0, 0)


def test_on_a_gpu_the_peak_is_that_of_the_step(monkeypatch):
    peak = {"bytes": 9 * 2**20}
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: peak.update(bytes=0))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: peak["bytes"])
    assert cost.peak_mib(lambda: peak.update(bytes=3 * 2**20), torch.device("cuda")) == 3
    assert cost.peak_mib(lambda: peak.update(bytes=3 * 2**20), torch.device("cuda"), beside=2**20) == 2
    assert cost.peak_mib(lambda: None, torch.device("cpu")) is None


def test_a_machine_that_slows_down_changes_no_ratio(content, monkeypatch):
    """Ever slower, by a tenth each time that anything is measured; the last run's step is in truth twice as long as the first's."""
    moments, trainers = itertools.count(), []

    def seconds(act, device):
        trainer = act.func.__self__ if act.func.__name__ == "step" else None
        trainers.extend([trainer] * (trainer is not None and trainer not in trainers))
        return 0.01 * 1.1 ** next(moments) * (2 if trainers.index(trainer) == 2 else 1) if trainer else 0.001, act()

    monkeypatch.setattr(cost, "seconds_of", seconds)
    found = gather([Path(content.runs[0].folder).parents[1]], device="cpu").runs
    assert [run.cost.ratio for run in found] == pytest.approx([1, 1 / 1.1, 2 / 1.1])
    assert [run.cost.seconds for run in found] == pytest.approx([0.01, 0.01 / 1.1, 0.02 / 1.1])


# ---- Curves, and the geometry of the training set against all its pairs.

HELD_OUT, TEST = "held-out classes", "test classes (nothing is chosen by them)"
SCORES = {"Recall@1": "recall@1", "R-precision": "r-precision", "MAP@R": "map@r"}
WHERE = {
    "Base loss": ("loss", "base"),
    "Distillation loss": ("loss", "distillation"),
    "Share of the distillation in the gradient": ("distillation", "gradient_share"),
    **{f"{title}, {HELD_OUT}": ("validation", name) for title, name in SCORES.items()},
    **{f"{title}, {TEST}": ("test", name) for title, name in SCORES.items()},
    "Density, training set": ("train", "density"),
    "Distance inside classes, training set": ("train", "intra"),
    "Distance between classes, training set": ("train", "inter"),
    "Spectral decay, training set": ("train", "spectral-decay"),
}


def test_curves_are_those_of_the_metrics_file(content):
    curves = {curve.title: curve for curve in content.curves}
    assert list(curves) == list(WHERE)
    for place, run in enumerate(content.runs):
        lines = [json.loads(line) for line in (Path(run.folder) / "metrics.jsonl").read_text().splitlines()]
        for title, (group, name) in WHERE.items():
            expected = [(line["epoch"] + 1, line[group][name]) for line in lines if line.get(group, {}).get(name) is not None]
            assert curves[title].lines[place] == ([] if run.name == "ms" and title == "Distillation loss" else expected)
        assert [epoch for epoch, _ in curves[f"Recall@1, {TEST}"].lines[place]] == [2]
        assert len(curves[f"Recall@1, {HELD_OUT}"].lines[place]) == 3
    assert curves["Share of the distillation in the gradient"].lines[0] == []
    assert all(curve.sentence.endswith(".") for curve in content.curves)
    assert curves["Density, training set"].sentence == METRICS["density"].sentence


def test_a_page_without_a_teacher_shows_neither_its_curves_nor_its_options(compared, content):
    record = RunRecord.read(compared / "ms" / "seed-3")
    titles = [curve.title for curve in curves_of([record])]
    assert titles[0] == "Loss"
    assert not any("istillation" in title for title in titles)
    plain, psd, _ = content.runs
    assert (plain.taught, psd.taught) == (False, True)
    idle = {"targets", "weight", "temperature", "ramp"}
    assert record.options.weight  # it has one, which does nothing
    assert not idle & plain.options.keys()
    assert idle <= psd.options.keys()
    differing, common = split_options(content.runs)
    assert dict(differing)["weight"][0] == "–"
    assert not idle & dict(common).keys()


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
