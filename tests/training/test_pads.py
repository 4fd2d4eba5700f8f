"""PADS in a training: what is held out is never trained on, the policy acts when it should, all of it goes on after a stop."""

from pathlib import Path

import numpy as np
import pytest
import torch

from obdsd.catalogue import LOSSES
from obdsd.data.batches import ClassBatches
from obdsd.errors import InputError
from obdsd.objectives.pads import PADS
from obdsd.training import Trainer, train
from obdsd.training.checkpoints import read_state
from tests.training.reading import assert_equal, assert_same_end, few_steps, model_bytes, rewritten, trainer_of

OFTEN = {"system": "pads(every=2)"}  # of 3 batches in an epoch


def held(trainer):
    return set(np.concatenate(trainer.system.watched).tolist())


@pytest.mark.parametrize("changes", [{}, {"replacement": True}, {"system": "pads(of_classes=true, held_out=0.2)"}, {"epoch_batches": 2}])
def test_what_is_held_out_is_in_no_batch(options, changes):
    trainer, usual = trainer_of(options("pads", **changes)), trainer_of(options("margin", **changes | {"system": "standard"}))
    never = held(trainer)
    assert len(never) == (2 * 6 if "of_classes" in str(changes) else 12 * 2)
    drawn = {draw.item for epoch in range(30) for batch in trainer.batches.sampler.epoch(epoch) for draw in batch}
    assert drawn == set(range(72)) - never
    assert len(trainer.batches) == min((72 - len(never)) // 16, len(usual.batches)) > 0


def test_images_too(image_options):
    trainer = trainer_of(image_options("pads"))
    batches = [batch for epoch in range(4) for batch in trainer.batches.epoch(epoch)]
    assert not held(trainer) & {int(item) for _, _, indices in batches for item in indices}


def test_held_out_rows_change_nothing_but_what_the_policy_is_told(options, features, tmp_path):
    """Their rows become noise. While the policy is not asked the weights are the same, bit for bit; when it is, it sees the noise."""
    trainer = trainer_of(options("pads"))
    with np.load(features) as file:
        embeddings = file["embeddings"].copy()
    never = trainer.part.positions[sorted(held(trainer))]
    embeddings[never] = np.random.default_rng(0).standard_normal((len(never), embeddings.shape[1]))
    noisy = rewritten(features, tmp_path / "noisy.npz", embeddings=embeddings)
    ends, seen = {}, {}
    for name, data in (("as it is", features), ("noisy", noisy)):
        for every in (1000, 1):
            changes = {"data": data, "system": f"pads(every={every})", "keep_checkpoints": True, "out": str(tmp_path / f"{name}-{every}")}
            run = train(options("pads", **changes), show=False)
            ends[name, every] = model_bytes(run.folder)
            seen[name, every] = read_state(run.folder / "checkpoints" / "last.pt")["system"]["policy.history"]
    assert ends["as it is", 1000] == ends["noisy", 1000]
    assert not torch.equal(seen["as it is", 1], seen["noisy", 1])
    assert ends["as it is", 1] != ends["as it is", 1000]


def test_the_policy_acts_after_so_many_steps_and_sees_how_the_held_out_fare(options, monkeypatch):
    acted, measured = [], PADS.measured
    monkeypatch.setattr(PADS, "measured", lambda system: (acted.append(system.sampler.step), measured(system))[1])
    trainer, _ = few_steps(options("pads", system="pads(every=3)"), count=8)
    assert acted == [3, 6]
    system = trainer.system
    assert system.policy.calls == 2
    by_hand = system.embed(trainer.model, sorted(held(trainer)))
    nearest = (by_hand @ by_hand.T).fill_diagonal_(-2).argmax(dim=1)
    labels = trainer.batches.labels[sorted(held(trainer))]
    assert float(measured(system)[0]) == pytest.approx(float((labels[nearest] == labels).float().mean()))
    assert trainer.model.training
    p = 9 * system.sampler.p
    of_two = torch.tensor([[0.64], [0.8], [1.0], [1.25], [1.5625]])  # products of two factors
    assert ((torch.where(p > 0.1, p, p * 1e15) / of_two - 1).abs().amin(dim=0) < 1e-4).all()
    assert len({*p.tolist()}) > 4


@pytest.mark.parametrize(("with_nmi", "expected"), [(False, 0.5), (True, 0.6)])
def test_what_is_to_rise(options, monkeypatch, with_nmi, expected):
    monkeypatch.setattr(PADS, "measured", lambda system: torch.tensor([0.5, 0.6, 0.7, 0.8, 0.1, 0.9, 0.7]))
    trainer, _ = few_steps(options("pads", system=f"pads(every=1, with_nmi={str(with_nmi).lower()})"), count=2)
    assert float(trainer.system.policy.metric) == pytest.approx(expected)


def test_the_loss_is_the_margin_loss_of_the_drawn_triplets(options):
    trainer = trainer_of(options("pads"))
    trainer.begin(lambda: None)
    trainer.begin_epoch()
    inputs, labels, indices = next(trainer.batches.epoch(0))
    sampler = trainer.system.sampler
    sampler.eval()  # draws without counting
    with torch.no_grad():
        z = trainer.model(inputs)
        triplets = sampler(z, labels)
        expected = LOSSES.build(trainer.options.loss, num_classes=12, dim=6, seed=0)(z, labels, triplets)
    sampler.train()
    assert float(trainer.step(inputs, labels, indices)["base"]) == pytest.approx(float(expected), rel=1e-5)
    own = [group for group in trainer.optimizer.param_groups if group["lr"] == 5e-4]
    assert sum(len(group["params"]) for group in own) == 1  # β alone: the policy has an optimiser of its own


def test_a_run_that_stopped_goes_on_to_the_same_bits(finished, broken_off):
    whole = finished("pads", **OFTEN, keep_checkpoints=True)
    broken = broken_off(Trainer, "step", 5, KeyboardInterrupt, "pads", **OFTEN, checkpoint_steps=1, keep_checkpoints=True)
    state = read_state(Path(broken.out) / "checkpoints" / "last.pt")["system"]
    assert state["policy.calls"] == 1
    train(broken, show=False)
    assert_same_end(whole.folder, broken.out)
    ends = [read_state(Path(folder) / "checkpoints" / "last.pt")["system"] for folder in (whole.folder, broken.out)]
    assert_equal(*ends)
    assert ends[0]["policy.calls"] == 2
    assert ends[0]["policy.adam.count"] == 1
    assert {"objective.miner.p", "policy.history", "policy.state", "policy.drawn", "policy.log_drawn", "policy.old.critic.bias"} <= ends[
        0
    ].keys()


def test_chunks_of_a_batch_give_the_same_gradient(options):
    whole, chunked = (few_steps(options("pads", **OFTEN, micro_batch=size), count=4)[0] for size in (0, 3))
    for one, other in zip(whole.model.parameters(), chunked.model.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-5 * float(one.grad.abs().max()))
    assert torch.equal(whole.system.sampler.p, chunked.system.sampler.p)


def test_it_learns_and_goes_with_a_teacher(options):
    _, parts = few_steps(options("pads", lr=0.01, per_class=4, system="pads(every=5)"), count=40)
    assert sum(part["base"] for part in parts[-4:]) < sum(part["base"] for part in parts[:4])
    _, taught = few_steps(options("pads", **OFTEN, teacher="ema", targets="pairwise"), count=2)
    assert taught[-1]["distillation"] > 0


def test_batches_without_some_items_are_too_few():
    batches = ClassBatches(np.arange(3).repeat(4), batch_size=6, seed=0)
    with pytest.raises(InputError, match=r"batch_size=6 needs 3 classes × 2, but 2 classes have 2 images or more; try 4"):
        batches.without(np.array([0, 1, 2]))
    with pytest.raises(InputError, match=r"batch_size=6 is more than the 5 training items; try 4"):
        ClassBatches(np.arange(3).repeat(4), batch_size=6, seed=0, replacement=True).without(np.arange(5, 12))


BAD = [
    ({"system": "pads(held_out=0)"}, "held_out=0.0 must be a share above 0, 0.5 at most; try 0.15"),
    ({"system": "pads(held_out=0.6)"}, "held_out=0.6 must be a share above 0, 0.5 at most; try 0.15"),
    ({"system": "pads(every=0)"}, "every=0 must be 1 or more; try 30"),
    ({"system": "pads(policy_lr=0)"}, "policy_lr=0.0 must be a positive finite number; try 0.01"),
    ({"system": "pads(critic=other)"}, "critic="),
    ({"loss": "proxy-anchor"}, "learns how the Margin loss draws its negatives; use loss=margin, without a sampling of its own"),
    ({"loss": "margin(sampling=random)"}, "learns how the Margin loss draws its negatives; use loss=margin"),
    ({"batches": "rounds"}, "system=pads: holds images of each class out; use supervision=labels and batches=drawn"),
    ({"system": "pads(held_out=0.5, of_classes=true)"}, "batch_size=16 needs 8 classes × 2, but 6 classes have 2 images or more; try 12"),
]


@pytest.mark.usefixtures("as_shipped")
@pytest.mark.parametrize(("changes", "message"), BAD)
def test_what_cannot_be_is_one_line(options, changes, message):
    with pytest.raises(InputError) as refusal:
        train(options("pads", **changes), show=False)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.usefixtures("as_shipped")
def test_classes_of_three_images_leave_none_for_the_policy(options, features, tmp_path):
    with np.load(features) as file:
        few = np.concatenate([np.flatnonzero(file["labels"] == c)[:3] for c in range(24)])
        arrays = {name: file[name][few] for name in ("embeddings", "labels")}
    few = rewritten(features, tmp_path / "few.npz", **arrays)
    refusal = r"held_out=0\.15: 0 images of 0 classes can be held out, 10 of 2 are needed to judge by; raise it, or give classes of 4"
    with pytest.raises(InputError, match=refusal):
        train(options("pads", data=few), show=False)
