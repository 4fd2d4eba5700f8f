"""Soft labels in a training: by hand, in chunks, after a stop, and what is refused. The other published losses in chunks, too."""

from pathlib import Path

import pytest
import torch

from obdsd.errors import InputError
from obdsd.options import as_dict
from obdsd.presets import preset
from obdsd.training import Trainer, train
from obdsd.training.checkpoints import read_state
from tests.oracles import losses as literal
from tests.training.reading import assert_same_end, few_steps, trainer_of

PAST = {"teacher": "memory", "ramp": "linear", "weight": 0.8, "epochs": 3}  # PS-KD's idea
MATES = {"teacher": "ema(decay=0.0)", "targets": "class-mates"}  # CS-KD's: the student itself, as it is, teaches its class-mates' rows


def test_a_step_is_the_cross_entropy_to_the_mixed_target(options):
    trainer = trainer_of(options("supcon+soft-labels", weight=0.25))
    trainer.begin(lambda: None)
    trainer.begin_epoch()
    inputs, labels, indices = next(trainer.batches.epoch(0))
    with torch.no_grad():
        z, T = (rows.double() for rows in (trainer.model(inputs), trainer.system.teacher(inputs, indices).embeddings))
    soft = torch.softmax((T @ T.T / 0.1).fill_diagonal_(-torch.inf), dim=1)
    terms = [literal.cross_entropy(z, i, {j: soft[i, j] for j in range(16) if j != i}, 0.1) for i in range(16)]
    parts = trainer.step(inputs, labels, indices)
    assert float(parts["distillation"]) == pytest.approx(0.25 * float(torch.stack(terms).mean()), rel=1e-4)
    assert float(parts["base"]) == pytest.approx(0.75 * float(literal.supcon(z, labels)), rel=1e-4)


def test_a_training_tells_the_teachers_share(finished):
    record = finished("supcon+soft-labels")
    assert [line["loss"]["weight"] for line in record.metrics] == [0.5, 0.5]
    assert {"entropy", "same_class", "gradient_share"} <= record.metrics[0]["distillation"].keys()
    grown = finished("supcon+soft-labels", **PAST)
    assert [line["loss"]["weight"] for line in grown.metrics] == pytest.approx([0.0, 0.8 / 3, 1.6 / 3])


def test_label_smoothing_asks_nobody(finished):
    record = finished("supcon+smooth-labels")
    assert not record.options.has_teacher
    assert all(line["loss"]["distillation"] > 0 for line in record.metrics)
    with pytest.raises(InputError, match=r"^temperature=0.5 does nothing with teacher=none"):
        preset("supcon+smooth-labels", "x.npz", temperature=0.5)
    with pytest.raises(InputError, match=r"^targets=pairwise does nothing with teacher=none"):
        preset("supcon+smooth-labels", "x.npz", targets="pairwise")
    assert as_dict(preset("supcon+smooth-labels", "x.npz", teacher="features", targets="pairwise"))["targets"] == "pairwise"


@pytest.mark.parametrize("changes", [PAST, MATES], ids=["past", "mates"])
def test_a_run_that_stopped_inside_an_epoch_goes_on_to_the_same_bits(finished, broken_off, changes):
    broken = broken_off(Trainer, "step", 6, KeyboardInterrupt, "supcon+soft-labels", **changes, checkpoint_steps=1)
    train(broken, show=False)
    assert_same_end(finished("supcon+soft-labels", **changes).folder, broken.out)


CHUNKED = [
    ("supcon+soft-labels", {}),
    ("supcon+soft-labels", MATES),
    ("supcon+smooth-labels", {}),
    ("recall-at-k", {}),
    ("contextual", {"per_class": 4}),
    ("mean-field", {}),
    ("epshn", {"per_class": 4}),
    ("proxy-gml", {"loss": "proxy-gml(kept=0.2)"}),
    ("rankmi", {}),
]


@pytest.mark.parametrize(("name", "changes"), CHUNKED)
def test_chunks_of_a_batch_give_the_same_gradient(options, name, changes):
    whole, chunked = (trainer_of(options(name, **changes, micro_batch=size)) for size in (0, 3))
    batch = next(whole.batches.epoch(0))
    for trainer in (whole, chunked):
        trainer.begin(lambda: None)
        trainer.step(*batch)
    for one, other in zip(whole.system.parameters(), chunked.system.parameters(), strict=True):
        if one.requires_grad:
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-5 * float(one.grad.abs().max()))


def test_epshn_in_rounds_goes_on_to_the_same_bits(finished, broken_off):
    rounds = {"batches": "rounds", "per_class": 4}
    broken = broken_off(Trainer, "step", 7, KeyboardInterrupt, "epshn", **rounds, checkpoint_steps=1)
    train(broken, show=False)
    whole = finished("epshn", **rounds)
    assert_same_end(whole.folder, broken.out)
    batches = [[draw.item for draw in batch] for batch in trainer_of(whole.options).batches.sampler.epoch(0)]
    assert len(batches) == 12 * 8 // 16  # 12 classes of 6: two rounds of 4, two of them drawn again


def test_a_network_that_learns_beside_goes_on_to_the_same_bits(finished, broken_off):
    broken = broken_off(Trainer, "step", 6, KeyboardInterrupt, "rankmi", checkpoint_steps=1)
    state = read_state(Path(broken.out) / "checkpoints" / "last.pt")["system"]
    assert state["objective.loss.adam.count"] == 5
    assert state["objective.loss.adam.first"].abs().max() > 0
    train(broken, show=False)
    assert_same_end(finished("rankmi").folder, broken.out)


@pytest.mark.parametrize("name", ["recall-at-k", "contextual", "mean-field", "epshn", "proxy-gml", "ms-tuned", "rankmi"])
def test_a_few_steps_lower_the_loss(options, name):
    _, parts = few_steps(options(name, lr=0.01, per_class=4), count=40)
    assert sum(part["base"] for part in parts[-4:]) < sum(part["base"] for part in parts[:4])


BAD = [
    ("supcon+soft-labels", {"weight": 2}, "weight=2.0 is the teacher's share of the target and must lie in [0, 1]; try 0.5"),
    ("ms+soft-labels", {}, "there are no labels to soften in this loss; use loss=supcon"),
]


@pytest.mark.usefixtures("as_shipped")
@pytest.mark.parametrize(("name", "changes", "message"), BAD)
def test_what_cannot_be_is_one_line(options, name, changes, message):
    with pytest.raises(InputError) as refusal:
        train(options(name, **changes), show=False)
    assert str(refusal.value).startswith("system=soft-labels")
    assert str(refusal.value).endswith(message)
    assert "\n" not in str(refusal.value)
