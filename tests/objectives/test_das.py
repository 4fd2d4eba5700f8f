"""DAS: the authors' numbers, a literal version with loops, its limits, where its gradients go."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from obdsd import SelfDistillation, objectives
from obdsd.method.teachers import NoTeacher
from obdsd.objectives.das import DAS, produce
from obdsd.objectives.no_loss import NoLoss
from tests.made_up import of_classes
from tests.oracles import slow
from tests.refusing import refused

with np.load(Path(__file__).parents[1] / "oracles" / "das.npz") as file:
    ORACLE = {key: torch.from_numpy(file[key]) for key in file.files}
LABELS = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 4, 4, 0])
Z = slow.unit_rows(13, 6, seed=4, dtype=torch.float64)
Z[4] = Z[3]  # one image twice: no difference


class Model(nn.Linear):
    def __init__(self, dim):
        super().__init__(dim, dim)
        self.dim = dim


def das(dim=6, classes=6, loss=lambda dim: objectives.multi_similarity(), seed=0, **settings):
    return DAS(Model(dim), loss, NoTeacher(), SelfDistillation(0.0), of_classes(classes), seed, **settings).double()


def assert_same(ours, truth):
    torch.testing.assert_close(ours, truth, rtol=1e-7, atol=1e-10)


def after(step):
    """The system of the oracle after its first steps, by what they were called with."""
    system = das(16, 7, copies=3, scaled=4, low=0.5, high=2.0, moved=0.1)
    for number in range(1, step + 1):
        system.see(ORACLE[f"DAS/step{number}/z"], ORACLE[f"DAS/step{number}/labels"])
    return system


def produced_there(step, system, z):
    """The rows that the authors' draws produce."""
    labels, row = ORACLE[f"DAS/step{step}/labels"], ORACLE[f"DAS/step{step}/bank_row"]
    there = system.differences.any(dim=2).sum(dim=1)[labels]
    share = torch.where(there > 0, (row + 0.5) / there, 0.0)
    moves = 0.1 * system.drawn(labels, share)
    return produce(z, ORACLE[f"DAS/step{step}/topk"], ORACLE[f"DAS/step{step}/scale"], moves)


@pytest.mark.parametrize("step", [1, 2])
def test_the_authors_state_and_rows(step):
    system = after(step)
    assert torch.equal(system.frequency, ORACLE[f"DAS/step{step}/frequency"])
    assert torch.equal(system.pointer, ORACLE[f"DAS/step{step}/pointer"])
    assert_same(system.differences, ORACLE[f"DAS/step{step}/banks"])
    labels, counts = ORACLE[f"DAS/step{step}/labels"], system.frequency
    for ours, theirs, label in zip(system.frequent(labels), ORACLE[f"DAS/step{step}/topk"], labels, strict=True):
        assert counts[label][ours].tolist() == counts[label][theirs].tolist()  # of equal counts either may come first
    assert_same(produced_there(step, system, ORACLE[f"DAS/step{step}/z"]), ORACLE[f"DAS/step{step}/produced"])
    assert torch.equal(labels.repeat(3), ORACLE[f"DAS/step{step}/produced_labels"])


@pytest.mark.parametrize(("constant", "ending"), [(False, ""), (True, "_detach")])
def test_the_authors_loss_and_gradient(constant, ending, monkeypatch):
    """Their draws in the place of ours; the batch of the second step, which the state has seen."""
    system, z, labels = after(2), ORACLE["DAS/step2/z"].clone().requires_grad_(), ORACLE["DAS/step2/labels"]
    monkeypatch.setattr(system, "see", lambda z, labels: None)
    made = produced_there(2, system, z)
    monkeypatch.setattr(system, "produced", lambda z, labels: made.detach() if constant else made)
    loss = system.base_loss(z, labels)
    assert_same(loss.detach(), ORACLE[f"DAS/ms/value{ending}"])
    assert_same(torch.autograd.grad(loss, z)[0], ORACLE[f"DAS/ms/grad_z{ending}"])


def test_the_authors_ring():
    system = das(4, 1, scaled=1)
    for step in range(4):
        system.see(ORACLE[f"DAS_bank/step{step}/z"], torch.zeros(3, dtype=torch.long))
        assert_same(system.differences[0], ORACLE[f"DAS_bank/step{step}/bank"])
        assert int(system.pointer) == int(ORACLE[f"DAS_bank/step{step}/pointer"])


def test_the_oracle_is_that_of_the_settings():
    settings = {"num_produce": 3, "num_scale": 4, "scale_left": 0.5, "scale_right": 2.0, "mts_scale": 0.1, "bank_size": 10}
    assert {name: ORACLE[f"DAS/{name}"].item() for name in settings} == settings


class Literal:
    """The state, with loops: counts, and a list of differences a class."""

    def __init__(self, classes, dim, scaled, bank):
        self.counts = [[0] * dim for _ in range(classes)]
        self.rings, self.pointers = [[None] * bank for _ in range(classes)], [0] * classes
        self.scaled, self.bank = scaled, bank

    def see(self, z, labels):
        for row, label in zip(z, labels.tolist(), strict=True):
            for j in sorted(range(len(row)), key=lambda j: -row[j])[: self.scaled]:
                self.counts[label][j] += 1
        for label in sorted({*labels.tolist()}):
            members = [i for i in range(len(z)) if labels[i] == label]
            new = [z[a] - z[b] for a in members for b in members if (z[a] != z[b]).any()]
            if len(new) > self.bank:
                self.rings[label] = new[-self.bank :]
                continue
            for difference in new:
                self.rings[label][self.pointers[label]] = difference
                self.pointers[label] = (self.pointers[label] + 1) % self.bank


@pytest.mark.parametrize(("bank", "scaled"), [(10, 3), (3, 1), (1, 6), (12, 2)])
def test_the_state_by_definition(bank, scaled):
    """Classes of one to five rows, among them one image twice; more differences than the ring holds, fewer, and as many."""
    system, literal = das(bank=bank, scaled=scaled), Literal(6, 6, scaled, bank)
    generator = torch.Generator().manual_seed(0)
    for step in range(5):
        z = Z if step == 0 else slow.unit_rows(13, 6, seed=step, dtype=torch.float64)
        labels = LABELS[torch.randperm(13, generator=generator)] if step else LABELS
        for each in (system, literal):
            each.see(z, labels)
        assert system.frequency.tolist() == literal.counts
        assert system.pointer.tolist() == literal.pointers
        there = [torch.stack([row if row is not None else torch.zeros(6).double() for row in ring]) for ring in literal.rings]
        torch.testing.assert_close(system.differences, torch.stack(there))


def test_every_row_is_produced_by_definition():
    """The factors lie where they should, on the class's coordinates alone; the difference is one of the class's."""
    system = das(scaled=2, low=0.5, high=2.0, moved=0.1, copies=5)
    system.see(Z, LABELS)
    made = system.produced(Z, LABELS).view(5, 13, 6)
    torch.testing.assert_close(made.norm(dim=2), torch.ones(5, 13, dtype=torch.float64))
    met = set()
    for t in range(5):
        for i, label in enumerate(LABELS.tolist()):
            coordinates = sorted(range(6), key=lambda j: (-int(system.frequency[label][j]), j))[:2]
            others = [j for j in range(6) if j not in coordinates]
            members = [k for k in range(13) if LABELS[k] == label]
            moves = [0.1 * (Z[a] - Z[b]) for a in members for b in members if (Z[a] != Z[b]).any()][-10:] or [torch.zeros(6).double()]
            fits = []
            for number, move in enumerate(moves):
                length = ((Z[i] + move)[others] / made[t, i][others]).mean()
                factors = (length * made[t, i] - move)[coordinates] / Z[i][coordinates]
                same = torch.allclose(length * made[t, i][others], (Z[i] + move)[others], atol=1e-9)
                if same and bool(((factors >= 0.5) & (factors <= 2.0)).all()):
                    fits.append(number)
            assert len(fits) == 1, (t, i)
            met.add((label, fits[0]))
    assert len(met) > 10  # not always the first


def test_draws_are_uniform_and_of_seed_and_step():
    system = das(low=0.5, high=2.0)
    system.see(Z, LABELS)
    again, other = das(low=0.5, high=2.0), das(low=0.5, high=2.0, seed=1)
    for each in (again, other):
        each.see(Z, LABELS)
    before = torch.get_rng_state()
    first = system.produced(Z, LABELS)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, again.produced(Z, LABELS))
    assert not torch.equal(first, other.produced(Z, LABELS))
    assert not torch.equal(first, system.produced(Z, LABELS))  # another step
    share = (torch.arange(1000).double() / 1000)[:, None].expand(-1, 13)
    drawn = system.drawn(LABELS, share)[:, 0]  # of the first class, which has twelve differences and keeps ten
    counts = torch.unique(drawn, dim=0, return_counts=True)[1]
    assert counts.tolist() == [100] * 10


def test_looking_draws_the_same_again():
    system = das().eval()
    assert torch.equal(system.produced(Z, LABELS), system.produced(Z, LABELS))


def test_rows_that_are_left_as_they_are_repeat_the_batch():
    still = das(low=1.0, high=1.0, moved=0.0, copies=2)
    loss = still.base_loss(Z, LABELS)
    assert_same(loss, objectives.multi_similarity()(Z.repeat(3, 1), LABELS.repeat(3)))
    both = das(low=1.0, high=1.0, moved=0.0, copies=2, both=True)
    assert_same(both.base_loss(Z, LABELS), loss + objectives.multi_similarity()(Z, LABELS))


def test_with_proxies_the_produced_rows_count_as_any_other():
    def loss(dim):
        return objectives.proxy_anchor(6, dim)

    system = das(loss=loss, low=0.5, high=2.0)
    other = copy.deepcopy(system)
    other.see(Z, LABELS)
    rows = torch.cat([Z, other.produced(Z, LABELS)])
    assert_same(system.base_loss(Z, LABELS), loss(6).double()(rows, LABELS.repeat(4)))


@pytest.mark.parametrize("constant", [True, False])
def test_gradients_are_those_of_finite_differences(constant):
    """Differences pass no gradient, and constant rows neither, so they are held still."""
    system, z = das(low=0.5, high=2.0, moved=0.1, constant=constant), slow.unit_rows(13, 6, seed=9, dtype=torch.float64)
    system.see(z, LABELS)
    made = copy.deepcopy(system).produced(z, LABELS)
    draws = torch.Generator().manual_seed(0)
    factors, share = torch.rand(3, 13, 4, generator=draws).double() + 0.5, torch.rand(3, 13, generator=draws).double()
    moves = 0.1 * system.drawn(LABELS, share)

    def loss(free):
        rows = normalize(free, dim=1)
        more = made if constant else produce(rows, system.frequent(LABELS), factors, moves)
        return system.objective(torch.cat([rows, more]), LABELS.repeat(4))

    assert torch.autograd.gradcheck(loss, z.clone().requires_grad_(), atol=1e-6)


@pytest.mark.parametrize("constant", [True, False])
def test_constant_rows_pass_no_gradient_and_the_state_none_at_all(constant):
    system = das(constant=constant)
    z = Z.clone().requires_grad_()
    system.base_loss(z, LABELS).backward()
    assert system.produced(z, LABELS).requires_grad == (not constant)
    assert not any(state.requires_grad for state in (system.frequency, system.differences))


def test_a_state_dict_holds_all():
    first, second = das(seed=3), das(seed=3)
    first.base_loss(Z, LABELS)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    one, other = (each.base_loss(Z.flip(0), LABELS.flip(0)) for each in (first, second))
    assert torch.equal(one, other)
    assert not torch.equal(one, das(seed=3).base_loss(Z.flip(0), LABELS.flip(0)))


BAD = [
    (lambda: das(copies=0), "copies=0 must be 1 or more; try 3, or system=standard for none"),
    (lambda: das(scaled=7), "scaled=7 must lie in 1..6, the length of the rows; try 4"),
    (lambda: das(scaled=0), "scaled=0 must lie in 1..6"),
    (lambda: das(bank=0), "bank=0 must be 1 or more; try 10"),
    (lambda: das(low=2.0, high=0.5), "low, high=(2.0, 0.5) must be factors above 0, the larger one last; try 0.99, 1.01"),
    (lambda: das(low=0.0), "low, high=(0.0, 1.01) must be factors above 0"),
    (lambda: das(low="0.5"), "low='0.5' is a text; pass a number, without quotes"),
    (lambda: das(moved=-0.1), "moved=-0.1 must be 0 or more and finite; try 0.01"),
    (lambda: das(loss=lambda dim: NoLoss()).check(13), "adds rows to a base loss, and there is none; use a loss beside it"),
]
test_bad_input_is_refused_in_one_clear_line = refused(BAD)
