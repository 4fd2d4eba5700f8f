"""Adversarial decorrelation: the authors' numbers, the literal definition, and who gets which gradient."""

from pathlib import Path

import numpy as np
import pytest
import torch

from obdsd.objectives.decorrelation import Decorrelation, reversed_gradient
from tests.oracles import slow, systems_apart

with np.load(Path(__file__).parents[1] / "oracles" / "mic_diva_dcml.npz") as file:
    ORACLE = {key: torch.from_numpy(file[key]) for key in file.files}
WEIGHTS = ("0.weight", "0.bias", "2.weight", "2.bias")


def made(weights):
    """The decorrelation with these weights of its regressor."""
    (hidden, source), target = weights[0].shape, len(weights[3])
    loss = Decorrelation(source, target, torch.Generator(), hidden).double()
    loss.regressor.load_state_dict(dict(zip(WEIGHTS, weights, strict=True)))
    return loss


def of_oracle(name):
    return [ORACLE[f"{name}/{part}"] for part in ("w1", "b1", "w2", "b2")]


def assert_same(ours, truth):
    torch.testing.assert_close(ours, truth, rtol=1e-7, atol=1e-10)


def test_the_authors_numbers():
    loss, shared, own = made(of_oracle("MIC_adversarial")), *(ORACLE[f"MIC_adversarial/{x}_features"] for x in ("shared", "class"))
    leaves = [shared.requires_grad_(), own.requires_grad_(), *(dict(loss.regressor.named_parameters())[name] for name in WEIGHTS)]
    value = loss(shared, own)
    assert_same(value.detach(), ORACLE["MIC_adversarial/value"])
    for name, slope in zip(("shared", "class", "w1", "b1", "w2", "b2"), torch.autograd.grad(value, leaves), strict=True):
        assert_same(slope, ORACLE[f"MIC_adversarial/grad_{name}"])


def test_rows_get_the_opposite_of_what_the_regressor_gets():
    """By definition, of rows of any length; lengths of source and target differ."""
    weights = [torch.randn(size, generator=torch.Generator().manual_seed(1), dtype=torch.float64) for size in ((7, 5), 7, (4, 7), 4)]
    rows = [3 * slow.unit_rows(9, 5, seed=2, dtype=torch.float64), 0.5 * slow.unit_rows(9, 4, seed=3, dtype=torch.float64)]
    loss, leaves = made(weights), [*rows, *weights]
    for leaf in leaves:
        leaf.requires_grad_()
    truth = systems_apart.decorrelation(*leaves)
    source, target, *regressor = torch.autograd.grad(truth, leaves)
    ours = loss(*rows)
    assert_same(ours, truth)
    slopes = torch.autograd.grad(ours, [*rows, *(dict(loss.regressor.named_parameters())[name] for name in WEIGHTS)])
    for own, expected in zip(slopes, [-source, -target, *regressor], strict=True):
        assert_same(own, expected)
        assert own.abs().max() > 1e-5


def test_the_gradients_are_those_of_finite_differences():
    """Of the regressor as they are; of rows where they are turned once more."""
    loss = Decorrelation(5, 4, torch.Generator().manual_seed(0), 6).double()
    rows = [slow.unit_rows(5, size, seed=size, dtype=torch.float64).requires_grad_() for size in (5, 4)]
    assert torch.autograd.gradcheck(lambda *rows: loss(*map(reversed_gradient, rows)), rows)

    def of(*weights):
        return torch.func.functional_call(loss, dict(zip((f"regressor.{name}" for name in WEIGHTS), weights, strict=True)), tuple(rows))

    weights = [dict(loss.regressor.named_parameters())[name].detach().clone().requires_grad_() for name in WEIGHTS]
    assert torch.autograd.gradcheck(of, weights)


def test_steps_of_the_regressor_find_what_can_be_predicted():
    """The target is a turn of the source: alone, R comes near it; what it finds is what rows would have to flee from."""
    source = slow.unit_rows(64, 4, seed=0)
    target = source @ torch.linalg.qr(torch.randn(4, 4, generator=torch.Generator().manual_seed(1)))[0]
    loss = Decorrelation(4, 4, torch.Generator().manual_seed(2), 32)
    before, optimiser = float(loss(source, target).detach()), torch.optim.Adam(loss.parameters(), lr=1e-2)
    for _ in range(100):
        optimiser.zero_grad()
        loss(source, target).backward()
        optimiser.step()
    assert float(loss(source, target).detach()) < 1.5 * before < 0


def test_the_regressor_comes_from_its_generator_alone():
    state = torch.get_rng_state()
    one, same, other = (Decorrelation(5, 4, torch.Generator().manual_seed(seed)).regressor[0].weight for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), state)
    assert float(one.detach().abs().max()) == pytest.approx(5**-0.5, rel=0.01)
