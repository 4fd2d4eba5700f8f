"""One real batch and the geometry of the training set, against the weights of the checkpoints."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from obdsd.data import open_data
from obdsd.evaluation.embedding import embed
from obdsd.method.targets import BatchDiffusion, MeanMix, PairwiseTargets, balance
from obdsd.models import Embedder
from obdsd.presets import preset
from obdsd.report import gather
from obdsd.report.geometry import sample_of
from obdsd.training import RunRecord, train
from obdsd.training.build import collection_of, training_part
from obdsd.training.checkpoints import read_state
from obdsd.training.loader import TrainingBatches
from tests.report.conftest import SMALL

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
    """A run of every kind of system, side by side in one report."""
    folder = tmp_path_factory.mktemp("systems")
    small = {**SMALL, "epochs": 2, "evaluate_every": 0, "test_every": 0, "reference": False}
    for name, changes in SYSTEMS.items():
        train(preset(name, content.runs[0].options["data"], **small, **changes, out=str(folder / name)), show=False)
    runs = gather([folder / name for name in SYSTEMS], device="cpu").runs
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
    assert content.runs[0].batch.which.endswith("the model an epoch before, though it did not teach")


@pytest.mark.parametrize("damage", ["gone", "damaged"])
def test_without_checkpoints_the_model_stands_for_its_teacher(compared, tmp_path, damage):
    shutil.copytree(compared / "ms+psd" / "seed-3", tmp_path / "run")
    for file in list((tmp_path / "run" / "checkpoints").glob("*.pt")):
        file.unlink() if damage == "gone" else file.write_bytes(b"PK" + file.read_bytes()[9:])
    run = gather([tmp_path / "run"], device="cpu").runs[0]
    assert run.batch.which.endswith("the model itself, as no checkpoint of its teacher is left")
    np.testing.assert_allclose(run.batch.matrices[0].values, run.batch.matrices[-1].values, atol=1e-6)
    assert run.geometry.gradient == {}
    assert run.cost.teacher > 0  # a step asks its teacher all the same


def test_a_teacher_whose_model_is_gone(compared, content, tmp_path):
    shutil.copytree(compared / "ms" / "seed-3", tmp_path / "teacher")
    small = {**SMALL, "epochs": 2, "evaluate_every": 0, "test_every": 0, "reference": False}
    teacher = f"frozen({tmp_path / 'teacher'})"
    train(preset("ms+psd", content.runs[0].options["data"], **small, teacher=teacher, out=str(tmp_path / "run")), show=False)
    run = gather([tmp_path / "run"], device="cpu").runs[0]
    assert "teacher: frozen(" in run.batch.which
    assert run.cost.teacher > 0
    shutil.rmtree(tmp_path / "teacher")
    run = gather([tmp_path / "run"], device="cpu").runs[0]
    assert run.batch.which.endswith("the model itself, as no checkpoint of its teacher is left")
    assert run.cost is None


def test_every_kind_of_system_can_be_shown(systems):
    for name, run in systems.items():
        assert run.batch.matrices[0].values.shape == (12, 12), name
        assert run.cost.seconds > 0
        if name == "ms+s2sd-dsd":  # its heads learn in the same pass
            assert (run.cost.teacher, run.cost.targets) == (None, None)
            assert run.geometry.gradient == {}
        else:
            assert 0 < run.cost.teacher < run.cost.teacher + run.cost.targets <= 1
            assert sum(run.geometry.gradient["positive"]) + sum(run.geometry.gradient["negative"]) == pytest.approx(1)


def test_every_teacher_is_named(systems):
    taught = {name: run.batch.which.partition("teacher: ")[2] for name, run in systems.items()}
    assert taught["ms+bar"] == "born-again"
    assert taught["ms+anchor"] == "features"
    assert taught["ms+psd"] == "ema"
    assert taught["ms+obd-sd"] == "memory"
    assert taught["ms+s2sd-dsd"] == "the model an epoch before, though it did not teach"


def test_targets_of_other_kinds_stand_beside_the_paper_s(systems):
    refined = {name: [matrix for matrix in run.batch.matrices if matrix.kind == "refined"] for name, run in systems.items()}
    assert [matrix.title for matrix in refined["ms+obd-sd"]] == ["Targets of OBD-SD", "Control without a graph"]
    assert [matrix.title for matrix in refined["ms+bar"]] == ["Targets of OBD-SD", "Control without a graph"]
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


def test_histograms_and_shares_are_of_a_whole(content):
    for run in content.runs:
        space = run.geometry
        assert sum(space.spectrum) == pytest.approx(1)
        assert list(space.spectrum) == sorted(space.spectrum, reverse=True)
        for side in (space.intra, space.inter):
            assert sum(side.shares) == pytest.approx(1)
            assert (len(side.edges), side.edges[0], side.edges[-1]) == (len(side.shares) + 1, 0, 2)
        middle = [np.dot(side.shares, (np.array(side.edges[1:]) + side.edges[:-1]) / 2) for side in (space.intra, space.inter)]
        part = collection_of(RunRecord.read(run.folder).options)["train"]
        rows = embed(Embedder.load(Path(run.folder) / "model"), part, batch_size=256)
        distance = 1 - rows @ rows.T
        same = part.labels[:, None] == part.labels[None, :]
        np.fill_diagonal(distance, np.nan)
        assert middle[0] == pytest.approx(np.nanmean(distance[same]), abs=0.02)
        assert middle[1] == pytest.approx(np.nanmean(distance[~same]), abs=0.02)
        if run.name == "ms":
            assert space.gradient == {}
        else:
            assert sum(space.gradient["positive"]) + sum(space.gradient["negative"]) == pytest.approx(1)


def test_a_sample_of_the_training_set_has_pairs_of_all_classes(content):
    part = open_data(content.runs[0].options["data"])["train"]
    assert sample_of(part, 0) is part
    assert np.bincount(sample_of(part, 0, most=30).labels).tolist() == [3] * 10
    few = np.bincount(sample_of(part, 0, most=8).labels)
    assert sorted(few[few > 0]) == [2] * 4
