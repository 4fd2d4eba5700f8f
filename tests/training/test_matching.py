"""Ways to match in a training: any teacher with any of them, a map that learns, classes that teach, and what would do nothing."""

import csv
import itertools

import numpy as np
import pytest
import torch

from obdsd import InputError
from obdsd.data import open_data
from obdsd.method.kernels import GlobalKernel
from obdsd.method.relations import probabilistic, relational_angle, relational_distance, relaxed_contrastive
from obdsd.options import TrainOptions
from obdsd.presets import beyond_preset, preset, resolve
from obdsd.training import Trainer, train
from obdsd.training.checkpoints import read_state
from tests.refusing import refused
from tests.training.reading import assert_same_end, few_steps, lines, trainer_of
from tests.training.teaching import TABLE

STRONG = {"ramp": "constant", "weight": 10.0}
MATCHINGS = ["kl(diagonal=false)", "rcl", "rkd", "pkt", "cosine", "cosine(form=squared, map=true)", "plg"]
TEACHERS = ["previous-epoch", "ema(decay=0.9)", "memory", "features", TABLE]


@pytest.mark.parametrize("teacher", TEACHERS)
def test_any_teacher_with_any_matching(options, teachers, teacher):
    """At the sixth step the student has moved away from its teacher, and items come again that a memory knows."""
    for matching in MATCHINGS:
        chosen = options("ms+psd", teacher=teacher.format(teachers=teachers), matching=matching, lr=0.05, **STRONG)
        _, parts = few_steps(chosen, count=6)
        assert parts[-1]["distillation"] > 0, matching


@pytest.mark.parametrize("targets", ["kernel", "kernel(neighbours=3, classmates=true)", "balanced(kernel)", "global-kernel(neighbours=5)"])
@pytest.mark.parametrize("teacher", ["previous-epoch", "ema(decay=0.9)", "features", TABLE])
def test_any_teacher_with_kernel_targets(options, teachers, targets, teacher):
    chosen = options("ms+psd", teacher=teacher.format(teachers=teachers), targets=targets, temperature=0.1, lr=0.05, **STRONG)
    trainer, parts = few_steps(chosen, count=6)
    assert parts[-1]["distillation"] > 0
    if isinstance(trainer.system.targets, GlobalKernel):
        assert trainer.system.targets.has_gaps == (teacher == TABLE)


@pytest.mark.parametrize(
    ("matching", "function"),
    [
        ("rcl(sigma=0.5)", lambda x, t: relaxed_contrastive(x, t, 0.5, 1.0)),
        ("rkd", lambda x, t: relational_distance(x, t) + 2 * relational_angle(x, t)),
        ("pkt", probabilistic),
    ],
)
def test_the_term_is_the_matching_of_students_and_teachers_rows(options, features, matching, function):
    trainer = trainer_of(options("ms+psd-constant", teacher="features", matching=matching, weight=3.0))
    inputs, labels, indices = next(trainer.batches.epoch(0))
    z = trainer.model(inputs).detach()
    rows = torch.nn.functional.normalize(torch.from_numpy(open_data(features)["train"].matrix())[indices], dim=1)
    parts = trainer.step(inputs, labels, indices)
    torch.testing.assert_close(parts["distillation"], 3.0 * function(z, rows), rtol=1e-4, atol=0)


@pytest.mark.parametrize("changes", [{"matching": "rkd"}, {"matching": "cosine"}, {"targets": "kernel", "temperature": 0.1}], ids=str)
def test_chunks_of_a_batch_give_the_same_gradient(options, teachers, changes):
    teacher = {"teacher": TABLE.format(teachers=teachers), **STRONG}
    whole, chunked = (trainer_of(options("margin+psd", **teacher, **changes, micro_batch=size)) for size in (0, 3))
    batch = next(whole.batches.epoch(0))
    for trainer in (whole, chunked):
        trainer.step(*batch)
    compared = list(zip(whole.system.named_parameters(), chunked.system.named_parameters(), strict=True))
    for (name, one), (_, other) in compared:
        torch.testing.assert_close(one.grad, other.grad, msg=name)
    assert any(name == "matching.map.weight" for (name, _), _ in compared) == (changes.get("matching") == "cosine")


def test_the_map_of_a_regression_learns_and_goes_on(options, teachers, finished, broken_off):
    """At the model's learning rate, without decay. It is in the checkpoint, and no part of the model that is kept."""
    changes = {"teacher": TABLE.format(teachers=teachers), "matching": "cosine", **STRONG}
    trainer = trainer_of(options("margin+psd", **changes, objective_lr=0.25, head_lr=0.5))
    groups = [(group["lr"], group["weight_decay"], len(group["params"])) for group in trainer.optimizer.param_groups]
    assert groups[1:] == [(0.25, 0.0, 1), (1e-3, 0.0, 1)]
    before = trainer.system.matching.map.weight.detach().clone()
    trainer.step(*next(trainer.batches.epoch(0)))
    assert (trainer.system.matching.map.weight - before).abs().max() > 1e-4
    whole = finished("margin+psd", **changes, keep_checkpoints=True)
    state = read_state(whole.folder / "checkpoints" / "last.pt")["system"]
    assert state["matching.map.weight"].shape == (9, 6)
    assert not any("map" in name for name in whole.model().state_dict())
    broken = broken_off(Trainer, "step", 6, KeyboardInterrupt, "margin+psd", **changes, checkpoint_steps=1)
    train(broken, show=False)
    assert_same_end(whole.folder, broken.out)


@pytest.mark.parametrize("teacher", ["previous-epoch", TABLE])
def test_a_global_kernel_goes_on_inside_an_epoch(finished, broken_off, teachers, teacher, monkeypatch):
    """The walks are in the checkpoint: with a teacher that stands still they are made once."""
    changes = {"teacher": teacher.format(teachers=teachers), "targets": "global-kernel(neighbours=5)", "temperature": 0.1, **STRONG}
    fits, fit = [], GlobalKernel.fit
    monkeypatch.setattr(GlobalKernel, "fit", lambda self, *rows: (fits.append(1), fit(self, *rows))[1])
    whole = finished("ms+psd", **changes)
    assert len(fits) == (1 if teacher == TABLE else 2)
    broken = broken_off(Trainer, "step", 6, KeyboardInterrupt, "ms+psd", **changes, checkpoint_steps=1)
    done = len(fits)
    train(broken, show=False)
    assert len(fits) == done
    assert_same_end(whole.folder, broken.out)


def test_what_is_read_of_targets_is_read_where_there_are_any(finished):
    """Another matching asks for none; how hard it pulls is read all the same."""
    line = finished("ms+psd", matching="rkd", weight=5.0).metrics[1]
    assert line["distillation"].keys() == {"gradient_share"}
    assert 0 < line["distillation"]["gradient_share"] < 1
    assert finished("ms+psd", targets="kernel", temperature=0.1, weight=5.0).metrics[1]["distillation"].keys() == {
        "entropy", "same_class", "gradient_share",
    }  # fmt: skip


def test_heads_teach_by_relations_too(options):
    for changes in ({"matching": "rkd"}, {"matching": "plg"}, {"targets": "kernel(classmates=true)", "temperature": 0.1}):
        _, parts = few_steps(options("ms+s2sd-msdf", system="s2sd(widths=[8], feature_weight=1.0, feature_from=0)", **changes), count=2)
        assert parts[-1]["distillation"] > 0, changes


# ---- Classes that teach.


@pytest.fixture
def alike(features, tmp_path):
    """A table of how alike the training classes are, and the similarities by their numbers."""
    names = open_data(features)["train"].class_names
    rows = np.random.default_rng(3).normal(size=(len(names), 5))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    order = np.random.default_rng(4).permutation(len(names))
    with (tmp_path / "alike.csv").open("w", newline="") as file:
        table = rows[order] @ rows[order].T
        written = [names[place] for place in order]
        csv.writer(file).writerows([["class", *written], *([name, *row] for name, row in zip(written, table.tolist(), strict=True))])
    return f"classes({tmp_path / 'alike.csv'})", torch.from_numpy(rows @ rows.T)


def test_how_alike_classes_are_teaches_their_items(options, alike):
    """The published loss on the batch's classes, beside the base loss and from the first step on."""
    teacher, Q = alike
    trainer = trainer_of(options("ms+psd-constant", teacher=teacher, matching="plg", weight=7.5))
    inputs, labels, indices = next(trainer.batches.epoch(0))
    z = trainer.model(inputs).detach().double()
    parts = trainer.step(inputs, labels, indices)
    total = 0.0
    for i, j in itertools.product(range(len(z)), repeat=2):
        if j == 0:
            kin = labels == labels[i]
            p = torch.where(kin, 2.0, z @ z[i]).softmax(dim=0)
            q = torch.where(kin, 2.0, Q[labels[i], labels] + 1).softmax(dim=0)
        total += float(p[j] * (p[j] / q[j]).log()) / len(z)
    assert float(parts["distillation"]) == pytest.approx(7.5 * total, rel=1e-4)


def test_classes_teach_by_any_matching_and_a_run_goes_on(options, alike, finished, broken_off):
    teacher, _ = alike
    for changes in ({"matching": "rkd"}, {"targets": "pairwise"}, {"targets": "global-kernel(neighbours=8)"}):
        _, parts = few_steps(options("ms+psd", teacher=teacher, **STRONG, **changes), count=2)
        assert parts[-1]["distillation"] > 0, changes
    changes = {"teacher": teacher, "matching": "plg(direction=forward)", **STRONG}
    broken = broken_off(Trainer, "step", 6, KeyboardInterrupt, "ms+psd", **changes, checkpoint_steps=1)
    train(broken, show=False)
    assert lines(finished("ms+psd", **changes).folder) == lines(broken.out)


def test_classes_that_the_file_does_not_have(options, tmp_path):
    np.savez(tmp_path / "q.npz", names=["a", "b"], similarity=np.eye(2))
    with pytest.raises(InputError, match=r"q\.npz: has no similarities of 12 of the 12 classes that train \(\d+, \d+, .*…\); its classes"):
        train(options("ms+psd", teacher=f"classes({tmp_path / 'q.npz'})", matching="plg"), show=False)
    with pytest.raises(InputError, match=r"lost\.csv: no such file; check the path"):
        trainer_of(options("ms+psd", teacher=f"classes({tmp_path / 'lost.csv'})"))


# ---- Options.

IDLE = [
    ({"matching": "rkd", "targets": "pairwise(scale=0.7)"}, "targets=pairwise(scale=0.7) does nothing with matching=rkd; leave it out, or"),
    ({"matching": "cosine", "temperature": 0.5}, "temperature=0.5 does nothing with matching=cosine; leave it out, or change matching"),
    ({"matching": "plg", "omega": 0.5}, "omega=0.5 does nothing with matching=plg; leave it out, or change matching"),
    ({"preset": "ms", "matching": "rkd"}, "matching=rkd does nothing with teacher=none; leave it out, or choose preset=ms+obd-sd"),
    ({"matching": "rdk"}, "matching=rdk is not known; did you mean rkd?"),
    ({"matching": "rkd(angles=2)"}, "matching=rkd(angles=2): rkd has no setting 'angles'; did you mean angle?"),
]
test_what_does_nothing_or_is_not_known_is_refused = refused(IDLE, lambda given: resolve({"data": "x.npz", "preset": "ms+psd", **given}))


@pytest.mark.parametrize(
    ("changes", "called"),
    [
        ({"matching": "rkd"}, "ms+previous-epoch+rkd"),
        ({"matching": "kl"}, "ms+psd"),
        ({"matching": "kl(diagonal=false)"}, "ms+psd"),
        ({"matching": "plg", "temperature": 0.5}, "ms+previous-epoch+plg"),
        ({"targets": "kernel", "temperature": 0.1}, "ms+previous-epoch+kernel"),
    ],
)
def test_a_run_is_called_by_its_matching_and_is_the_same_run_when_read(changes, called):
    options = preset("ms+psd", "x.npz", **changes)
    assert options.preset == called
    config = options.kept()
    assert resolve(config) == resolve(beyond_preset(config)) == options
    del config["matching"]  # as runs of earlier versions are, which had the KL alone
    if options.matching.name == "kl":
        assert resolve(config).replace(matching=options.matching) == options
    assert TrainOptions("x.npz").matching.name == "kl"


def test_a_kernels_omega_is_its_own_unless_asked():
    """Of other targets it is the data's."""
    assert str(preset("ms+obd-sd", "cars196:x", targets="kernel").targets) == "kernel"
    assert str(preset("ms+obd-sd", "cars196:x", targets="global-kernel", omega=0.5).targets) == "global-kernel(omega=0.5)"
    assert str(preset("ms+obd-sd", "cars196:x", targets="mean-mix").targets) == "mean-mix(omega=0.99)"
