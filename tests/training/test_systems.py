"""The paper's other systems in a training: born again, S2SD's heads, the global manifold, the proxies' manifold, no labels."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from obdsd.data import open_data
from obdsd.errors import InputError, Terminated
from obdsd.method.targets import BatchDiffusion
from obdsd.method.teachers import TeacherBatch
from obdsd.presets import preset
from obdsd.settings import TrainOptions
from obdsd.training import loop, train
from obdsd.training.assembly import collection_of
from obdsd.training.checkpoints import read_state
from obdsd.training.runs import RunFolder


def built(options):
    return loop.Training(options, collection_of(options), RunFolder(Path(options.out)))


def model_bytes(folder):
    return (Path(folder) / "model" / "model.safetensors").read_bytes()


def lines(folder):
    return [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]


def test_the_first_generation_is_the_plain_training_and_teaches_the_second(options, tmp_path):
    plain = train(options("ms", out=str(tmp_path / "plain")), show=False)
    again = train(options("ms+bar", out=str(tmp_path / "again")), show=False)
    assert model_bytes(tmp_path / "again" / "first") == model_bytes(plain.folder)
    assert model_bytes(again.folder) != model_bytes(plain.folder)
    taught = read_state(again.folder / "checkpoints" / "last.pt")["teacher"]
    for name, weight in plain.model().state_dict().items():
        assert torch.equal(taught[f"model.{name}"], weight)
    first, second = (json.loads((again.folder / part / "result.json").read_text())["seconds"] for part in ("first", "."))
    steps = sum(line["seconds"] for line in lines(again.folder))
    assert second == pytest.approx(first + steps, abs=0.01)  # both generations are paid for
    assert lines(again.folder)[0]["loss"]["distillation"] > 0  # no ramp
    assert again.record["system"]["teacher"] == "FrozenTeacher"
    assert again.record["system"]["targets"] == "PairwiseTargets(scale=1.0)"


@pytest.mark.parametrize("stage", ["first", "second"])
def test_born_again_goes_on_inside_either_generation(options, tmp_path, monkeypatch, stage):
    whole = train(options("ms+bar+obdp", out=str(tmp_path / "whole")), show=False)
    chosen, step, calls = options("ms+bar+obdp", out=str(tmp_path / "broken")), loop.Training.step, []

    def broken(self, *batch):
        calls.append(self)
        if len(calls) == (10 if stage == "first" else 30):  # an epoch is 7 steps, a generation 21
            raise Terminated
        return step(self, *batch)

    monkeypatch.setattr(loop.Training, "step", broken)
    with pytest.raises(Terminated):
        train(chosen, show=False)
    assert (tmp_path / "broken" / "first" / "result.json").exists() == (stage == "second")
    train(dataclasses.replace(chosen, resume=True), show=False)
    assert model_bytes(chosen.out) == model_bytes(whole.folder)
    assert len(calls) <= 42 + 7 + 1  # at most the broken epoch is done again


def test_heads_are_thrown_away_and_teach_the_embedding(options, tmp_path):
    plain = train(options("ms", out=str(tmp_path / "plain")), show=False)
    heads = train(options("ms+s2sd-msd", heads="8,12", out=str(tmp_path / "heads")), show=False)
    assert plain.model().state_dict().keys() == heads.model().state_dict().keys()
    assert all(line["loss"]["distillation"] > 0 for line in lines(heads.folder))
    assert "gradient_share" in lines(heads.folder)[0]["distillation"]
    assert heads.record["system"] == {
        "loss": "MultiSimilarityLoss with MultiSimilarityMiner",
        "teacher": "heads of 8, 12",
        "targets": "PairwiseTargets(scale=1.0)",
        "weight": 50.0,
        "temperature": 1.0,
        "ramp": "constant",
    }


def test_heads_learn_at_the_base_rate_without_decay_and_their_losses_at_their_own(options):
    chosen = options("margin+s2sd-dsd", heads="8", objective_lr=0.25, head_lr=0.5)
    groups = built(chosen).optimizer.param_groups
    assert [(group["lr"], group["weight_decay"]) for group in groups] == [(0.5, 4e-4), (1e-3, 0.0), (0.25, 0.0), (0.25, 0.0)]


def test_the_step_with_heads_is_the_objective_by_hand(options):
    chosen = options("ms+s2sd-msd+obdp", heads="8,12", omega=0.5)
    training = built(chosen)
    inputs, labels, indices = next(training.batches.epoch(0))
    objective = training.system.objective
    with torch.no_grad():
        base, taught = objective.parts(inputs, training.embedder(inputs), labels, 0.0)
    assert objective.distill.targets == BatchDiffusion(0.5)
    found = training.step(inputs, labels, indices)
    assert float(found["base"]) == pytest.approx(float(base), rel=1e-5)
    assert float(found["distillation"]) == pytest.approx(float(taught), rel=1e-5)


def test_chunks_of_a_batch_give_heads_the_same_gradient(options):
    whole, chunked = (built(options("margin+s2sd-msd", heads="8", micro_batch=size)) for size in (0, 3))
    batch = next(whole.batches.epoch(0))
    for training in (whole, chunked):
        training.step(*batch)
    for one, other in zip(whole.embedder.parameters(), chunked.embedder.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    for one, other in zip(whole.system.objective.parameters(), chunked.system.objective.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_the_global_walk_is_over_the_training_set_as_the_teacher_embeds_it(options, monkeypatch):
    training = built(options("ms+global", neighbours=9, omega=0.4))
    targets, fits = training.system.distill.targets, []
    monkeypatch.setattr(targets, "fit", lambda rows: (fits.append(rows), type(targets).fit(targets, rows)))
    training.walk_the_training_set()
    assert not fits  # the ramp begins at 0
    training.progress.epoch = 1
    training.walk_the_training_set()
    part = training.collection["train"]
    by_hand = training.system.teacher.model(torch.from_numpy(part.items.matrix[part.positions]))
    torch.testing.assert_close(fits[0], by_hand)
    _, _, indices = next(training.batches.epoch(1))
    nothing = torch.empty(0)
    said = training._teaching(nothing, indices, nothing)  # needs no forward pass
    assert torch.equal(said.indices, indices)
    training.progress.step = 1
    training.walk_the_training_set()
    assert len(fits) == 1  # once an epoch


def test_a_teacher_that_stands_still_is_walked_once(options, monkeypatch):
    chosen = options("ms+bar", targets="global-diffusion", neighbours=9)
    fits, fit = [], loop.GlobalDiffusion.fit
    monkeypatch.setattr(loop.GlobalDiffusion, "fit", lambda self, rows: (fits.append(1), fit(self, rows)))
    train(chosen, show=False)
    assert len(fits) == 1
    moving = options("ms+global", neighbours=9, out=chosen.out + "-moving")
    train(moving, show=False)
    assert len(fits) == 1 + 2  # epochs 1 and 2 of 3


def test_a_walk_that_cannot_be_taken_is_refused_before_the_first_step(options):
    with pytest.raises(InputError, match=r"neighbours=500 must be less than the .* items that train; ask for fewer"):
        built(options("ms+global", neighbours=500))
    with pytest.raises(InputError, match=r"omega=0\.99999 is too near 1"):
        built(options("proxy-anchor+proxy-diffusion", omega=0.99999))
    built(options("ms+psd", omega=0.99999))  # no walk, nothing to refuse


def test_the_proxies_of_the_batch_join_its_graph(options):
    training = built(options("proxy-anchor+proxy-diffusion", omega=0.4))
    inputs, labels, indices = next(training.batches.epoch(1))
    said = training._teaching(inputs, indices, labels)
    expected = torch.nn.functional.normalize(training.system.objective.loss.proxies[labels.unique()], dim=1)
    torch.testing.assert_close(said.proxies, expected.detach())
    alone = BatchDiffusion(0.4)(TeacherBatch(said.embeddings))
    assert not torch.allclose(training.system.distill.targets(said), alone, atol=1e-4)


WRONG = [
    ({"targets": "global-diffusion", "teacher": "memory"}, r"teacher=memory has no model that could embed the whole training set"),
    ({"targets": "proxy-diffusion"}, r"loss=multi-similarity has no proxies to walk over; use proxy-anchor or proxy-nca or soft-triple"),
    ({"targets": "proxy-diffusion", "loss": "proxy-nca", "teacher": "features"}, r"teacher=features does not live among the proxies"),
    ({"supervision": "none", "label_noise": 0.2}, r"label_noise=0.2 has no labels to spoil without supervision"),
    ({"teacher": "heads", "compile": True}, r"compile=True does not reach the features that heads read; leave it out"),
    ({"heads": ""}, r"heads= must hold a width; try 2048"),
    ({"heads": "12,x"}, r"heads=12,x must be whole numbers with commas, as 512,1024"),
    ({"neighbours": 0}, r"neighbours=0 must be 1 or more"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_what_does_not_go_together_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        TrainOptions("rows.npz", **changes)


def test_rows_have_no_second_view(options):
    with pytest.raises(InputError, match=r"supervision=none needs two views of an image, and rows of an embeddings file have one"):
        train(options("nt-xent"), show=False)


def glyph_training(name, out, **changes):
    quick = {
        "epochs": 2,
        "epoch_batches": 4,
        "batch_size": 32,
        "evaluate_every": 0,
        "device": "cpu",
        "val_fold": "0/20",
        "score": "validation",
    }
    return preset(name, "glyphs", **{**quick, "out": str(out), **changes})


def test_without_supervision_the_labels_change_nothing(tmp_path, monkeypatch):
    """The training classes' labels are shuffled: the weights stay the same to the last bit."""
    first = train(glyph_training("nt-xent+obd-sd", tmp_path / "first"), show=False)
    assert lines(first.folder)[1]["loss"]["distillation"] > 0
    honest = loop.assembly.collection_of

    def shuffled(options):
        collection = honest(options)
        part = collection["train"]
        other = part.replace(labels=np.random.default_rng(0).permutation(part.labels))
        return dataclasses.replace(collection, parts={**collection.parts, "train": other})

    monkeypatch.setattr(loop.assembly, "collection_of", shuffled)
    second = train(glyph_training("nt-xent+obd-sd", tmp_path / "second"), show=False)
    assert model_bytes(first.folder) == model_bytes(second.folder)
    by_labels = [train(glyph_training("ms", tmp_path / name), show=False) for name in ("third",)]
    assert model_bytes(by_labels[0].folder) != model_bytes(first.folder)


def test_two_views_of_an_image_are_its_only_kin(tmp_path):
    training = built(glyph_training("nt-xent", tmp_path / "run"))
    images, labels, indices = next(training.batches.epoch(0))
    assert torch.equal(labels, indices)
    assert torch.equal(indices[::2], indices[1::2])
    assert len(indices.unique()) == 16
    assert all(not torch.equal(one, other) for one, other in zip(images[::2], images[1::2], strict=True))  # views differ
    assert len(training.batches) == 4


def test_fewer_batches_an_epoch(options):
    chosen = options("ms", epoch_batches=2, epochs=1)
    assert [len(built(chosen).batches), len(built(options("ms", epoch_batches=99)).batches)] == [2, 7]
    assert len(list(built(chosen).batches.epoch(0))) == 2
    assert open_data(chosen.data)["train"].labels.size == 120
