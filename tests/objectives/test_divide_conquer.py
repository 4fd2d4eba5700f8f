"""Divide and conquer: the authors' numbers, a literal version, batches of one cluster, clusters that keep their numbers."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from obdsd import objectives
from obdsd.catalogue import LOSSES
from obdsd.data.batches import ClassBatches
from obdsd.errors import InputError
from obdsd.objectives import samplers
from obdsd.objectives.divide_conquer import ClustersInTurn, Learners, renumbered
from obdsd.presets import preset
from tests.oracles import slow

with np.load(Path(__file__).parents[1] / "oracles" / "divided.npz") as file:
    ORACLE = {key: torch.from_numpy(file[key]) for key in file.files}
LABELS = torch.tensor([0, 1, 0, 2, 1, 0, 2, 3, 1, 0])
PUBLISHED = preset("div-conq", "x.npz").loss


def learners(dim, slices):
    return Learners(lambda width: LOSSES.build(PUBLISHED, num_classes=8, dim=width, seed=0), dim, slices)


def rows_of(y, slices):
    """Unit rows as the model has them: slices of unit length, then the whole."""
    return torch.nn.functional.normalize(torch.nn.functional.normalize(y.unflatten(1, (slices, -1)), dim=2).flatten(1), dim=1)


@pytest.mark.parametrize("active", [0, 1, 2, 3, None])
def test_the_authors_numbers(active):
    y, key = ORACLE["DivConq/y"].clone().requires_grad_(), "full" if active is None else active
    loss = learners(32, int(ORACLE["DivConq/learners"]))
    loss.active = active
    labels = torch.unique(ORACLE["DivConq/labels"], return_inverse=True)[1]
    value = loss(rows_of(y, 4), labels)
    (slope,) = torch.autograd.grad(value, y)
    torch.testing.assert_close(value.detach(), ORACLE[f"DivConq/value_{key}"], rtol=1e-7, atol=1e-10)
    torch.testing.assert_close(slope, ORACLE[f"DivConq/grad_y_{key}"], rtol=1e-6, atol=1e-9)


def literal_triplets(d, labels):
    for a in range(len(labels)):
        P = [p for p in range(len(labels)) if p != a and labels[p] == labels[a]]
        far = sorted((n for n in range(len(labels)) if labels[n] != labels[a] and d[a][n] >= 0.5), key=lambda n: d[a][n])
        yield from ((a, p, n) for p, n in zip(P, sorted(far[: len(P)]), strict=False))


def literal(z, labels, beta=1.2, margin=0.2):
    d = [[(x - y).square().sum().sqrt() for y in z] for x in z]
    terms = [(d[a][p] - beta + margin).clamp(min=0) + (beta - d[a][n] + margin).clamp(min=0) for a, p, n in literal_triplets(d, labels)]
    active = [term for term in terms if term > 0]
    return sum(active) / len(active)


@pytest.mark.parametrize("seed", range(4))
def test_triplets_and_loss_by_their_literal_definition(seed):
    """Classes of different sizes, one of a single row; few negatives are far enough on a circle."""
    z = slow.unit_rows(10, 2, seed, torch.float64).requires_grad_()
    d = torch.cdist(z, z).detach()
    found = zip(*(part.tolist() for part in samplers.nearest_triplets(d, LABELS, torch.Generator())), strict=True)
    assert [*found] == [*literal_triplets(d.tolist(), LABELS.tolist())]
    ours, truth = (of(z, LABELS) for of in (LOSSES.build(PUBLISHED, num_classes=4, dim=2, seed=0), literal))
    torch.testing.assert_close(ours, truth)
    for one, other in zip(*(torch.autograd.grad(value, z) for value in (ours, truth)), strict=True):
        torch.testing.assert_close(one, other)


def test_where_far_negatives_are_few_the_last_positives_are_left_out():
    d = torch.tensor([[0, 1, 1, 0.4, 0.6], [1, 0, 1, 0.5, 0.4], [1, 1, 0, 0.3, 0.2], [0.4, 0.5, 0.3, 0, 1], [0.6, 0.4, 0.2, 1, 0]])
    found = samplers.nearest_triplets(d, torch.tensor([0, 0, 0, 1, 1]), torch.Generator())
    assert [*zip(*(part.tolist() for part in found), strict=True)] == [(0, 1, 4), (1, 0, 3), (3, 4, 1), (4, 3, 0)]


@pytest.mark.parametrize("active", [1, None])
def test_gradients_are_those_of_finite_differences(active):
    y = torch.randn(10, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64).requires_grad_()
    loss = learners(6, 2)
    loss.active = active
    assert torch.autograd.gradcheck(lambda y: loss(rows_of(y, 2), LABELS), y)


def test_boundaries_that_do_not_learn():
    assert objectives.margin(4, trained=False).parameter_groups() == []
    assert learners(8, 2).parameter_groups() == []
    trained = Learners(lambda dim: objectives.proxy_anchor(4, dim), 8, 2)
    assert [group["params"][0].shape for group in trained.parameter_groups()] == [(4, 8), (4, 4), (4, 4)]


def agreement(one, other):
    return int((one == other).sum())


def test_clusters_keep_the_number_of_the_one_that_they_share_most_with():
    current, previous, expected = (ORACLE[f"DivConq_reassign/{name}"].numpy() for name in ("current", "previous", "maximum_overlap"))
    clusters = int(max(current.max(), previous.max())) + 1
    found = renumbered(current, previous, clusters)
    assert agreement(found, previous) == agreement(expected, previous)
    best = max(agreement(np.array(numbers)[current], previous) for numbers in itertools.permutations(range(clusters)))
    assert agreement(found, previous) == best
    assert {(int(a), int(b)) for a, b in zip(current, found, strict=True)} == {(int(a), int(found[current == a][0])) for a in current}


def test_a_cluster_that_moves_on_in_a_ring_comes_back():
    """What a transposed assignment gets wrong."""
    previous = np.repeat([0, 1, 2], 4)
    assert renumbered(np.repeat([1, 2, 0], 4), previous, 3).tolist() == previous.tolist()


ITEMS = np.repeat(np.arange(8), 6)  # 8 classes of 6


def in_turn(cluster_of, per_class=2, batch_size=8, **settings):
    turns = ClustersInTurn(ClassBatches(ITEMS, batch_size, per_class, 0, **settings))
    turns.settle(None if cluster_of is None else np.asarray(cluster_of))
    return turns


def test_every_batch_is_of_one_cluster_and_they_take_turns():
    cluster_of = np.arange(48) % 3  # two of each class in each cluster
    turns = in_turn(cluster_of)
    batches = [[*turns.items_of(epoch)] for epoch in (0, 1)]
    assert [len(each) for each in batches] == [6, 6]
    assert [{*cluster_of[items]} for each in batches for items in each] == [{turn % 3} for turn in range(12)]
    for items in itertools.chain(*batches):
        assert [len({*pair}) for pair in np.reshape(items, (4, 2))] == [2] * 4
        assert (np.diff(ITEMS[items].reshape(4, 2)) == 0).all()
        assert len({*ITEMS[items]}) == 4
    assert batches == [[*turns.items_of(epoch)] for epoch in (0, 1)] != [batches[1], batches[0]]


def test_a_cluster_of_few_classes_gives_each_several_times():
    cluster_of = (ITEMS > 1).astype(int)
    turns = in_turn(cluster_of, batch_size=16)
    batches = [*turns.items_of(0)]
    assert {*ITEMS[batches[0]]} == {0, 1}
    assert np.bincount(ITEMS[batches[0]]).tolist() == [8, 8]
    assert {*ITEMS[batches[1]]} <= {2, 3, 4, 5, 6, 7}
    assert sorted(np.bincount(ITEMS[batches[1]])[2:]) in ([2, 2, 2, 2, 4, 4], [2, 2, 2, 2, 2, 2, 4])


def test_items_alone_and_clusters_without_two_classes_take_no_part():
    cluster_of = np.zeros(48, dtype=np.int64)
    cluster_of[:6], cluster_of[47], cluster_of[46] = 1, 2, 3  # one class; one item; one item
    turns = in_turn(cluster_of, batch_size=14)
    met = {item for epoch in range(9) for items in turns.items_of(epoch) for item in items}
    assert met == {*range(6, 46)}
    with pytest.raises(InputError, match="no cluster of the training set has two classes of two items each; use fewer slices, or another"):
        in_turn(ITEMS)


def test_without_clusters_batches_are_the_usual_ones():
    assert [*in_turn(None).items_of(1)] == [*ClassBatches(ITEMS, 8, 2, 0).items_of(1)]


def test_ranks_share_a_batch_of_one_cluster():
    parts = [[draw.item for draw in next(in_turn(ITEMS % 2, rank=rank, world_size=2).epoch(0))] for rank in (0, 1)]
    assert parts[0] + parts[1] == next(in_turn(ITEMS % 2).items_of(0))
