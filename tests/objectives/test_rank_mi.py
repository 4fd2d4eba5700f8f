"""RankMI-style: by definition with loops, gradients, the network's own optimiser, what it comes to know. It has no published numbers."""

import copy
import math

import pytest
import torch
from torch.nn.functional import normalize

from obdsd import objectives
from obdsd.objectives.own_adam import OwnAdam
from obdsd.objectives.rank_mi import minus_bound
from tests.oracles import slow
from tests.refusing import refused

Z, LABELS = slow.unit_rows(9, 4, seed=4, dtype=torch.float64), torch.tensor([0, 0, 0, 1, 1, 2, 2, 3, 3])
TRIPLETS = torch.tensor([0, 1, 3, 5, 8]), torch.tensor([1, 2, 4, 6, 7]), torch.tensor([3, 4, 0, 1, 6])


def by_definition(network, pairs, matching):
    """-J of pairs of rows, a pair at a time; the network's formula is written anew."""
    a, c, w, c0 = network

    def value(x, y):
        d = (x - y).square().sum().sqrt()
        return sum(w[k] * (a[k] * d + c[k]).clamp(min=0) for k in range(len(a))) + c0[0]

    of_matching = [math.e ** -value(x, y) for (x, y), same in zip(pairs, matching, strict=True) if same]
    of_others = [math.e ** value(x, y) for (x, y), same in zip(pairs, matching, strict=True) if not same]
    return sum((1 + x).log() for x in of_matching) / len(of_matching) + sum((1 + x).log() for x in of_others) / len(of_others)


def still(**settings):
    return objectives.rankmi(width=5, **settings).double().eval()


def test_value_and_gradient_by_definition():
    made, z = still(), Z.clone().requires_grad_()
    loss = made(z, LABELS, TRIPLETS)
    (slope,) = torch.autograd.grad(loss, z)
    anchors, positives, negatives = TRIPLETS
    pairs = [(z[i], z[j]) for ends in (positives, negatives) for i, j in zip(anchors, ends, strict=True)]
    truth = by_definition([*made.loss.parameters()], pairs, [True] * 5 + [False] * 5)
    torch.testing.assert_close(loss, truth)
    torch.testing.assert_close(slope, torch.autograd.grad(truth, z)[0])
    assert slope.abs().max() > 0.01


def test_gradients_are_those_of_finite_differences():
    made = still()
    assert torch.autograd.gradcheck(lambda z: made(normalize(z, dim=1), LABELS, TRIPLETS), Z.clone().requires_grad_(), atol=1e-6)


@pytest.mark.parametrize("updates", [1, 3])
def test_the_network_takes_steps_of_adam_on_all_pairs_before_the_loss(updates):
    made, z = still(updates=updates), Z.clone().requires_grad_()
    network = [parameter.detach().clone().requires_grad_() for parameter in made.loss.parameters()]
    adam = torch.optim.Adam(network, lr=1e-3)
    pairs, matching = zip(*(((Z[i], Z[j]), LABELS[i] == LABELS[j]) for j in range(9) for i in range(j)), strict=True)
    for _ in range(updates):
        adam.zero_grad()
        by_definition(network, pairs, matching).backward()
        adam.step()
    loss = made.train()(z, LABELS, TRIPLETS)
    for ours, truth in zip(made.loss.parameters(), network, strict=True):
        torch.testing.assert_close(ours, truth.detach(), rtol=1e-7, atol=1e-10)
    assert torch.equal(loss, made.eval()(z, LABELS, TRIPLETS))  # of the network after its steps
    loss.backward()
    assert all(parameter.grad is None for parameter in made.parameters())  # no other optimiser moves it
    assert made.parameter_groups() == []


def test_the_own_optimiser_is_torchs_adam_over_many_steps_also_after_a_copy():
    generator = torch.Generator().manual_seed(0)
    own, torchs = ([torch.ones(3, 2, dtype=torch.float64), torch.ones(4, dtype=torch.float64)] for _ in range(2))
    ours, theirs = OwnAdam(own, lr=0.1).double(), torch.optim.Adam([each.requires_grad_() for each in torchs], lr=0.1)
    for step in range(20):
        gradients = [torch.randn(each.shape, generator=generator, dtype=torch.float64) for each in own]
        for each, gradient in zip(torchs, gradients, strict=True):
            each.grad = gradient
        theirs.step()
        ours.step(own, gradients)
        if step == 9:
            other = OwnAdam(own, lr=0.1).double()
            other.load_state_dict(ours.state_dict())
            ours = other
    for one, other in zip(own, torchs, strict=True):
        torch.testing.assert_close(one, other.detach())


def test_the_network_comes_to_know_the_log_ratio_of_the_densities():
    """Its best is the log of p(d | matching) / p(d | other): matching distances are near 0.5 here, others near 1.3."""
    generator = torch.Generator().manual_seed(1)
    made = objectives.rankmi(network_lr=3e-3)
    centres = normalize(torch.randn(40, 16, generator=generator), dim=1)
    for _ in range(300):
        chosen = torch.randperm(40, generator=generator)[:12].repeat_interleave(2)
        z = normalize(centres[chosen] + 0.1 * torch.randn(24, 16, generator=generator), dim=1)
        made(z, chosen)
    near, border, far = made.loss.value(torch.tensor([0.5, 0.9, 1.3])).tolist()
    assert near > 2 > border > -2 > far
    assert float(minus_bound(made.loss.value(torch.tensor([0.5])), made.loss.value(torch.tensor([1.3])))) < 0.2


def test_it_begins_as_a_falling_function_from_the_seed_alone():
    before = torch.get_rng_state()
    first, same, other = (objectives.rankmi(seed=seed).loss for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    d = torch.linspace(0, 2, 50)
    assert (first.value(d).diff() < 0).all()
    assert float(first.value(torch.ones(1))) == pytest.approx(0, abs=1e-6)
    assert torch.equal(first.value(d), same.value(d))
    assert not torch.equal(first.value(d), other.value(d))


@pytest.mark.parametrize("labels", [torch.zeros(9).long(), torch.arange(9)])
def test_without_both_kinds_of_pairs_nothing_is_learned(labels):
    made, z = objectives.rankmi(), Z.clone().requires_grad_()
    before = copy.deepcopy(made.loss.state_dict())
    loss = made(z, labels)
    loss.backward()
    assert loss == 0
    assert (z.grad == 0).all()
    assert all(torch.equal(value, before[name]) for name, value in made.loss.state_dict().items())


BAD = [
    (lambda: objectives.rankmi(width=0), "width=0 must be 1 or more; try 64"),
    (lambda: objectives.rankmi(network_lr=0), "network_lr=0 must be a positive finite number; try 1e-3"),
    (lambda: objectives.rankmi(network_lr="x"), "network_lr='x' is a text; pass a number, without quotes"),
    (lambda: objectives.rankmi(updates=0), "updates=0 must be 1 or more; try 1"),
    (lambda: objectives.rankmi()(2 * Z, LABELS), "embeddings=rows off by 1 must be of unit length within 0.001"),
]
test_bad_input_is_refused_in_one_clear_line = refused(BAD)
