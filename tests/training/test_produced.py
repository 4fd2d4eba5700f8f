"""DAS in a training: state after a stop, chunks, a teacher beside it, and what is refused."""

import pytest
import torch

from obdsd.errors import InputError
from obdsd.presets import preset
from obdsd.training import Trainer, train
from tests.training.reading import assert_same_end, few_steps, trainer_of

WIDE = {"system": "das(low=0.5, high=2.0, moved=0.1, constant=false)"}


def test_a_run_that_stopped_inside_an_epoch_goes_on_to_the_same_bits(finished, broken_off):
    broken = broken_off(Trainer, "step", 6, KeyboardInterrupt, "ms+das", **WIDE, checkpoint_steps=1)
    train(broken, show=False)
    assert_same_end(finished("ms+das", **WIDE).folder, broken.out)


def test_chunks_of_a_batch_give_the_same_gradient(options):
    whole, chunked = (trainer_of(options("margin+das", **WIDE, micro_batch=size)) for size in (0, 3))
    batch = next(whole.batches.epoch(0))
    for trainer in (whole, chunked):
        trainer.step(*batch)
    for one, other in zip(whole.system.parameters(), chunked.system.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-5 * float(one.grad.abs().max()))
    torch.testing.assert_close(whole.system.differences, chunked.system.differences)


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


def test_a_few_steps_lower_the_loss(options):
    _, parts = few_steps(options("ms+das", **WIDE, lr=0.01), count=40)
    assert sum(part["base"] for part in parts[-4:]) < sum(part["base"] for part in parts[:4])


def test_it_takes_images(image_options):
    trainer, parts = few_steps(image_options("ms+das"), count=1)
    assert parts[0]["base"] > 0
    assert int(trainer.system.frequency.sum()) == 8 * 4


BAD = [
    ("ms+das", {"system": "das(scaled=7)"}, "system=das(scaled=7): scaled=7 must lie in 1..6, the length of the rows; try 4"),
    ("ms+das", {"system": "das(copies=0)"}, "system=das(copies=0): copies=0 must be 1 or more; try 3, or system=standard for none"),
    ("ms+das", {"weight": 3.0}, "weight=3.0 does nothing with teacher=none; leave it out, or choose preset=ms+obd-sd"),
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
