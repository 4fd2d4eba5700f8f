"""DiVA in a training: a step by hand, its queue and its network, in chunks, after a stop, on images, and what is refused."""

import numpy as np
import pytest
import torch

from obdsd import objectives
from obdsd.errors import InputError
from obdsd.objectives import samplers
from obdsd.objectives.diva import OTHERS
from obdsd.seeds import seed_of
from obdsd.training import Trainer, train
from tests.oracles import systems_apart
from tests.training.reading import assert_same_end, trainer_of

SMALL = {"dim": 24, "system": "diva(queue=40)"}
SETTINGS = "alpha=0.5, decorrelation=200.0, queue=40, temperature=0.1"


def begun(options, **changes):
    """A trainer where its first epoch begins."""
    trainer = trainer_of(options("diva", **{**SMALL, **changes}))
    trainer.begin(lambda: None)
    trainer.begin_epoch()
    return trainer


@pytest.mark.parametrize("shared", ["random", "standard"])
def test_a_step_by_hand(options, shared):
    trainer = begun(options, system=f"diva({SETTINGS}, shared={shared})")
    system, (inputs, labels, indices) = trainer.system, next(trainer.batches.epoch(0))
    for weight in system.network.parameters():
        weight.add_(0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())))
    with torch.no_grad():
        z = trainer.model.slices_of(trainer.model(inputs)).double().unbind(1)
        keys = trainer.model.slices_of(system.network.model(inputs))[:, 1].double()
        torch.manual_seed(seed_of(trainer.options.seed, 0, 0))
        generator = torch.Generator().manual_seed(int(torch.randint(2**62, ())))
        draw = samplers.permuted_triplets if shared == "random" else samplers.three_class_triplets
        rows = z[2].float()
        across = draw(torch.cdist(rows, rows), labels, generator, dim=6)
        within = samplers.intra_triplets(labels, generator)
        beta = torch.full((12,), 1.2, dtype=torch.float64)
        tasks = systems_apart.contrast(z[1], keys, system.keys.double(), 0.1)
        for rows, triplets in ((z[2], across), (z[3], within)):
            tasks = tasks + systems_apart.margin(rows, labels, beta, [*zip(*(part.tolist() for part in triplets), strict=True)])
        expected = float(objectives.margin(12)(z[0].float(), labels)) + 0.5 * float(tasks)
        for name, rows in zip(OTHERS, z[1:], strict=True):
            weights = [weight.double() for weight in system.adversaries[name].regressor.parameters()]
            expected += 200 * float(systems_apart.decorrelation(rows, z[0], *weights))
    parts = trainer.step(inputs, labels, indices)
    assert float(parts["base"]) == pytest.approx(expected, rel=1e-4)
    assert float(parts["distillation"]) == 0
    assert all(parameter.grad is not None for parameter in system.parameters() if parameter.requires_grad)


def test_the_queue_begins_with_drawn_items_and_takes_the_batches_keys_after_each_step(options):
    trainer = begun(options, system="diva(queue=40, momentum=0.5)")
    system, part = trainer.system, trainer.collection["train"]
    chosen = np.random.default_rng(0).permutation(72)[:40]
    with torch.no_grad():
        all_keys = trainer.model.slices_of(trainer.model(torch.from_numpy(part.matrix())))[:, 1]
    torch.testing.assert_close(system.keys, all_keys[chosen])
    expected = [*system.keys.clone()]
    for step, batch in enumerate(trainer.batches.epoch(0)):
        trainer.place.step = step
        before, network = [p.clone() for p in trainer.model.parameters()], [p.clone() for p in system.network.parameters()]
        with torch.no_grad():
            new = trainer.model.slices_of(system.network.model(batch[0]))[:, 1]
        for place, key in zip(range(step * 16, step * 16 + 16), new, strict=True):
            expected[place % 40] = key
        trainer.step(*batch)
        torch.testing.assert_close(system.keys, torch.stack(expected))
        for now, old, student in zip(system.network.parameters(), network, trainer.model.parameters(), strict=True):
            torch.testing.assert_close(now, (old + student) / 2)  # as it is after the step
        assert any(not torch.equal(one, other) for one, other in zip(before, trainer.model.parameters(), strict=True))
    assert int(system.place) == 64 % 40
    trainer.begin_epoch()
    torch.testing.assert_close(system.keys, torch.stack(expected))  # it is filled once


@pytest.mark.parametrize("queue", [5, 100])
def test_a_queue_may_be_shorter_than_a_batch_or_longer_than_the_training_set(options, queue):
    trainer = begun(options, system=f"diva(queue={queue})")
    assert torch.equal(trainer.system.keys[72:], trainer.system.keys[: max(0, queue - 72)])
    batch = next(trainer.batches.epoch(0))
    with torch.no_grad():
        new = trainer.model.slices_of(trainer.system.network.model(batch[0]))[:, 1]
    trainer.step(*batch)
    torch.testing.assert_close(trainer.system.keys[: min(queue, 16)], new[-queue:])


def test_what_is_trained_beside_the_model_and_how(options):
    groups = trainer_of(options("diva", **SMALL, lr=0.01)).optimizer.param_groups
    found = [(len(group["params"]), group["lr"], group["weight_decay"]) for group in groups]
    assert found == [(4, 0.01, 4e-4), (12, 0.01, 0.0), *[(1, 5e-4, 0.0)] * 3]


def test_chunks_of_a_batch_give_the_same_gradient(options):
    whole, chunked = (begun(options, micro_batch=size) for size in (0, 3))
    batch = next(whole.batches.epoch(0))
    for trainer in (whole, chunked):
        trainer.step(*batch)
    for one, other in zip(whole.system.parameters(), chunked.system.parameters(), strict=True):
        if one.requires_grad:
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-5 * float(one.grad.abs().max()))


@pytest.mark.parametrize("number", [1, 6])
def test_a_run_that_stopped_goes_on_to_the_same_bits(finished, broken_off, number):
    broken = broken_off(Trainer, "step", number, KeyboardInterrupt, "diva", **SMALL, checkpoint_steps=1)
    train(broken, show=False)
    whole = finished("diva", **SMALL)
    assert_same_end(whole.folder, broken.out)
    assert whole.model().architecture.slice_weights == (0.5, 1.0, 1.0, 1.0)
    assert whole.model().state_dict().keys() == finished("ms").model().state_dict().keys()  # nothing else is kept


def test_the_network_begins_as_the_model_as_it_is_projected(options):
    trainer = begun(options, head="linear", head_init="projection", dim=8)
    assert torch.equal(trainer.system.network.model.head.weight, trainer.model.head.weight)


def test_on_images_keys_are_of_another_crop(image_options):
    trainer = trainer_of(image_options("diva", **SMALL))
    trainer.begin(lambda: None)
    trainer.begin_epoch()
    inputs, labels, indices, shown = next(trainer.batches.epoch(0))
    with torch.no_grad():
        of_shown, of_inputs = (trainer.model.slices_of(trainer.system.network.model(crops))[:, 1] for crops in (shown, inputs))
    trainer.step(inputs, labels, indices, shown)
    torch.testing.assert_close(trainer.system.keys[:8], of_shown)
    assert not torch.allclose(of_shown, of_inputs, atol=1e-3)


def test_some_epochs_lower_the_loss(options):
    """Without the decorrelation, which two sides pull at."""
    record = train(options("diva", dim=24, system="diva(queue=40, decorrelation=0.0)", epochs=8, lr=0.01), show=False)
    losses = [line["loss"]["base"] for line in record.metrics]
    assert np.mean(losses[-2:]) < 0.9 * np.mean(losses[:2])


BAD = [
    ({"slices": 2, "slice_weights": ()}, "has a task for each of four slices, slices=2; use slices=4"),
    ({"dim": 6}, "slices=4 must divide dim=6; use slices=1 or a head whose length can be divided"),
    ({"system": "diva(alpha=-1)"}, "alpha=-1.0 must be 0 or more and finite; try 0.3"),
    ({"system": "diva(decorrelation=-1)"}, "decorrelation=-1.0 must be 0 or more and finite; try 1500"),
    ({"system": "diva(queue=0)"}, "queue=0 must be 1 or more; try 3360, 30 batches of 112"),
    ({"system": "diva(momentum=1)"}, "momentum=1.0 must lie in [0, 1); try 0.9"),
    ({"system": "diva(temperature=0)"}, "temperature=0.0 must be a positive finite number, from 1e-18 to 1e18; try 1.0"),
    ({"teacher": "memory"}, "learns from a running average of its own; use teacher=none beside it"),
]


@pytest.mark.parametrize(("changes", "message"), BAD)
def test_what_cannot_be_is_one_line(options, changes, message):
    with pytest.raises(InputError) as refusal:
        trainer_of(options("diva", **{**SMALL, **changes}))
    assert str(refusal.value).endswith(message)
    assert "\n" not in str(refusal.value)


def test_triplets_of_an_unknown_kind_are_refused(options):
    with pytest.raises(InputError, match="shared"):
        options("diva", system="diva(shared=all)")
