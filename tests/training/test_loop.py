"""Whole trainings, in seconds: against a plain loop written here, interrupted and resumed, and with everything that options offer."""

import importlib.util
import itertools
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from sklearn.decomposition import PCA

from obdsd import BatchDiffusion, PreviousEpochTeacher, SelfDistillation, objectives
from obdsd.data import open_data
from obdsd.data.batches import ClassBatches
from obdsd.data.transforms import evaluation_transform
from obdsd.errors import InputError
from obdsd.evaluation import evaluate
from obdsd.evaluation.embedding import embed
from obdsd.evaluation.geometry import density, spectral_decay
from obdsd.models import Embedder
from obdsd.presets import preset
from obdsd.training import loop, train
from obdsd.training.checkpoints import read_state, write_state
from obdsd.training.runs import RunFolder


def weights(folder) -> dict[str, torch.Tensor]:
    return Embedder.load(Path(folder) / "model").state_dict()


def assert_equal(first, second):
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name


def lines(folder, *without):
    """metrics.jsonl without what a clock says."""
    return [
        {name: value for name, value in line.items() if name not in ("seconds", "items_per_second", *without)}
        for line in RunFolder(Path(folder)).metrics()
    ]


def test_a_training_is_the_papers_algorithm(options, features):
    """The same weights, bit for bit, as the ten lines of the README with the same batches."""
    chosen = options(weight=40.0, omega=0.7, epochs=4, weight_decay=0.01)
    train(chosen, show=False)

    part = open_data(features)["train"]
    model = Embedder("features", features=20, dim=6, head="two-layer", seed=0)
    teacher = PreviousEpochTeacher(model)
    distill = SelfDistillation(40.0, targets=BatchDiffusion(0.7))
    metric_loss = objectives.multi_similarity()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=0.01, fused=True)
    batches = ClassBatches(part.labels, 16, 2, seed=0)
    for epoch in range(4):
        for batch in batches.epoch(epoch):
            rows, labels = zip(*(part[draw.item][:2] for draw in batch), strict=True)
            z = model(torch.stack(rows))
            loss = metric_loss(z, torch.tensor(labels)) + distill(z, teacher(torch.stack(rows)), progress=epoch / 4)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        teacher.update(model)
    assert_equal(weights(chosen.out), model.state_dict())


def test_what_a_run_leaves(options, features):
    chosen = options(weight=100.0, epochs=2, evaluate_every=1, test_every=2, val_fraction=0.3, reference=True, label_noise=0.2)
    result = train(chosen, show=False)
    folder = Path(chosen.out)
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert (config["data"], config["label_noise"], config["seed"], config["omega"]) == (features, 0.2, 0, 0.3)
    record = json.loads((folder / "result.json").read_text())
    test = open_data(features)["test"]
    rows = embed(Embedder.load(folder / "model"), test)
    assert record["scores"] == evaluate(rows, np.asarray(test.class_names)[test.labels]).as_dict() == result.scores.as_dict()
    assert (record["epoch"], record["chosen_by"]) == (1, "last epoch")
    per_class = json.loads((folder / "per_class.json").read_text())
    assert np.average(per_class["recall@1"], weights=per_class["queries"]) == pytest.approx(record["scores"]["recall@1"], abs=1e-5)
    first, second = lines(folder)
    assert "test" not in first
    assert second["test"] == {**record["scores"], "nmi": None, "ami": None}
    assert second["loss"]["weight"] == 50.0  # half of the way to 100
    assert first["loss"]["distillation"] == 0
    raw = test.items.matrix[test.positions]
    frozen = evaluate(raw, test.labels, clusters=False)
    assert record["reference"]["frozen features"] == pytest.approx(frozen.as_dict())
    assert set(record["reference"]) == {"frozen features", "their PCA"}
    assert result.model().dim == 6


def test_the_reference_is_the_model_before_any_training(tmp_path):
    start = Embedder("tiny-conv", seed=5)
    torch.save(start.backbone.state_dict(), tmp_path / "start.pt")
    small = {"weights": str(tmp_path / "start.pt"), "epochs": 1, "crop": 1.0, "evaluate_every": 0, "lr": 0.1, "device": "cpu"}
    record = train(preset("ms", "glyphs", **small, out=str(tmp_path / "run")), show=False).record
    test = open_data("glyphs")["test"]
    plain = Embedder("tiny-conv", head="none", weights=str(tmp_path / "start.pt")).eval()
    rows = embed(plain, test.replace(transform=evaluation_transform(plain.preprocessing)))
    assert record["reference"]["frozen features"]["recall@1"] == pytest.approx(evaluate(rows, test.labels, clusters=False)["recall@1"])


def test_geometry_is_that_of_the_training_set(options, features):
    chosen = options(epochs=1)
    record = train(chosen, show=False).record
    part = open_data(features)["train"]
    rows = embed(Embedder.load(Path(chosen.out) / "model"), part)
    assert record["train"]["density"] == pytest.approx(density(rows, part.labels).ratio)
    assert record["train"]["spectral-decay"] == pytest.approx(spectral_decay(rows))


def test_the_reference_is_a_pca_of_the_training_features(options, features):
    record = train(options(epochs=1, reference=True), show=False).record
    collection = open_data(features)

    def unit(part):
        rows = part.items.matrix[part.positions]
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    pca = PCA(6, svd_solver="full").fit(unit(collection["train"]))
    projected = pca.transform(unit(collection["test"]))
    expected = evaluate(projected, collection["test"].labels, clusters=False)
    assert record["reference"]["their PCA"]["map@r"] == pytest.approx(expected["map@r"], abs=1e-6)


@pytest.mark.parametrize("name", ["ms+obd-sd", "margin+obd-sd", "r-margin", "proxy-anchor+psd"])
def test_the_same_seed_gives_the_same_run_and_another_another(options, tmp_path, name):
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        train(options(name, seed=seed, out=str(tmp_path / folder)), show=False)
    assert lines(tmp_path / "a") == lines(tmp_path / "b")
    assert_equal(weights(tmp_path / "a"), weights(tmp_path / "b"))
    assert not torch.equal(weights(tmp_path / "a")["head.2.weight"], weights(tmp_path / "c")["head.2.weight"])


@pytest.mark.parametrize(
    "changes",
    [{}, {"teacher": "ema"}, {"teacher": "memory"}, {"head": "linear", "head_init": "projection"}],
    ids=str,
)
def test_an_interrupted_run_goes_on_to_the_same_end(options, tmp_path, monkeypatch, changes):
    settings = {**changes, "epochs": 5, "val_fraction": 0.3, "evaluate_every": 1, "select": "best", "optimizer": "adamw"}
    whole = options("margin+obd-sd", **settings, out=str(tmp_path / "whole"))
    train(whole, show=False)
    broken = options("margin+obd-sd", **settings, out=str(tmp_path / "broken"))
    take = loop.Training._run_epoch

    def interrupted(self, display):
        if self.progress.epoch == 3:
            raise KeyboardInterrupt
        return take(self, display)

    monkeypatch.setattr(loop.Training, "_run_epoch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(broken, show=False)
    monkeypatch.undo()
    with open(Path(broken.out) / "metrics.jsonl", "a") as file:  # an epoch whose checkpoint was not written in time
        file.write(json.dumps({"epoch": 3}) + "\n")
    result = train(options("margin+obd-sd", **settings, out=broken.out, resume=True), show=False)
    assert lines(whole.out) == lines(broken.out)
    assert_equal(weights(whole.out), weights(broken.out))
    before = json.loads((Path(whole.out) / "result.json").read_text())
    assert {**result.record, "seconds": 0} == {**before, "seconds": 0}


TEACHERS = ["none", "previous-epoch", "ema", "memory", "features"]
TARGETS = [{"targets": "pairwise", "scale": 0.7}, {"targets": "batch-diffusion"}, {"targets": "batch-diffusion", "form": "softmax"}]
TARGETS += [{"targets": "mean-mix"}, {"targets": "uniform-mix"}, {"targets": "pairwise", "balanced": True}]


@pytest.mark.parametrize(("teacher", "targets"), [*itertools.product(TEACHERS, TARGETS)])
def test_any_teacher_with_any_targets(options, teacher, targets):
    chosen = options(teacher=teacher, **targets, epochs=2, ramp="constant", weight=10.0)
    train(chosen, show=False)
    taught = lines(chosen.out)[-1]["loss"]["distillation"]
    assert (taught > 0) == (teacher != "none")


def test_balanced_targets_are_an_option_of_a_training(options, tmp_path):
    plain, balanced = (train(options(name, out=str(tmp_path / name)), show=False).record for name in ("ms+psd", "ms+psd-balanced"))
    assert balanced["system"]["targets"] == plain["system"]["targets"] + ", balanced"
    assert balanced["train"] != plain["train"]


@pytest.mark.parametrize("loss", ["multi-similarity", "margin", "r-margin", "proxy-anchor", "pml:ContrastiveLoss", "pml:ProxyNCALoss"])
def test_any_loss(options, features, loss):
    chosen = options(loss=loss, epochs=8, teacher="none", head="linear", lr=1e-2)
    part = open_data(features)["train"]
    before = density(embed(Embedder("features", features=20, dim=6, seed=0), part), part.labels)
    assert train(chosen, show=False).record["train"]["density"] < 0.95 * before.ratio  # classes draw together


def test_a_miner_of_the_library(options):
    train(options(loss="pml:TripletMarginLoss", miner="BatchHardMiner", epochs=1), show=False)


def test_a_frozen_teacher_from_a_run(options, tmp_path):
    first = train(options("ms", out=str(tmp_path / "first")), show=False)
    chosen = options(teacher="frozen", teacher_model=str(first.folder), out=str(tmp_path / "second"), ramp="constant", epochs=2)
    train(chosen, show=False)
    assert lines(chosen.out)[0]["loss"]["distillation"] > 0
    teacher = read_state(tmp_path / "second" / "checkpoints" / "last.pt")["teacher"]
    assert torch.equal(teacher["model.head.0.weight"], weights(first.folder)["head.0.weight"])


def test_the_features_that_training_starts_from_teach(options, features):
    """The first epoch's first batch: the distillation is the KL from the features' own cosines."""
    chosen = options("ms+psd-constant", teacher="features", weight=3.0, epochs=2)
    part = open_data(features)["train"]
    training = loop.Training(chosen, loop.assembly.collection_of(chosen), RunFolder(Path(chosen.out)))
    inputs, labels, indices = next(training.batches.epoch(0))
    rows = torch.from_numpy(part.items.matrix[part.positions][indices])
    z, features_z = training.embedder(inputs).detach(), torch.nn.functional.normalize(rows, dim=1)
    p, q = (features_z @ features_z.T).softmax(dim=1), (z @ z.T).log_softmax(dim=1)
    by_hand = 3.0 * (p * (p.log() - q)).sum(dim=1).mean()
    assert torch.isclose(training.step(inputs, labels, indices)["distillation"], by_hand, rtol=1e-4)
    train(chosen, show=False)  # and it runs to the end


def test_features_that_nobody_trained_do_not_teach(tmp_path):
    with pytest.raises(InputError, match=r"teacher=features has nothing to teach with weights=none; use pretrained weights"):
        train(preset("ms+psd", "glyphs", teacher="features", epochs=1, out=str(tmp_path / "run")), show=False)


def test_what_the_distillation_was_is_read_once_an_epoch(options):
    taught, alone = options("ms+psd", weight=5.0), options("ms", out=str(Path(options().out).with_name("alone")))
    train(taught, show=False)
    first, *later = lines(taught.out)
    assert "distillation" not in first  # the ramp begins at 0
    for line in later:
        reading = line["distillation"]
        assert 0.9 < reading["entropy"] < 1
        assert 0 < reading["same_class"] < 1
        assert 1e-4 < reading["gradient_share"] < 1  # at the first step the student is its teacher: no gradient
    train(alone, show=False)
    assert not any("distillation" in line for line in lines(alone.out))


def test_the_best_epoch_is_chosen_by_held_out_classes_and_training_stops_without_improvement(options):
    chosen = options("ms", epochs=60, val_fraction=0.3, evaluate_every=1, patience=4, select="best", lr=0.02)
    result = train(chosen, show=False)
    recalls = [line["validation"]["recall@1"] for line in lines(chosen.out)]
    assert result.chosen_by == "best on held-out classes"
    assert result.epoch == int(np.argmax(recalls))
    assert len(recalls) == result.epoch + 1 + 4 < 60


def test_the_head_alone_moves_first(options, tmp_path):
    settings = {"backbone": "tiny-conv", "head": "linear", "batch_size": 112, "crop": 1.0}
    start = Embedder("tiny-conv", dim=6, seed=0)
    chosen = preset(
        "ms", "glyphs", **settings, epochs=1, head_only_epochs=1, dim=6, out=str(tmp_path / "run"), evaluate_every=0, device="cpu"
    )
    train(chosen, show=False)
    moved = weights(chosen.out)
    parameters = dict(start.named_parameters())
    assert all(torch.equal(moved[name], value) for name, value in parameters.items() if name.startswith("backbone"))
    assert not torch.equal(moved["head.weight"], parameters["head.weight"])
    assert lines(chosen.out)[0]["loss"]["base"] > 0


def test_micro_batches_train_alike(options, tmp_path):
    for folder, micro_batch in (("whole", 0), ("chunks", 6)):
        train(options(epochs=2, micro_batch=micro_batch, out=str(tmp_path / folder), optimizer="sgd", lr=0.01), show=False)
    for first, second in zip(*(weights(tmp_path / folder).values() for folder in ("whole", "chunks")), strict=True):
        torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-6)


def test_micro_batches_in_mixed_precision(options, tmp_path):
    """The rows of both passes are those of bf16, and the engine's wrapper does not stand in the way."""
    for folder, changes in (("whole", {}), ("chunks", {"micro_batch": 6}), ("full", {"precision": "32"})):
        train(options(**{"epochs": 2, "precision": "bf16", "out": str(tmp_path / folder), **changes}), show=False)
    whole, chunks, full = (lines(tmp_path / folder)[-1]["loss"]["base"] for folder in ("whole", "chunks", "full"))
    assert chunks == pytest.approx(whole, rel=1e-2)
    assert whole != full  # bf16 is not ignored


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": "sgd", "clip": 0.1},
        {"optimizer": "adamw", "schedule": "cosine", "warmup_epochs": 1},
        {"precision": "bf16"},
        {"schedule": "steps", "lr_steps": "1", "head_lr": 0.01},
        {"replacement": True, "per_class": 4},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_every_way_of_training_learns(options, changes):
    chosen = options(**{"epochs": 6, "weight": 1.0, **changes})
    train(chosen, show=False)
    first, *_, last = lines(chosen.out)
    assert last["loss"]["base"] < first["loss"]["base"]


def test_learning_rates_of_head_and_objective(options):
    chosen = options("margin", head_lr=0.5, objective_lr=0.25, epochs=1)
    groups = loop.Training(chosen, loop.assembly.collection_of(chosen), RunFolder(Path(chosen.out))).optimizer.param_groups
    assert [(group["lr"], group["weight_decay"]) for group in groups] == [(0.5, 4e-4), (0.25, 0.0)]


def test_clipping_bounds_the_step(options, tmp_path):
    start = Embedder("features", features=20, dim=6, head="two-layer", seed=0).state_dict()
    for folder, clip in (("free", 0.0), ("clipped", 1e-3)):
        train(
            options("ms", epochs=1, optimizer="sgd", momentum=0.0, lr=1.0, weight_decay=0.0, clip=clip, out=str(tmp_path / folder)),
            show=False,
        )
    moved = {f: sum((weights(tmp_path / f)[n] - start[n]).square().sum() for n in start) ** 0.5 for f in ("free", "clipped")}
    steps = 120 // 16
    assert moved["clipped"] <= 1e-3 * steps * 1.001 < moved["free"]


class Broken(torch.nn.Module):
    """A loss that is NaN at its third call."""

    calls = 0

    def forward(self, z, labels, indices_tuple=None):
        self.calls += 1
        return z.sum() * (float("nan") if self.calls == 3 else 1.0)


def test_a_loss_that_is_not_finite_stops_the_run_before_the_update(options, monkeypatch):
    chosen = options(epochs=2)
    monkeypatch.setattr(loop.systems, "objective_of", lambda *_: objectives.from_pml(Broken()))
    with pytest.raises(
        InputError, match=r"epoch 0, step 2: the loss is not finite \(base nan, distillation 0\); stopped before the update"
    ) as caught:
        train(chosen, show=False)
    assert "\n" not in str(caught.value)
    failure = json.loads((Path(chosen.out) / "failure.json").read_text())
    batch = list(ClassBatches(open_data(chosen.data)["train"].labels, 16, 2, seed=0).epoch(0))[2]
    assert failure["indices"] == [draw.item for draw in batch]
    assert not (Path(chosen.out) / "result.json").exists()


def test_a_diverging_model_is_named_with_its_step(options):
    with pytest.raises(InputError, match=r"epoch \d+, step \d+: .*(NaN or infinite|not finite)"):
        train(options("ms", lr=1e25, epochs=20, optimizer="sgd"), show=False)


def begun(options):
    """A run with all epochs done but no result yet."""
    chosen = options()
    train(chosen, show=False)
    (Path(chosen.out) / "result.json").unlink()
    return chosen


RESUME = [
    ({"epochs": 4}, "epochs=4 differs from 3 that the run in .* began with; resume it as it was"),
    ({"weight": 7.0}, "weight=7.0 differs from 1.0"),
]


@pytest.mark.parametrize(("changes", "message"), RESUME)
def test_another_run_is_not_resumed(options, changes, message):
    begun(options)
    with pytest.raises(InputError, match=message):
        train(options(resume=True, **changes), show=False)


def test_only_the_runs_own_leftovers_are_removed(options):
    """A folder may hold other things: `--out .` must not cost anybody a file."""
    chosen = options(epochs=1)
    out = Path(chosen.out)
    (out / "deep").mkdir(parents=True)
    kept = [out / ".notes.1", out / "deep" / ".last.pt.12", out / ".thesis.tex.2"]
    left = [out / ".result.json.123", out / ".metrics.jsonl.7"]
    for file in (*kept, *left):
        file.write_text("")
    train(chosen, show=False)
    assert [file.exists() for file in (*kept, *left)] == [True, True, True, False, False]


def test_other_numbers_of_threads_are_said(options, capsys):
    chosen = begun(options)
    record = Path(chosen.out) / "run.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "threads": 77}))
    train(options(resume=True))
    said = f"the run began with 77 threads, now there are {torch.get_num_threads()}: from here on numbers agree within rounding only"
    assert said in capsys.readouterr().err


def test_a_run_stopped_before_its_first_checkpoint_begins_anew(options):
    chosen = options(epochs=2)
    train(chosen, show=False)
    before = lines(chosen.out)
    folder = Path(chosen.out)
    (folder / "result.json").unlink()
    (folder / "checkpoints" / "last.pt").unlink()
    train(options(epochs=2, resume=True), show=False)
    assert lines(chosen.out) == before


def test_a_folder_in_use_a_finished_run_and_none_at_all(options):
    chosen = options(epochs=1)
    train(replace(chosen, resume=True), show=False)  # none yet: it begins
    before = (Path(chosen.out) / "result.json").read_bytes()
    with pytest.raises(InputError, match="holds a run already; add --resume to go on with it, or choose another folder"):
        train(chosen, show=False)
    with pytest.raises(InputError, match="is finished; nothing is left to resume"):
        train(options(epochs=1, resume=True), show=False)
    assert (Path(chosen.out) / "result.json").read_bytes() == before


def test_options_of_another_version(options):
    chosen = begun(options)
    config = Path(chosen.out) / "config.yaml"
    config.write_text(config.read_text() + "momentous: 3\n")
    with pytest.raises(InputError, match=r"was begun by another version of obdsd \(option momentous\)"):
        train(options(resume=True), show=False)
    config.write_text("[]")
    with pytest.raises(InputError, match=r"config.yaml: must hold named fields"):
        train(options(resume=True), show=False)
    config.write_text("a: [")
    with pytest.raises(InputError, match=r"config.yaml: cannot be read"):
        train(options(resume=True), show=False)


def test_a_record_of_another_version(options):
    chosen = begun(options)
    (Path(chosen.out) / "run.json").write_text('{"format": 99}')
    with pytest.raises(InputError, match="was begun by another version of obdsd; finish it"):
        train(options(resume=True), show=False)


def test_data_that_changed_since(options, features, tmp_path):
    copy = tmp_path / "copy.npz"
    shutil.copy(features, copy)
    chosen = replace(options(), data=str(copy))
    train(chosen, show=False)
    (Path(chosen.out) / "result.json").unlink()
    with np.load(features) as file:
        rows, labels = file["embeddings"].copy(), file["labels"]
    rows[17, 3] += 1e-3
    np.savez(copy, embeddings=rows, labels=labels)
    with pytest.raises(InputError, match=r"data=.*copy.npz changed since the run in .* began; restore it, or begin a new run"):
        train(replace(chosen, resume=True), show=False)


def test_a_checkpoint_of_another_model_or_damaged(options):
    chosen = begun(options)
    last = Path(chosen.out) / "checkpoints" / "last.pt"
    state = torch.load(last, weights_only=True)  # the checksum at the end disturbs no other reader
    whole = last.read_bytes()
    state["model"] = Embedder("features", features=20, dim=7, head="two-layer").state_dict()
    write_state(last, state)
    with pytest.raises(InputError, match=r"last.pt: is of another model or optimiser \(.*size mismatch.*\); begin a new run"):
        train(options(resume=True), show=False)
    write_state(last, {"model": {}})
    with pytest.raises(InputError, match=r"last.pt: is no checkpoint of a training; begin a new run"):
        train(options(resume=True), show=False)
    (last.parent / "before.pt").unlink(missing_ok=True)
    for cut in (0, 10, len(whole) // 2, len(whole) - 1):
        last.write_bytes(whole[:cut])
        with pytest.raises(InputError, match=r"last.pt: is damaged or no checkpoint"):
            train(options(resume=True), show=False)


def test_a_full_disk_keeps_the_last_epoch(options, monkeypatch):
    chosen = options(epochs=3)
    sync, calls = os.fsync, []

    def full(descriptor):
        calls.append(1)
        if len(calls) == 6:  # run.json, config.yaml, then of each epoch its line and its checkpoint
            raise OSError(28, os.strerror(28))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match=r"last.pt: cannot be written \(No space left on device\)"):
        train(chosen, show=False)
    monkeypatch.undo()
    assert read_state(Path(chosen.out) / "checkpoints" / "before.pt")["epoch"] == 1  # the next
    result = train(options(epochs=3, resume=True), show=False)
    assert result.epoch == 2


BAD = [
    ({"device": "cuda"}, "device='cuda' cannot be used"),
    ({"precision": "16"}, "precision=16 needs a GPU, device=cpu has none; use bf16"),
    ({"loss": "multi-similarty"}, "loss=multi-similarty is not known; did you mean multi-similarity?"),
    ({"loss": "pml:TripletMarginLos"}, "loss=TripletMarginLos is not in pytorch-metric-learning; did you mean TripletMarginLoss?"),
    ({"loss": "pml:CrossBatchMemory"}, "loss=CrossBatchMemory cannot be made without arguments that have no option here"),
    ({"backbone": "tiny-conv"}, "backbone=tiny-conv does not take embeddings; use backbone=features"),
    ({"batch_size": 112}, "batch_size=112 needs 56 classes × 2, but 15 classes have 2 images or more"),
    ({"logger": "tensorboard"}, r"logger=tensorboard is not installed; pip install tensorboard"),
]


@pytest.mark.parametrize(("changes", "message"), BAD, ids=lambda value: str(value)[:40])
def test_bad_input_is_one_line_and_leaves_nothing(options, changes, message):
    if "logger" in changes and importlib.util.find_spec("tensorboard"):
        pytest.skip("tensorboard is installed here")
    chosen = options(**changes)
    with pytest.raises(InputError, match=message) as caught:
        train(chosen, show=False)
    assert "\n" not in str(caught.value)
    assert not Path(chosen.out).exists()


def test_micro_batches_need_batch_statistics_to_stand_still(tmp_path):
    with pytest.raises(InputError, match="micro_batch=8 would change BatchNorm's statistics; use batchnorm=frozen with it"):
        train(preset("ms", "glyphs", micro_batch=8, out=str(tmp_path / "run")), show=False)


def test_nothing_to_train(options):
    with pytest.raises(InputError, match="head=none on backbone=features leaves nothing to train; use head=linear"):
        train(options("ms", head="none", dim=None), show=False)


def test_a_teacher_that_takes_other_inputs(options, tmp_path):
    Embedder("features", features=19, dim=6).save(tmp_path / "other")
    with pytest.raises(InputError, match=r"teacher_model=.*other does not take the inputs of backbone=features"):
        train(options(teacher="frozen", teacher_model=str(tmp_path / "other")), show=False)


def test_held_out_classes_of_ones_own(options, features, tmp_path):
    with np.load(features) as file:
        rows, labels = file["embeddings"], file["labels"]
    split = np.where(labels < 12, "train", np.where(labels < 18, "val", "test"))
    np.savez(tmp_path / "split.npz", embeddings=rows, labels=labels, split=split)
    chosen = replace(options(epochs=2, select="best", evaluate_every=1), data=str(tmp_path / "split.npz"))
    assert train(chosen, show=False).record["validation"]["queries"] == 48
    with pytest.raises(InputError, match=r"has held-out classes of its own \(val\); leave val_fraction and val_fold out"):
        train(replace(chosen, val_fraction=0.2, out=str(tmp_path / "other")), show=False)


def test_what_cannot_be_scored_is_refused_before_the_training(options, features, tmp_path):
    with np.load(features) as file:
        rows, labels = file["embeddings"], file["labels"]
    np.savez(tmp_path / "one.npz", embeddings=rows, labels=labels, split=np.where(labels < 29, "train", "test"))
    with pytest.raises(InputError, match="test needs 2 classes and 2 items in one of them to be scored; split otherwise"):
        train(replace(options(), data=str(tmp_path / "one.npz")), show=False)
    with pytest.raises(InputError, match="ks=1,120: 120 is more than the 119 items of test that can be found; ask for fewer"):
        train(options(ks="1,120"), show=False)


def test_a_loss_of_the_library_that_cannot_be_called_so(options):
    with pytest.raises(
        InputError, match=r"epoch 0, step 0: .* not supported for this loss function; stopped before the update.*failure.json$"
    ):
        train(options(loss="pml:VICRegLoss"), show=False)


def test_weights_that_are_not_finite_are_not_kept(options, monkeypatch):
    chosen = options("ms", epochs=2)
    step = loop.Training.step

    def spoil(self, *batch):
        parts = step(self, *batch)
        if self.progress.epoch == 1:
            self.embedder.head[0].weight.data[0, 0] = float("nan")
            monkeypatch.setattr(loop.Training, "step", lambda *_: parts)
        return parts

    monkeypatch.setattr(loop.Training, "step", spoil)
    with pytest.raises(InputError, match="epoch 1: the model's weights are not finite; the checkpoint before is kept"):
        train(chosen, show=False)
    assert read_state(Path(chosen.out) / "checkpoints" / "last.pt")["epoch"] == 1


def test_a_line_that_was_cut_off_is_written_anew(options):
    chosen = options(epochs=2)
    train(chosen, show=False)
    before = lines(chosen.out)
    (Path(chosen.out) / "result.json").unlink()
    with open(Path(chosen.out) / "metrics.jsonl", "a") as file:
        file.write('{"epoch": 2, "lo')
    train(options(epochs=2, resume=True), show=False)
    assert lines(chosen.out) == before


def test_geometry_goes_by_the_true_labels(options, features):
    record = train(options("ms", epochs=1, label_noise=0.4), show=False).record
    part = open_data(features)["train"]
    rows = embed(Embedder.load(Path(options().out) / "model"), part)
    assert record["train"]["density"] == pytest.approx(density(rows, part.labels).ratio)
    assert record["versions"]["torch"]


def test_an_unwritable_folder(options, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"out=.*file/run: cannot be written \(Not a directory\); choose another place"):
        train(options(out=str(tmp_path / "file" / "run")), show=False)


def test_images_where_embeddings_are_asked_for(tmp_path):
    with pytest.raises(InputError, match="backbone=features does not take images; use a backbone for images"):
        train(preset("ms", "glyphs", backbone="features", out=str(tmp_path / "run")), show=False)
