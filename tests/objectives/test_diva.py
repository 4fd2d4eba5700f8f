"""DiVA: the authors' numbers of its separation, its contrast and its margin; literal definitions; the triplets that are drawn."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from obdsd import objectives
from obdsd.objectives.decorrelation import Decorrelation
from obdsd.objectives.diva import OTHERS, contrast
from obdsd.objectives.margin import MarginOfTriplets
from obdsd.objectives.samplers import intra_triplets, log_inverse_density, permuted_triplets, three_class_triplets
from tests.oracles import slow, systems_apart

with np.load(Path(__file__).parents[1] / "oracles" / "mic_diva_dcml.npz") as file:
    ORACLE = {key: torch.from_numpy(file[key]) for key in file.files}
LABELS = torch.tensor([0, 0, 1, 1, 2, 2, 3, 0])
DISTANCES = torch.cdist(slow.unit_rows(8, 5, seed=1), slow.unit_rows(8, 5, seed=1))


def assert_same(ours, truth):
    torch.testing.assert_close(ours, truth, rtol=1e-7, atol=1e-10)


def test_the_authors_numbers_of_the_separation():
    heads = {name: ORACLE[f"DiVA_separation/z_{name}"].clone().requires_grad_() for name in ("discriminative", *OTHERS)}
    terms = []
    for name in OTHERS:
        w1, b1, w2, b2 = (ORACLE[f"DiVA_separation/{name}-discriminative/{part}"] for part in ("w1", "b1", "w2", "b2"))
        loss = Decorrelation(16, 16, torch.Generator(), 24).double()
        loss.regressor.load_state_dict({"0.weight": w1, "0.bias": b1, "2.weight": w2, "2.bias": b2})
        terms.append(1500 * loss(heads[name], heads["discriminative"]))
    value = torch.stack(terms).sum()
    assert_same(value.detach(), ORACLE["DiVA_separation/value"])
    for name, slope in zip(heads, torch.autograd.grad(value, [*heads.values()]), strict=True):
        assert_same(slope, ORACLE[f"DiVA_separation/grad_{name}"])


@pytest.mark.parametrize(("key", "published"), [("DiVA_moco", True), ("DiVA_moco_fixed", False)])
def test_the_authors_numbers_of_the_contrast(key, published):
    query, keys, queue = (ORACLE[f"{key}/{name}"] for name in ("query", "keys", "queue"))
    assert [float(ORACLE[f"{key}/{name}"]) for name in ("temperature", "lower", "upper")] == [0.01, 0.5, 1.4]
    value = contrast(query.requires_grad_(), keys, queue, 0.01, published)
    assert_same(value.detach(), ORACLE[f"{key}/value"])
    assert_same(torch.autograd.grad(value, query)[0], ORACLE[f"{key}/grad_query"])


def test_the_authors_numbers_of_the_margin():
    """Some triplets are one row three times: they count, move β, and give rows nothing."""
    z, labels, triplets = (ORACLE[f"DiVA_margin/{name}"].clone() for name in ("z", "labels", "triplets"))
    loss = MarginOfTriplets(8).double()
    loss.beta.data = ORACLE["DiVA_margin/beta"]
    value = loss(z.requires_grad_(), labels, tuple(triplets.T))
    assert_same(value.detach(), ORACLE["DiVA_margin/value"])
    for name, slope in zip(("z", "beta"), torch.autograd.grad(value, [z, loss.beta]), strict=True):
        assert_same(slope, ORACLE[f"DiVA_margin/grad_{name}"])


def test_the_margin_by_definition_and_that_of_the_usual_triplets():
    z, beta = slow.unit_rows(8, 5, seed=1, dtype=torch.float64), torch.tensor([1.1, 1.3, 0.9, 1.0], dtype=torch.float64)
    triplets = [(0, 1, 2), (3, 3, 3), (4, 5, 5), (6, 0, 6), (2, 3, 7)]
    loss = MarginOfTriplets(4).double()
    loss.beta.data = beta
    assert_same(loss(z, LABELS, torch.tensor(triplets).unbind(1)).detach(), systems_apart.margin(z, LABELS, beta, triplets))
    usual = objectives.margin(4).double()
    usual.loss.beta.data = beta
    drawn = usual.miner(z, LABELS)
    torch.testing.assert_close(loss(z, LABELS, drawn), usual(z, LABELS, drawn), rtol=1e-6, atol=0)  # whose distances have no 1e-8
    nothing = torch.zeros(0, dtype=torch.int64)
    assert float(loss(z, LABELS, (nothing, nothing, nothing)).detach()) == 0


def test_gradients_are_those_of_finite_differences():
    z, beta = slow.unit_rows(8, 5, seed=1, dtype=torch.float64).requires_grad_(), torch.full((4,), 1.05, dtype=torch.float64)
    triplets, loss = torch.tensor([(0, 1, 2), (3, 2, 4), (4, 5, 5), (7, 0, 6)]).unbind(1), MarginOfTriplets(4).double()

    def of(z, beta):
        return torch.func.functional_call(loss, {"beta": beta}, (z, LABELS, triplets))

    assert torch.autograd.gradcheck(of, (z, beta.requires_grad_()))
    far, keys = slow.unit_rows(9, 5, seed=4, dtype=torch.float64), slow.unit_rows(8, 5, seed=5, dtype=torch.float64)
    w = systems_apart.contrast(z.detach(), keys, far, 0.2)
    assert_same(contrast(z, keys, far, 0.2).detach(), w)


@pytest.mark.parametrize("published", [False, True])
def test_the_contrast_by_definition(published):
    """The weights get no gradient: the literal version holds them fixed."""
    query, keys, queue = (slow.unit_rows(count, 6, seed=seed, dtype=torch.float64) for count, seed in ((7, 1), (7, 2), (40, 3)))
    leaves = [query.clone().requires_grad_() for _ in range(2)]
    ours, truth = contrast(leaves[0], keys, queue, 0.05, published), systems_apart.contrast(leaves[1], keys, queue, 0.05, published)
    assert_same(ours, truth)
    assert_same(*(torch.autograd.grad(value, leaf)[0] for value, leaf in zip((ours, truth), leaves, strict=True)))
    assert contrast(query, keys, queue, 0.05).item() != contrast(query, keys, queue, 0.05, True).item()


def test_a_queue_that_is_too_far_weighs_alike_and_is_finite_in_float32():
    query = torch.tensor([[1.0, 0.0, 0.0]])
    value = contrast(query, query, -query.expand(5, 3), 0.01)
    assert float(value) == pytest.approx(0, abs=1e-6)  # -1/5 beside 1
    mixed = contrast(query.bfloat16(), query, query.expand(5, 3), 1.0)
    assert float(mixed) == pytest.approx(float(torch.tensor([1.0, *[0.2] * 5]).logsumexp(0) - 1), rel=1e-5)


def test_permuted_triplets_follow_labels_that_changed_hands():
    """Positives share a permuted label; their true classes are any."""
    for seed in range(20):
        order = torch.randperm(8, generator=torch.Generator().manual_seed(seed))
        a, p, n = permuted_triplets(DISTANCES, LABELS, torch.Generator().manual_seed(seed), dim=5)
        changed = LABELS[order]
        assert (changed[a] == changed[p]).all()
        assert (a != p).all()
        assert (changed[a] != changed[n]).all()
        assert len(a) == 7  # the only one of its class is no anchor
    drawn = [permuted_triplets(DISTANCES, LABELS, torch.Generator().manual_seed(seed), dim=5) for seed in range(200)]
    assert 0.1 < torch.cat([(LABELS[a] == LABELS[p]).float() for a, p, _ in drawn]).mean() < 0.4  # by chance


def test_three_classes_have_their_laws():
    """The negative by inverse density over other classes, the positive uniform over the classes left."""
    counts, rounds = Counter(), 1500
    generator = torch.Generator().manual_seed(0)
    for _ in range(rounds):
        a, p, n = three_class_triplets(DISTANCES, LABELS, generator, dim=5)
        assert a.tolist() == [*range(8)]
        classes = torch.stack([LABELS[a], LABELS[p], LABELS[n]])
        assert (classes[0] != classes[1]).all()
        assert (classes[0] != classes[2]).all()
        assert (classes[1] != classes[2]).all()
        counts[int(n[0]), int(p[0])] += 1
    weights = {j: float(log_inverse_density(DISTANCES[0, j], 5).exp()) for j in (2, 3, 4, 5, 6)}
    for j, weight in weights.items():
        left = [i for i in (2, 3, 4, 5, 6) if LABELS[i] != LABELS[j]]
        for i in left:
            expected = weight / sum(weights.values()) / len(left)
            assert counts[j, i] / rounds == pytest.approx(expected, abs=4 * (expected / rounds) ** 0.5 + 1e-9)
    assert all(len(part) == 0 for part in three_class_triplets(DISTANCES, LABELS % 2, generator, dim=5))


def test_triplets_inside_a_class_have_their_law():
    """Each class alike, three draws with replacement."""
    generator, counts = torch.Generator().manual_seed(0), Counter()
    for _ in range(1000):
        triplets = intra_triplets(LABELS, generator)
        assert [len(part) for part in triplets] == [8, 8, 8]
        assert all(torch.equal(LABELS[triplets[0]], LABELS[part]) for part in triplets)
        counts.update(zip(*(part.tolist() for part in triplets), strict=True))
    assert len(counts) == 27 + 8 + 8 + 1
    assert counts[6, 6, 6] / 8000 == pytest.approx(1 / 4, abs=0.02)
    assert counts[0, 1, 7] / 8000 == pytest.approx(1 / 4 / 27, abs=0.004)
