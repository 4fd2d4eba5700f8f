"""DAS and MemVir in a training: state after a stop, chunks, a teacher beside it, and what is refused."""

import pytest
import torch

from obdsd.errors import InputError
from obdsd.presets import preset
from obdsd.training import Trainer, train
from tests.training.reading import assert_same_end, few_steps, trainer_of

WIDE = {"system": "das(low=0.5, high=2.0, moved=0.1, constant=false)"}


PAST = {"system": "memvir(sets=2, gap=1, warm=1)", "epochs": 3}
BOTH = pytest.mark.parametrize(("name", "changes"), [("margin+das", WIDE), ("proxy-anchor+memvir", PAST)], ids=["das", "memvir"])


@BOTH
def test_a_run_that_stopped_inside_an_epoch_goes_on_to_the_same_bits(finished, broken_off, name, changes):
    """MemVir's memory is full by then, and the past takes part."""
    broken = broken_off(Trainer, "step", 6 if name == "margin+das" else 10, KeyboardInterrupt, name, **changes, checkpoint_steps=1)
    train(broken, show=False)
    assert_same_end(finished(name, **changes).folder, broken.out)


@BOTH
def test_chunks_of_a_batch_give_the_same_gradient(options, name, changes):
    whole, chunked = (trainer_of(options(name, **changes, micro_batch=size)) for size in (0, 3))
    for trainer in (whole, chunked):
        trainer.place.epoch = 1
        trainer.begin_epoch()
    for batch in [*whole.batches.epoch(1)][:3]:  # at the third MemVir meets the first
        for trainer in (whole, chunked):
            trainer.step(*batch)
    for one, other in zip(whole.system.parameters(), chunked.system.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-5 * float(one.grad.abs().max()))
    for state in ("differences", "past_rows"):
        if hasattr(whole.system, state):
            torch.testing.assert_close(getattr(whole.system, state), getattr(chunked.system, state), rtol=1e-4, atol=1e-5)


def test_the_past_takes_part_when_its_epoch_has_come(options):
    """The base loss alone, then three steps of the second epoch: with the gap of 1 the third meets the first."""
    trainer = trainer_of(options("norm-softmax+memvir", **PAST))
    trainer.begin_epoch()
    trainer.step(*next(trainer.batches.epoch(0)))
    assert trainer.system.step == 0
    trainer.place.epoch = 1
    trainer.begin_epoch()
    steps = [*trainer.batches.epoch(1)][:3]
    for number, (inputs, labels, indices) in enumerate(steps):
        with torch.no_grad():
            rows = trainer.model(inputs)
            alone = float(trainer.system.objective(rows, labels))
            if number == 0:
                first = rows, labels + 12, trainer.system.objective.loss.proxies.clone()
            together = torch.cat([trainer.system.objective.loss.proxies, first[2]])
            S = 23 * torch.cat([rows, first[0]]) @ torch.nn.functional.normalize(together, dim=1).T
            with_first = float(torch.nn.functional.cross_entropy(S, torch.cat([labels, first[1]])))
        found = float(trainer.step(inputs, labels, indices)["base"])
        assert found == pytest.approx(with_first if number == 2 else alone, rel=1e-5)


def test_a_step_is_the_loss_of_the_batch_and_the_produced_rows(options):
    trainer = trainer_of(options("ms+das", **WIDE))
    batch = next(trainer.batches.epoch(0))
    twin = trainer_of(options("ms+das", **WIDE))
    with torch.no_grad():
        rows, labels = twin.model(batch[0]), batch[1]
        twin.system.see(rows, labels)
        every = torch.cat([rows, twin.system.produced(rows, labels)])
    expected = twin.system.objective(every, labels.repeat(4))
    assert float(trainer.step(*batch)["base"]) == pytest.approx(float(expected), rel=1e-5)


def test_a_teacher_beside_it_sees_the_rows_of_the_batch_alone(options):
    trainer, parts = few_steps(options("ms+das", teacher="previous-epoch", targets="pairwise", weight=20.0), count=3)
    assert parts[-1]["distillation"] > 0
    assert int(trainer.system.frequency.sum()) == 3 * 16 * 4  # and so does the state
    assert trainer.options.preset == "ms+previous-epoch+pairwise+das"


@pytest.mark.parametrize(("name", "changes"), [("ms+das", WIDE), ("norm-softmax+memvir", {**PAST, "system": "memvir(sets=1, warm=2)"})])
def test_a_few_steps_lower_the_loss(options, name, changes):
    _, parts = few_steps(options(name, **changes, lr=0.01), count=40)
    assert sum(part["base"] for part in parts[-4:]) < sum(part["base"] for part in parts[:4])


def test_they_take_images(image_options):
    trainer, parts = few_steps(image_options("ms+das"), count=1)
    assert parts[0]["base"] > 0
    assert int(trainer.system.frequency.sum()) == 8 * 4
    trainer, _ = few_steps(image_options("proxy-nca+memvir", system="memvir(sets=1, gap=0, warm=0)"), count=2)
    assert trainer.system.past_rows.norm(dim=2).allclose(torch.ones(1, 8))


BAD = [
    ("ms+das", {"system": "das(scaled=7)"}, "system=das(scaled=7): scaled=7 must lie in 1..6, the length of the rows; try 4"),
    ("ms+das", {"system": "das(copies=0)"}, "system=das(copies=0): copies=0 must be 1 or more; try 3, or system=standard for none"),
    ("ms+das", {"weight": 3.0}, "weight=3.0 does nothing with teacher=none; leave it out, or choose preset=ms+obd-sd"),
    ("norm-softmax+memvir", {}, "warm=2 leaves no epoch of 2 in which the past takes part; try 0, or train longer"),
    ("norm-softmax+memvir", {"system": "memvir(sets=0)"}, "system=memvir(sets=0): sets=0 must be 1 or more; try 45, or system=standard"),
    ("ms+memvir", PAST, "remembers one proxy a class, and this loss has none; use loss=norm-softmax, proxy-nca or proxy-anchor"),
    (
        "ms+das",
        {"loss": "none", "teacher": "features", "ramp": "constant"},
        "adds rows to a base loss, and there is none; use a loss beside it, as multi-similarity",
    ),
]


@pytest.mark.usefixtures("as_shipped")
@pytest.mark.parametrize(("name", "changes", "message"), BAD)
def test_what_cannot_be_is_one_line(options, name, changes, message):
    with pytest.raises(InputError) as refusal:
        train(options(name, **changes), show=False)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_products_have_settings_of_their_own():
    assert str(preset("margin+das", "sop:x").system) == "das(low=0.5, high=2.0, moved=0.1, constant=false)"
    assert str(preset("margin+das", "cars196:x").system) == "das"
