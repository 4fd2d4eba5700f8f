"""DCML in a training: a step by hand, what is kept, in chunks, after a stop, and on images."""

import numpy as np
import pytest
import torch

from obdsd import objectives
from obdsd.data import open_data
from obdsd.errors import InputError
from obdsd.models import Embedder
from obdsd.presets import preset
from obdsd.training import Trainer, train
from tests.oracles import systems_apart
from tests.training.reading import assert_same_end, trainer_of

MIXED = {"head": "composed", "slices": 3}


def test_a_step_is_the_mean_of_the_composites_losses_and_the_reinforcement(options):
    trainer = trainer_of(options("dcml-mdw", **MIXED, system="dcml(reinforcement=0.5)"))
    inputs, labels, indices = next(trainer.batches.epoch(0))
    head = trainer.model.head
    maps, mixers = (
        [*zip(layer.weight.detach().double().chunk(3), layer.bias.detach().double().chunk(3), strict=True)]
        for layer in (head.ensemble, head.compositors)
    )
    rows, shares = systems_apart.composites(inputs.double(), maps, mixers)
    slices = torch.stack(rows).float().view(16, 3, 2)
    expected = sum(float(objectives.margin(12)(slices[:, c], labels).detach()) for c in range(3)) / 3
    parts = trainer.step(inputs, labels, indices)
    assert float(parts["base"]) == pytest.approx(expected + 0.5 * float(systems_apart.reinforcement(shares)), rel=1e-4)


def test_each_composite_has_its_own_boundaries_at_their_own_rate(options):
    groups = trainer_of(options("dcml-mdw", **MIXED)).optimizer.param_groups
    found = [(len(group["params"]), group["lr"], group["weight_decay"]) for group in groups]
    assert found == [(4, 1e-3, 4e-4), *[(1, 5e-4, 0.0)] * 3]


def test_chunks_of_a_batch_give_the_same_gradient(options):
    whole, chunked = (trainer_of(options("dcml-mdw", **MIXED, micro_batch=size)) for size in (0, 3))
    batch = next(whole.batches.epoch(0))
    for trainer in (whole, chunked):
        trainer.step(*batch)
    for one, other in zip(whole.system.parameters(), chunked.system.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-5 * float(one.grad.abs().max()))


def test_a_run_that_stopped_goes_on_to_the_same_bits_and_keeps_its_composites(finished, broken_off):
    broken = broken_off(Trainer, "step", 6, KeyboardInterrupt, "dcml-mdw", **MIXED, checkpoint_steps=1)
    train(broken, show=False)
    whole = finished("dcml-mdw", **MIXED)
    assert_same_end(whole.folder, broken.out)
    model = Embedder.load(whole.folder / "model")
    assert model.state_dict().keys() == {f"head.{layer}.{part}" for layer in ("ensemble", "compositors") for part in ("weight", "bias")}
    rows = torch.from_numpy(open_data(whole.options.data)["test"].matrix())
    torch.testing.assert_close(model.slices_of(model(rows)).norm(dim=2), torch.ones(len(rows), 3))


def test_its_maps_begin_as_the_projection(options):
    """Turned, as slices do: the same products as the plain head's. Each composite is nearly one map alone."""
    standing = {"head_init": "projection", "lr": 1e-12, "weight_decay": 0.0, "epochs": 1}
    one, other = (
        train(options(name, **standing, **how, out=f"{options().out}-{name}"), show=False).model().head
        for name, how in (("ms", {"head": "linear"}), ("dcml-mdw", MIXED))
    )
    P, Q = one.weight.detach(), other.ensemble.weight.detach()
    torch.testing.assert_close(Q.T @ Q, P.T @ P, atol=1e-4, rtol=0)
    shares = other.shares(torch.eye(12)).detach()
    torch.testing.assert_close(shares, torch.eye(3).expand(12, 3, 3), atol=0.04, rtol=0)
    assert preset("dcml-mdw", "x.npz").head_init == "projection"
    assert preset("dcml-mdw", "x.npz", head="composed").head_init == "projection"


def test_a_teacher_goes_with_it(finished):
    record = finished("dcml-mdw+obd-sd", **MIXED)
    assert record.metrics[1]["loss"]["distillation"] > 0


def test_on_images(image_options):
    record = train(image_options("dcml-mdw", **MIXED), show=False)
    assert np.isfinite([line["loss"]["base"] for line in record.metrics]).all()


def test_another_head_is_refused_in_one_line(options):
    with pytest.raises(InputError, match=r"^system=dcml: mixes the maps of a head of composites, head=two-layer; use head=composed and sl"):
        trainer_of(options("dcml-mdw", dim=8))
    with pytest.raises(InputError, match=r"slices=1 leaves head=composed nothing to mix; use slices=4"):
        trainer_of(options("dcml-mdw", head="composed", slices=1))
