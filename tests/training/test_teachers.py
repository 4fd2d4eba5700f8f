"""Who teaches: any teacher with any targets, the features that training starts from, a model on disk."""

import pytest
import torch
from torch.nn.functional import normalize

from obdsd.data import open_data
from obdsd.errors import InputError
from obdsd.models import Embedder
from obdsd.training import train
from obdsd.training.checkpoints import read_state
from tests.training.reading import few_steps, trainer_of, weights, with_own_parts

TEACHERS = ["none", "previous-epoch", "ema(decay=0.9)", "memory", "features"]
TARGETS = ["pairwise(scale=0.7)", "batch-diffusion(omega=0.3)", "batch-diffusion(omega=0.3, form=softmax)", "balanced(pairwise)"]
TARGETS += ["mean-mix(omega=0.3)", "uniform-mix(omega=0.3)", "balanced(batch-diffusion(omega=0.3))"]
STRONG = {"ramp": "constant", "weight": 10.0}


@pytest.mark.parametrize("teacher", TEACHERS)
def test_any_teacher_with_any_targets(options, teacher):
    """At the sixth step the student has moved away from its teacher, and items come again that a memory knows."""
    for targets in TARGETS:
        changes = {} if teacher == "none" else {**STRONG, "targets": targets}
        name = "ms" if teacher == "none" else "ms+psd"
        _, parts = few_steps(options(name, teacher=teacher, lr=0.05, **changes), count=6)
        assert (parts[-1]["distillation"] > 0) == (teacher != "none"), targets


def test_a_running_average_follows_at_the_pace_that_was_asked_for(options):
    for decay in (0.5, 0.9):
        chosen = options("ms+psd", teacher=f"ema(decay={decay})", lr=0.05)
        start = trainer_of(chosen).model.head[0].weight.detach().clone()
        trainer, _ = few_steps(chosen, count=1)
        expected = decay * start + (1 - decay) * trainer.model.head[0].weight
        torch.testing.assert_close(trainer.system.teacher.model.head[0].weight, expected)


@with_own_parts
def test_a_teachers_own_proxies_and_labels_reach_the_targets_from_every_chunk(options):
    own = {"teacher": "knowing", "targets": "own-proxies(omega=0.5)", **STRONG}
    (whole, parts), (chunked, same), (again, _) = (few_steps(options("ms+psd", micro_batch=size, **own)) for size in (0, 6, 16))
    assert parts[-1]["distillation"] > 0
    assert [each["distillation"] for each in same] == pytest.approx([each["distillation"] for each in parts], rel=1e-4)
    for one, other, equal in zip(*(each.model.parameters() for each in (whole, chunked, again)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
        assert torch.equal(one, equal)  # one chunk


def test_a_miner_of_the_library_chooses_the_triplets(options):
    (mined, _), (plain, _) = (
        few_steps(options("ms", loss=f"pml(TripletMarginLoss{miner})"), count=1) for miner in (", miner=BatchHardMiner", "")
    )
    assert not torch.equal(mined.model.head[0].weight, plain.model.head[0].weight)


def test_a_frozen_teacher_from_a_run(options, finished):
    first = finished("ms")
    chosen = options("ms+psd", teacher=f'frozen("{first.folder}")', ramp="constant", keep_checkpoints=True)
    record = train(chosen, show=False)
    assert record.metrics[0]["loss"]["distillation"] > 0
    state = read_state(record.folder / "checkpoints" / "last.pt")["system"]
    assert torch.equal(state["teacher.model.head.0.weight"], weights(first.folder)["head.0.weight"])


def test_the_features_that_training_starts_from_teach(options, features):
    """The first epoch's first batch: the distillation is the KL from the features' own cosines."""
    trainer = trainer_of(options("ms+psd-constant", teacher="features", weight=3.0))
    part = open_data(features)["train"]
    inputs, labels, indices = next(trainer.batches.epoch(0))
    z, rows = trainer.model(inputs).detach(), normalize(torch.from_numpy(part.matrix())[indices], dim=1)
    p, q = (rows @ rows.T).softmax(dim=1), (z @ z.T).log_softmax(dim=1)
    by_hand = 3.0 * (p * (p.log() - q)).sum(dim=1).mean()
    torch.testing.assert_close(trainer.step(inputs, labels, indices)["distillation"], by_hand, rtol=1e-4, atol=0)


def test_features_that_nobody_trained_do_not_teach(image_options):
    with pytest.raises(InputError, match=r"teacher=features: the features know nothing before the training; use pretrained weights"):
        trainer_of(image_options("ms+psd", teacher="features"))


def test_a_teacher_that_takes_other_inputs(options, tmp_path):
    Embedder("features", features=19, dim=6).save(tmp_path / "other")
    with pytest.raises(InputError, match=r"teacher=frozen\(.*other.*\): does not take the inputs of backbone=features; give a model"):
        trainer_of(options("ms+psd", teacher=f'frozen("{tmp_path / "other"}")'))


def test_what_the_distillation_was_is_read_once_an_epoch(finished):
    first, *later = finished("ms+psd", weight=5.0, epochs=3).metrics
    assert "distillation" not in first  # the ramp begins at 0
    for line in later:
        reading = line["distillation"]
        assert 0.9 < reading["entropy"] < 1
        assert 0 < reading["same_class"] < 1
        assert 1e-4 < reading["gradient_share"] < 1  # at the first step the student is its teacher: no gradient
    assert not any("distillation" in line or line["loss"]["weight"] for line in finished("ms").metrics)
