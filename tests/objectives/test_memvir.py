"""MemVir: the authors' numbers, step by step; a literal version that keeps lists; the base losses when nothing is past."""

import copy
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from obdsd import SelfDistillation, objectives
from obdsd.method.teachers import NoTeacher
from obdsd.objectives.memvir import MemVir, extended
from tests.made_up import of_classes
from tests.oracles import slow
from tests.refusing import refused

with np.load(Path(__file__).parents[1] / "oracles" / "memvir.npz") as file:
    ORACLE = {key.removeprefix("MemVir/"): torch.from_numpy(file[key]) for key in file.files}
STEPS, CLASSES = int(ORACLE["steps"]), int(ORACLE["C"])
LOSSES = {
    "norm-softmax": lambda dim: objectives.norm_softmax(4, dim, scale=5.0),
    "proxy-nca": lambda dim: objectives.proxy_nca(4, dim, scale=2.0),
    "proxy-anchor": lambda dim: objectives.proxy_anchor(4, dim),
}
anyone = pytest.mark.parametrize("name", LOSSES)


class Model(nn.Linear):
    def __init__(self, dim):
        super().__init__(dim, dim)
        self.dim = dim


def memvir(loss=LOSSES["norm-softmax"], dim=5, classes=4, epochs=2, batch=6, **settings):
    settings = {"sets": 3, "gap": 1, "warm": 0, **settings}
    system = MemVir(Model(dim), loss, NoTeacher(), SelfDistillation(0.0), of_classes(classes), epochs, **settings).double()
    system.check(99)
    system.make_room(batch)
    system.begin_epoch(0.0, lambda model: None)
    return system


def assert_same(ours, truth):
    torch.testing.assert_close(ours, truth, rtol=1e-7, atol=1e-10)


PUBLISHED = {
    "norm-softmax": ("NormSoftmax", lambda dim: objectives.norm_softmax(CLASSES, dim, scale=float(ORACLE["scale_softmax"]))),
    "proxy-nca": ("ProxyNCA", lambda dim: objectives.proxy_nca(CLASSES, dim, scale=float(ORACLE["scale_nca"]))),
    "norm-softmax of twice the scale": (
        "ProxyNCA",
        lambda dim: objectives.norm_softmax(CLASSES, dim, scale=2 * float(ORACLE["scale_nca"])),
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_authors_numbers(name):
    """Nine steps from an empty memory, in each of which the proxies are others; one batch is short."""
    key, loss = PUBLISHED[name]
    system = memvir(loss, 16, CLASSES, batch=16, sets=int(ORACLE["N"]), gap=int(ORACLE["M"]))
    for step in range(STEPS):
        z = ORACLE[f"step{step}/z"].clone().requires_grad_()
        system.objective.loss.proxies.data = ORACLE[f"step{step}/proxies"].T.clone()
        value = system.base_loss(z, ORACLE[f"step{step}/labels"])
        of_rows, of_proxies = torch.autograd.grad(value, [z, system.objective.loss.proxies])
        assert_same(value.detach(), ORACLE[f"step{step}/value_{key}"])
        assert_same(of_rows, ORACLE[f"step{step}/grad_z_{key}"])
        assert_same(of_proxies.T, ORACLE[f"step{step}/grad_proxies_{key}"])


def softmax(scale):
    def loss(z, labels, P):
        terms = []
        for row, label in zip(z, labels, strict=True):
            logits = [scale * (row @ p) for p in P]
            terms.append(-torch.log(logits[label].exp() / sum(logit.exp() for logit in logits)))
        return sum(terms) / len(terms)

    return loss


def nca(scale):
    def loss(z, labels, P):
        terms = []
        for row, label in zip(z, labels, strict=True):
            weights = [torch.exp(-scale * (row - p).square().sum()) for p in P]
            terms.append(-torch.log(weights[label] / sum(weights)))
        return sum(terms) / len(terms)

    return loss


def anchor(z, labels, P, alpha=32, margin=0.1):
    pull = push = 0.0
    for number, p in enumerate(P):
        own = [torch.exp(-alpha * (row @ p - margin)) for row, label in zip(z, labels, strict=True) if label == number]
        others = [torch.exp(alpha * (row @ p + margin)) for row, label in zip(z, labels, strict=True) if label != number]
        pull = pull + torch.log(1 + sum(own)) if own else pull
        push = push + torch.log(1 + sum(others))
    return pull / len({*labels}) + push / len(P)


LITERAL = {"norm-softmax": softmax(5.0), "proxy-nca": nca(2.0), "proxy-anchor": anchor}


@anyone
@pytest.mark.parametrize(("sets", "gap"), [(3, 1), (1, 0), (2, 2)])
def test_value_and_gradients_by_definition(name, sets, gap):
    """All batches and proxies are kept in a list; the gradient is taken of today's rows and proxies alone."""
    system, past, generator = memvir(LOSSES[name], sets=sets, gap=gap), [], torch.Generator().manual_seed(0)
    most = 0
    for step in range(8):
        z = slow.unit_rows(6 - step % 2, 5, seed=step, dtype=torch.float64).requires_grad_()
        labels = torch.randint(0, 4, (len(z),), generator=generator)
        system.objective.loss.proxies.data = torch.randn(4, 5, generator=generator).double()
        proxies = system.objective.loss.proxies
        rows, all_labels, all_proxies = [*z], labels.tolist(), [p / p.norm() for p in proxies]
        chosen = [past[-n * (gap + 1)] for n in range(1, sets + 1) if n * (gap + 1) <= len(past)]
        for n, (old_z, old_labels, old_proxies) in enumerate(chosen, start=1):
            rows += [*old_z]
            all_labels += [label + 4 * n for label in old_labels]
            all_proxies += [p / p.norm() for p in old_proxies]
        most = max(most, len(chosen))
        truth = LITERAL[name](rows, all_labels, all_proxies)
        ours = system.base_loss(z, labels)
        for one, other in zip(*(torch.autograd.grad(loss, [z, proxies]) for loss in (ours, truth)), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-9)
        assert_same(ours.detach(), truth.detach())
        past.append((z.detach(), labels.tolist(), proxies.detach().clone()))
    assert most == sets


@anyone
def test_without_a_past_it_is_the_base_loss(name):
    z, labels = slow.unit_rows(6, 5, seed=1, dtype=torch.float64), torch.tensor([0, 0, 1, 1, 3, 3])
    system = memvir(LOSSES[name])
    alone = system.objective(z, labels)
    for _ in range(2):  # at the second the step before lies in the gap
        assert_same(system.base_loss(z, labels), alone)
    assert not torch.allclose(system.base_loss(z, labels), alone, atol=1e-3)


def test_nothing_is_remembered_in_the_first_epochs():
    z, labels = slow.unit_rows(6, 5, seed=1, dtype=torch.float64), torch.tensor([0, 0, 1, 1, 3, 3])
    system = memvir(epochs=4, warm=2)
    for epoch in range(4):
        system.begin_epoch(epoch / 4, lambda model: None)
        system.base_loss(z, labels)
        assert system.step == max(0, epoch - 1)


@anyone
def test_gradients_are_those_of_finite_differences(name):
    loss, labels = LOSSES[name](5).double().loss, torch.tensor([0, 0, 1, 7, 4, 7])
    free = [torch.randn(n, 5, generator=torch.Generator().manual_seed(n), dtype=torch.float64).requires_grad_() for n in (6, 8)]
    if name == "proxy-anchor":
        loss.alpha = 4  # else finite differences are too coarse
    assert torch.autograd.gradcheck(lambda z, p: extended(loss, normalize(z, dim=1), labels, p), free, atol=1e-6)


def test_a_state_dict_holds_all():
    first, second = memvir(), memvir()
    for step in range(3):
        first.base_loss(slow.unit_rows(6, 5, seed=step, dtype=torch.float64), torch.tensor([0, 0, 1, 1, 3, 3]))
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    last = slow.unit_rows(6, 5, seed=9, dtype=torch.float64), torch.tensor([0, 0, 1, 2, 3, 3])
    assert torch.equal(first.base_loss(*last), second.base_loss(*last))


def test_norm_softmax_by_hand_and_its_proxies():
    loss = objectives.norm_softmax(2, 2, scale=1.0)
    loss.loss.proxies.data = torch.tensor([[3.0, 0.0], [0.0, 0.5]])
    assert float(loss(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1])).detach()) == pytest.approx(math.log(1 + math.exp(-1)))
    torch.testing.assert_close(loss.proxies_of(torch.tensor([1])), torch.tensor([[0.0, 1.0]]))
    assert [(group["lr"], group["eps"]) for group in loss.parameter_groups()] == [(1e-2, 1e-2)]
    before = torch.get_rng_state()
    one, same, other = (objectives.norm_softmax(9, 5, seed=seed).loss.proxies for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), before)


BAD = [
    (lambda: memvir(sets=0), "sets=0 must be 1 or more; try 45, or system=standard for none"),
    (lambda: memvir(gap=-1), "gap=-1 must be 0 or more; try 10"),
    (lambda: memvir(warm=-1), "warm=-1 must be 0 or more; use 0 to begin at once"),
    (lambda: memvir(warm=40, epochs=20), "warm=40 leaves no epoch of 20 in which the past takes part; try 0, or train longer"),
    (
        lambda: memvir(lambda dim: objectives.multi_similarity()),
        "remembers one proxy a class, and this loss has none; use loss=norm-softmax,",
    ),
    (lambda: memvir(lambda dim: objectives.soft_triple(4, dim)), "remembers one proxy a class, and this loss has none"),
    (lambda: objectives.norm_softmax(4, 5, scale=0), "scale=0 must be above 0 and finite; try 23"),
    (lambda: objectives.norm_softmax(4, 5, scale="23"), "scale='23' is a text; pass a number, without quotes"),
    (lambda: objectives.norm_softmax(0, 5), "num_classes, dim=(0, 5) must be 1 or more"),
    (lambda: objectives.proxy_nca(4, 5, scale=-1), "scale=-1 must be above 0 and finite; try 9"),
    (lambda: objectives.proxy_nca(4, 5, scale="9"), "scale='9' is a text; pass a number, without quotes"),
]
test_bad_input_is_refused_in_one_clear_line = refused(BAD)
