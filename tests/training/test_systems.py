"""The paper's other systems in a training: born again, S2SD's heads, the global manifold, the proxies' manifold, no labels."""

import json
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch

from obdsd.errors import Terminated
from obdsd.method.global_diffusion import GlobalDiffusion
from obdsd.method.targets import BatchDiffusion
from obdsd.method.teachers import TeacherBatch
from obdsd.training import Trainer, build, train
from obdsd.training.checkpoints import read_state
from tests.training.reading import assert_same_end, model_bytes, trainer_of

HEADS = {"system": "s2sd(widths=[8, 12])"}
GLOBAL = "global-diffusion(omega=0.4, neighbours=9)"


def test_the_first_generation_is_the_plain_training_and_teaches_the_second(finished):
    plain, again = finished("ms"), finished("ms+bar", keep_checkpoints=True)
    assert model_bytes(again.folder / "first") == model_bytes(plain.folder)
    assert model_bytes(again.folder) != model_bytes(plain.folder)
    state = read_state(again.folder / "checkpoints" / "last.pt")["system"]
    for name, weight in plain.model().state_dict().items():
        assert torch.equal(state[f"teacher.model.{name}"], weight)
    first, second = (json.loads((again.folder / part / "result.json").read_text())["seconds"] for part in ("first", "."))
    assert second == pytest.approx(first + sum(line["seconds"] for line in again.metrics), abs=0.01)  # both generations are paid for
    assert again.metrics[0]["loss"]["distillation"] > 0  # no ramp
    assert (str(again.options.teacher), str(again.options.targets)) == ("born-again", "pairwise")


@pytest.mark.parametrize(("step", "generation"), [(6, "first"), (14, "second")])  # an epoch is 4 steps, a generation 8
def test_born_again_goes_on_inside_either_generation(broken_off, finished, monkeypatch, capsys, step, generation):
    whole, broken = finished("ms+bar+obdp"), broken_off(Trainer, "step", step, Terminated, "ms+bar+obdp", show=True)
    out, left, take = Path(broken.out), count(), Trainer.step
    assert f"first, the plain loss is trained in {out / 'first'}; its model will teach" in capsys.readouterr().err
    assert (out / "first" / "result.json").exists() == (generation == "second")
    monkeypatch.setattr(Trainer, "step", lambda self, *batch: (next(left), take(self, *batch))[1])
    train(broken, show=False)
    assert_same_end(whole.folder, out)
    assert_same_end(whole.folder / "first", out / "first")
    assert next(left) <= 16 - step + 4 + 1  # at most the broken epoch is done again


def test_heads_are_thrown_away_and_teach_the_embedding(finished):
    plain, heads = finished("ms"), finished("ms+s2sd-msd", **HEADS)
    assert plain.model().state_dict().keys() == heads.model().state_dict().keys()
    assert all(line["loss"]["distillation"] > 0 for line in heads.metrics)
    assert heads.metrics[0]["loss"]["weight"] == 50.0
    assert "gradient_share" in heads.metrics[0]["distillation"]
    system = json.loads((heads.folder / "result.json").read_text())["system"]
    parts = {"loss": "multi-similarity", "teacher": "none", "targets": "pairwise", "matching": "kl"}
    parts["system"] = "s2sd(widths=[8, 12])"
    assert system == {**parts, "weight": 50.0, "temperature": 1.0, "ramp": "constant"}


def test_heads_learn_at_the_base_rate_without_decay_and_their_losses_at_their_own(options):
    groups = trainer_of(options("margin+s2sd-dsd", system="s2sd(widths=[8])", objective_lr=0.25, head_lr=0.5)).optimizer.param_groups
    assert [(group["lr"], group["weight_decay"]) for group in groups] == [(0.5, 4e-4), (1e-3, 0.0), (0.25, 0.0), (0.25, 0.0)]


def test_the_step_with_heads_is_the_objective_by_hand(options):
    trainer = trainer_of(options("ms+s2sd-msd+obdp", **HEADS, omega=0.5))
    inputs, labels, indices = next(trainer.batches.epoch(0))
    objective = trainer.system.objective
    with torch.no_grad():
        base, taught = objective.parts(inputs, trainer.model(inputs), labels, 0.0)
    assert objective.distill.targets == BatchDiffusion(0.5)
    parts = trainer.step(inputs, labels, indices)
    assert float(parts["base"]) == pytest.approx(float(base), rel=1e-5)
    assert float(parts["distillation"]) == pytest.approx(float(taught), rel=1e-5)


def test_chunks_of_a_batch_give_heads_the_same_gradient(options):
    whole, chunked = (trainer_of(options("margin+s2sd-msd", system="s2sd(widths=[8])", micro_batch=size)) for size in (0, 3))
    batch = next(whole.batches.epoch(0))
    for trainer in (whole, chunked):
        trainer.step(*batch)
    for one, other in zip(whole.system.parameters(), chunked.system.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_the_global_walk_is_over_the_training_set_as_the_teacher_embeds_it(options, monkeypatch):
    trainer = trainer_of(options("ms+global", targets=GLOBAL))
    targets, fits = trainer.system.distill.targets, []
    monkeypatch.setattr(targets, "fit", lambda *rows: (fits.append(rows[0]), type(targets).fit(targets, *rows)))
    trainer.begin_epoch()
    assert not fits  # the ramp begins at 0
    trainer.place.epoch = 1
    trainer.begin_epoch()
    by_hand = trainer.system.teacher.model(torch.from_numpy(trainer.collection["train"].matrix()))
    torch.testing.assert_close(fits[0], by_hand)
    _, labels, indices = next(trainer.batches.epoch(1))
    batch = trainer.teach(torch.empty(0), indices, labels)  # needs no forward pass
    assert torch.equal(batch.indices, indices)
    trainer.place.step = 1
    trainer.begin_epoch()
    assert len(fits) == 1  # once an epoch


def test_a_teacher_that_stands_still_is_walked_once(options, tmp_path, monkeypatch):
    fits, fit = [], GlobalDiffusion.fit
    monkeypatch.setattr(GlobalDiffusion, "fit", lambda self, *rows: (fits.append(1), fit(self, *rows)))
    train(options("ms+bar", targets=GLOBAL), show=False)
    assert len(fits) == 1
    train(options("ms+global", targets=GLOBAL, epochs=3, out=str(tmp_path / "moving")), show=False)
    assert len(fits) == 1 + 2  # epochs 1 and 2 of 3


def test_the_proxies_of_the_batch_join_its_graph(options):
    trainer = trainer_of(options("proxy-anchor+proxy-diffusion", omega=0.4))
    trainer.place.epoch = 1
    inputs, labels, indices = next(trainer.batches.epoch(1))
    batch = trainer.teach(inputs, indices, labels)
    expected = torch.nn.functional.normalize(trainer.system.objective.loss.proxies[labels.unique()], dim=1)
    torch.testing.assert_close(batch.proxies, expected.detach())
    alone = BatchDiffusion(0.4)(TeacherBatch(batch.embeddings))
    assert not torch.allclose(trainer.system.distill.targets(batch), alone, atol=1e-4)


def test_without_supervision_the_labels_change_nothing(image_options, tmp_path, monkeypatch):
    """The training classes' labels are shuffled: the weights stay the same to the last bit."""
    first = train(image_options("nt-xent+obd-sd"), show=False)
    assert first.metrics[1]["loss"]["distillation"] > 0
    collection = build.collection_of(first.options)
    part = collection["train"]
    other = part.replace(labels=np.random.default_rng(0).permutation(part.labels))
    shuffled = replace(collection, parts={**collection.parts, "train": other})
    by_labels = train(image_options("ms", out=str(tmp_path / "honest")), show=False)
    monkeypatch.setattr(build, "collection_of", lambda *_: shuffled)
    second = train(image_options("nt-xent+obd-sd", out=str(tmp_path / "second")), show=False)
    assert model_bytes(first.folder) == model_bytes(second.folder)
    by_wrong_labels = train(image_options("ms", out=str(tmp_path / "shuffled")), show=False)
    assert model_bytes(by_labels.folder) != model_bytes(by_wrong_labels.folder)


def test_two_views_of_an_image_are_its_only_kin(image_options):
    trainer = trainer_of(image_options("nt-xent", epoch_batches=2))
    images, labels, indices = next(trainer.batches.epoch(0))
    assert torch.equal(labels, indices)
    assert torch.equal(indices[::2], indices[1::2])
    assert len(indices.unique()) == 4
    assert all(not torch.equal(one, other) for one, other in zip(images[::2], images[1::2], strict=True))  # views differ
    assert len(trainer.batches) == 2
