"""DCML: the authors' numbers of its composites, the literal definition, its gradients and limits."""

from pathlib import Path

import numpy as np
import pytest
import torch

from obdsd.errors import InputError
from obdsd.method.distillation import SelfDistillation
from obdsd.method.teachers import NoTeacher
from obdsd.models import Embedder
from obdsd.objectives.dcml import DCML, OnSlices, undecided
from tests.oracles import systems_apart

with np.load(Path(__file__).parents[1] / "oracles" / "mic_diva_dcml.npz") as file:
    ORACLE = {key.removeprefix("DCML/"): torch.from_numpy(file[key]) for key in file.files if key.startswith("DCML/")}


def of_oracle():
    """The authors' four maps and four compositors as one head."""
    model = Embedder("features", features=20, dim=32, head="composed", slices=4).double()
    layers = {"ensemble": model.head.ensemble, "compositor": model.head.compositors}
    for name, layer in layers.items():
        weights = (torch.cat([ORACLE[f"{name}{k}/{part}"] for k in range(4)]) for part in ("W", "b"))
        layer.load_state_dict(dict(zip(("weight", "bias"), weights, strict=True)))
    return model


def assert_same(ours, truth):
    torch.testing.assert_close(ours, truth, rtol=1e-7, atol=1e-10)


class Towards(torch.nn.Module):
    """A loss that draws rows somewhere: Σ R ⊙ rows."""

    def __init__(self, part):
        super().__init__()
        self.part = part

    def forward(self, rows, labels):
        return (ORACLE["R"].view(12, 4, 8)[:, self.part] * rows).sum()


def made(model, **settings):
    parts = iter(range(4))
    return DCML(model, lambda dim: Towards(next(parts)), NoTeacher(), SelfDistillation(0.0), **settings)


def test_the_authors_numbers():
    """Their value sums what it draws to, ours takes the mean of the four losses."""
    model, features = of_oracle(), ORACLE["features"].clone().requires_grad_()
    system = made(model, reinforcement=0.25)
    loss, taught = system.losses(system.rows(features), torch.zeros(12, dtype=torch.int64), None, 0.0)
    assert_same(4 * loss.detach(), ORACLE["value"])
    assert taught == 0
    slope, maps, mixers = torch.autograd.grad(4 * loss, [features, model.head.ensemble.weight, model.head.compositors.weight])
    assert_same(slope, ORACLE["grad_features"])
    assert_same(maps, torch.cat([ORACLE[f"ensemble{k}/grad_W"] for k in range(4)]))
    assert_same(mixers, torch.cat([ORACLE[f"compositor{k}/grad_W"] for k in range(4)]))


def test_composites_and_reinforcement_by_definition():
    model = of_oracle()
    maps, mixers = ([(ORACLE[f"{name}{k}/W"], ORACLE[f"{name}{k}/b"]) for k in range(4)] for name in ("ensemble", "compositor"))
    rows, shares = systems_apart.composites(ORACLE["features"], maps, mixers)
    system = made(model)
    with torch.no_grad():
        found = system.rows(ORACLE["features"])
    assert_same(2 * found[:, :32], torch.stack(rows))  # four unit slices: a row of length 2
    assert_same(found[:, 32:].view(-1, 4, 4), torch.stack(shares))
    assert_same(undecided(found[:, 32:].view(-1, 4, 4)), systems_apart.reinforcement(shares))
    assert_same(found[:, :32], model(ORACLE["features"]).detach())  # what is kept in the end


def test_no_gradient_goes_from_the_mixing_to_the_maps():
    model = of_oracle()
    undecided(model.head.shares(ORACLE["features"])).backward()
    assert model.head.ensemble.weight.grad is None
    assert model.head.compositors.weight.grad.abs().max() > 0


def test_gradients_are_those_of_finite_differences():
    """Of the compositors, and of features where the mixing stands still."""
    model = of_oracle()
    for parameter in model.head.compositors.parameters():
        parameter.data.zero_()
    features = ORACLE["features"][:3].clone().requires_grad_()
    assert torch.autograd.gradcheck(model, features)
    shares = torch.rand(5, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert torch.autograd.gradcheck(lambda shares: undecided(shares.softmax(dim=2)), shares)


def test_a_composite_that_takes_one_map_alone_is_that_map():
    model = of_oracle()
    model.head.compositors.weight.data.zero_()
    model.head.compositors.bias.data = 100 * torch.eye(4, dtype=torch.float64)[[2, 0, 1, 3]].flatten()
    slices = model.slices_of(model(ORACLE["features"]))
    maps = torch.nn.functional.normalize(model.head.ensemble(ORACLE["features"]).view(12, 4, 8), dim=2)
    assert_same(slices, maps[:, [2, 0, 1, 3]])
    assert float(undecided(model.head.shares(ORACLE["features"])).detach()) == pytest.approx(0)


def test_a_system_asks_for_composites():
    with pytest.raises(InputError, match=r"mixes the maps of a head of composites, head=linear; use head=composed and slices=4"):
        made(Embedder("features", features=20, dim=32, slices=4))
    for wrong in (-1.0, float("inf")):
        with pytest.raises(InputError, match=rf"reinforcement={wrong} must be 0 or more and finite; try 1"):
            made(of_oracle(), reinforcement=wrong)
    assert len(OnSlices(of_oracle(), lambda dim: Towards(dim)).losses) == 4
