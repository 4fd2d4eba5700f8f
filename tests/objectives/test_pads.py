"""PADS: the published draw of negatives, PPO by loops, what is held out, what the policy learns."""

import math
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch

from obdsd.objectives.negative_policy import FACTORS, METRICS, WINDOWS, NegativePolicy
from obdsd.objectives.pads import BinnedSampler, held_out
from tests.oracles import slow

with np.load(Path(__file__).parents[1] / "oracles" / "pads.npz") as file:
    ORACLE = {key.removeprefix("PADS/"): torch.from_numpy(file[key]) for key in file.files}


def oracles_sampler(seed=0):
    made = BinnedSampler(seed).double()
    made.p.copy_(ORACLE["distribution"])
    made.edges.copy_(ORACLE["support"][1:-1])
    return made


def test_bins_and_probabilities_are_the_published_ones():
    made, distances = oracles_sampler(), torch.cdist(ORACLE["z"], ORACLE["z"])
    others = ~torch.eye(24, dtype=torch.bool)
    assert torch.equal(torch.bucketize(distances, made.edges)[others], ORACLE["bins"][others])
    weights = made.weights(distances)
    torch.testing.assert_close(weights / weights.sum(dim=1, keepdim=True), ORACLE["probabilities"], rtol=1e-7, atol=1e-10)


def test_it_begins_with_the_bins_whose_middle_lies_in_the_range():
    """The published code adds 2/30 to a bin's left end, not half its width, and so begins one bin nearer."""
    made = BinnedSampler(0)
    torch.testing.assert_close(made.edges.double(), ORACLE["support"][1:-1])
    torch.testing.assert_close(made.p.double(), ORACLE["distribution"].roll(1), rtol=1e-6, atol=0)
    middles = [0.1 + (k + 0.5) * 1.3 / 29 for k in range(29)]
    assert (made.p > 0.1).tolist() == [0.3 <= middle <= 0.7 for middle in middles]
    published = [0.3 <= 0.1 + k * 1.3 / 29 + 2 / 30 <= 0.7 for k in range(29)]
    assert (ORACLE["distribution"] > 0.1).tolist() == published


def test_what_is_outside_falls_into_the_outer_bins():
    made = BinnedSampler(0)
    made.p.copy_(torch.arange(29) + 1.0)
    assert made.weights(torch.tensor([[0.0, 0.05, 0.14], [1.36, 1.5, 2.0]])).tolist() == [[1, 1, 1], [29, 29, 29]]


def test_triplets_follow_the_published_probabilities():
    """20,000 draws of each anchor by a χ² test at 1e-4; the seed is fixed."""
    made, labels, calls = oracles_sampler(seed=1), ORACLE["labels"], 20_000
    made.p.copy_(torch.linspace(1, 3, 29))
    z = ORACLE["z"]
    law = made.weights(torch.cdist(z, z))
    law = law / law.sum(dim=1, keepdim=True)
    anchor, negatives, positives = 3, torch.zeros(24), torch.zeros(24)
    for _ in range(calls):
        anchors, p, n = made(z, labels)
        assert anchors.tolist() == [*range(24)]
        negatives[n[anchor]] += 1
        positives[p[anchor]] += 1
    assert scipy.stats.chisquare(negatives, calls * law[anchor]).pvalue > 1e-4
    assert positives.nonzero().flatten().tolist() == [0, 1, 2, 3]  # the anchor itself too
    assert scipy.stats.chisquare(positives[:4]).pvalue > 1e-4
    assert negatives[:4].min() > 0  # of the anchor's class and the anchor itself, as published


def test_draws_are_a_function_of_seed_and_step():
    first, second = BinnedSampler(3), BinnedSampler(3)
    z, labels = ORACLE["z"].float(), ORACLE["labels"]
    draws = [first(z, labels)[2] for _ in range(3)]
    second.load_state_dict(first.state_dict())
    assert second.step == 3
    second.set_extra_state(torch.tensor(1))
    assert torch.equal(second(z, labels)[2], draws[1])
    assert not torch.equal(draws[1], draws[2])


def test_probabilities_stay_within_their_limits():
    made = BinnedSampler(0)
    for _ in range(600):
        made.adjust(torch.tensor([0.8] * 14 + [1.25] * 15))
    assert (made.p[:14] == 1e-25).all()
    assert (made.p[14:] == 1e25).all()
    negatives = made(ORACLE["z"].float(), ORACLE["labels"])[2]
    assert negatives.shape == (24,)


def policy(critic="return", bins=5, lr=0.01):
    return NegativePolicy(bins, seed=0, lr=lr, critic=critic).double()


def measured(value):
    return torch.full((len(METRICS),), value, dtype=torch.float64)


def test_its_state_is_the_last_measurements_their_means_the_probabilities_and_the_progress():
    made, p = policy(), torch.tensor([1.0, 3, 4, 0, 2], dtype=torch.float64)
    for call in range(40):
        made(measured(call), torch.tensor(0.0), p, 0.25)
    state, means = made.state, [sum(range(40 - window, 40)) / window for window in WINDOWS]
    recent = [float(call) for call in range(20, 40) for _ in METRICS]
    assert state.tolist() == pytest.approx([*recent, *(mean for mean in means for _ in METRICS), 0.1, 0.3, 0.4, 0, 0.2, 0.25])
    early = policy()
    early(measured(7.0), torch.tensor(0.0), p, 0.0)
    assert early.state[: 20 * 7].tolist() == [0.0] * 19 * 7 + [7.0] * 7
    assert early.state[20 * 7 : 24 * 7].tolist() == [7.0] * 4 * 7


@pytest.mark.parametrize("critic", ["return", "metric"])
def test_a_call_learns_by_ppo_as_with_loops_and_draws_by_the_old_policy(critic):
    """Nine calls; a second implementation does the same with torch's Adam and sums over bins, a number at a time."""
    made, p = policy(critic), torch.ones(5, dtype=torch.float64)
    twin, old = (policy(critic).policy for _ in range(2))
    adam = torch.optim.Adam(twin.parameters(), lr=0.01)
    before = None
    for call in range(9):
        metric = torch.tensor(math.sin(call), dtype=torch.float64)
        factors = made(measured(0.1 * call), metric, p, call / 9)
        if before is not None:
            state, drawn, drawn_by, then = before
            reward = (float(metric) > then) - (float(metric) < then)
            target = reward + 0.99 * float(twin(made.state)[1].detach())
            logs, value = twin(state)
            advantage, gain = target - float(value.detach()), 0.0
            for k, factor in enumerate(drawn):
                ratio = torch.exp(logs[k, factor] - drawn_by[k, factor])
                clipped = min(max(float(ratio.detach()), 0.8), 1.2)
                gain += ratio * advantage if float(ratio.detach()) * advantage <= clipped * advantage else clipped * advantage
            aim = target if critic == "return" else float(metric)
            loss = -gain / 5 + 0.5 * (value - aim) ** 2
            adam.zero_grad()
            loss.backward()
            adam.step()
            if call % 5 == 0:
                old.load_state_dict(twin.state_dict())
        for ours, truth in zip(made.policy.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(ours, truth, rtol=1e-6, atol=1e-9)
        with torch.no_grad():
            drawn_by = old(made.state)[0]
        drawn = [FACTORS.index(factor) for factor in factors.tolist()]
        assert made.log_drawn.tolist() == pytest.approx([float(drawn_by[k, factor]) for k, factor in enumerate(drawn)])
        before = made.state.clone(), drawn, drawn_by, float(metric)
    assert made.calls == 9


def test_the_gradient_of_ppo_is_that_of_finite_differences():
    made = policy()
    state, drawn = torch.randn(made.state.shape, generator=torch.Generator().manual_seed(0)).double(), torch.tensor([0, 1, 2, 1, 0])
    log_drawn = made.policy(state)[0].gather(1, drawn[:, None]).squeeze(1).detach() + torch.tensor([0.0, 0.1, -0.1, 0.5, -0.5])
    returned = made.policy(state)[1].detach() + 0.7

    def loss(bias):
        names = {"policy.actor.bias": bias}
        called = torch.func.functional_call(Loss(made), {f"made.{name}": value for name, value in names.items()}, ())
        return called

    class Loss(torch.nn.Module):
        def __init__(self, made):
            super().__init__()
            self.made = made

        def forward(self):
            return self.made.loss(state, drawn, log_drawn, returned, torch.tensor(0.0))

    bias = made.policy.actor.bias.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(loss, bias)
    (slope,) = torch.autograd.grad(loss(bias), bias)
    assert slope.view(5, 3).abs().sum(dim=1).tolist()[4] == 0  # its ratio is beyond the clip already, and would rise


def test_draws_are_a_function_of_the_seed_and_what_it_learned():
    one, other, p = policy(), policy(), torch.ones(5, dtype=torch.float64)
    before = torch.get_rng_state()
    for call in range(4):
        one(measured(call % 2), torch.tensor(call % 2).double(), p, 0.0)
    assert torch.equal(torch.get_rng_state(), before)
    other.load_state_dict(one.state_dict())
    for call in range(4, 9):
        pair = [each(measured(call % 3), torch.tensor(call % 3).double(), p, 0.0) for each in (one, other)]
        assert torch.equal(*pair)


@pytest.mark.parametrize(("lr", "least", "most"), [(0.01, 51, 60), (1e-9, 10, 30)])
def test_it_learns_which_bin_to_raise(lr, least, most):
    """A made-up world where raising bin 2 is what raises the metric; one that cannot learn raises it in a third of the calls."""
    made, p = NegativePolicy(5, seed=0, lr=lr, critic="return"), torch.ones(5)
    metric, raised = torch.tensor(0.0), []
    for _ in range(300):
        factors = made(torch.zeros(len(METRICS)), metric.clone(), p, 0.0)
        metric += {0.8: -1.0, 1.0: 0.0, 1.25: 1.0}[round(float(factors[2]), 2)]
        raised.append(float(factors[2]) > 1)
    assert least <= sum(raised[-60:]) <= most


def test_the_same_share_of_each_class_is_held_out():
    members = [np.arange(start, start + size) for start, size in ((0, 60), (60, 41), (101, 10), (111, 4), (115, 3), (118, 2))]
    chosen = held_out(members, 0.15, False, seed=0)
    assert [len(items) for items in chosen] == [9, 6, 2, 2]  # three or two images leave no pair to train on
    assert all(np.isin(items, own).all() and len(set(items)) == len(items) for items, own in zip(chosen, members, strict=False))
    assert [items.tolist() for items in held_out(members, 0.15, False, seed=0)] == [items.tolist() for items in chosen]
    assert [items.tolist() for items in held_out(members, 0.15, False, seed=1)] != [items.tolist() for items in chosen]


def test_or_the_last_classes():
    members = [np.arange(3 * c, 3 * c + 3) for c in range(30)]
    assert [items.tolist() for items in held_out(members, 0.1, True, seed=0)] == [items.tolist() for items in members[27:]]
    assert len(held_out(members[:10], 0.1, True, seed=0)) == 2


def test_half_precision_rows_are_sampled_in_float32():
    assert [len(part) for part in BinnedSampler(0)(slow.unit_rows(8, 4, seed=4).half(), torch.arange(4).repeat(2))] == [8, 8, 8]
