"""The similarity at which something fits, against brute force over queries and pairs."""

import math

import numpy as np
import pytest

from obdsd.evaluation import Points
from obdsd.search import calibration
from obdsd.search.calibration import calibrate, compare_all
from tests.refusing import refused


def made(classes=12, each=9, dim=6, seed=0, noise=0.6):
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), each)
    rows = rng.standard_normal((classes, dim))[labels] + noise * rng.standard_normal((len(labels), dim))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    order = rng.permutation(len(rows))
    return rows[order], labels[order]


def by_hand(rows, labels, groups, more, more_labels):
    """Of each query, in plain loops: the best of another class, the best of its own; and the cosines of all pairs."""
    other, own, across, inside = [], [], [], []
    for i in range(len(rows)):
        foreign = [float(rows[i] @ more[j]) for j in range(len(more)) if more_labels[j] != labels[i]]
        kin = []
        for j in range(len(rows)):
            cosine = float(rows[i] @ rows[j])
            if labels[j] != labels[i]:
                foreign.append(cosine)
                across += [cosine] * (i < j)
            elif groups[j] != groups[i]:
                kin.append(cosine)
                inside += [cosine] * (i < j)
        other.append(max(foreign))
        own.append(max(kin, default=math.nan))
    return np.array(other), np.array(own), np.array(across), np.array(inside)


@pytest.mark.parametrize("held", [1 << 22, 100], ids=["at once", "a row at a time"])
def test_rates_and_thresholds_are_those_of_brute_force(monkeypatch, held):
    monkeypatch.setattr(calibration, "HELD", held)
    monkeypatch.setattr(calibration, "RESAMPLES", 10)
    rows, labels = made()
    groups = np.arange(len(rows)) // 2
    more, more_labels = made(classes=15, each=4, seed=1)  # some classes are those of the items, some are not
    other, own, across, inside = by_hand(rows, labels, groups, more, more_labels)
    best, _, searched = compare_all(Points(rows, labels, groups), Points(more, more_labels))
    np.testing.assert_allclose(best.other, other, atol=1e-6)
    np.testing.assert_allclose(best.own, own, atol=1e-6)
    assert searched == len(rows) - 1 + len(more)
    found = calibrate(rows, labels, (0.02, 0.3), groups=groups, collection=Points(more, more_labels))
    assert [each.rate for each in found.thresholds] == [0.3, 0.02]
    middle = np.median(own[~np.isnan(own)])
    assert found.half == pytest.approx((middle, (other >= middle - 1e-7).mean()), abs=1e-5)
    assert (found.pairs_across, found.pairs_inside) == (len(across), len(inside))
    for each in found.thresholds:
        allowed = math.floor(each.rate * len(rows))
        assert (best.other >= each.similarity).sum() == round(each.false_matches * len(rows)) <= allowed
        assert (best.other >= np.nextafter(np.float32(each.similarity), np.float32(-1))).sum() > allowed  # nothing less would do
        assert each.misses == pytest.approx((own < each.similarity)[~np.isnan(own)].mean())
        assert each.pair_similarity is not None
        fewer, more_of_them = ((across >= each.pair_similarity + shift).sum() for shift in (4e-6, -4e-6))
        assert fewer <= math.floor(each.rate * len(across)) <= more_of_them
        assert each.pair_misses == pytest.approx((inside < each.pair_similarity).mean(), abs=2 / len(inside))


def test_labels_of_the_collection_are_compared_as_text():
    rows, labels = made()
    number = calibrate(rows, labels, [0.1], collection=Points(rows, labels))
    text = calibrate(rows, labels.astype(str), [0.1], collection=Points(rows, labels))
    assert number == text
    alone = calibrate(rows, labels, [0.1])
    assert alone.thresholds[0].similarity == number.thresholds[0].similarity  # the same items again say nothing new


def test_copies_in_the_collection_are_neither_matches_nor_misses():
    rows, labels = made(classes=4, each=1)
    rows, labels = np.concatenate([rows, rows[:1]]), np.append(labels, labels[0])
    rows[-1, 0] += 1.0
    best, *_ = compare_all(Points(rows / np.linalg.norm(rows, axis=1, keepdims=True), labels), Points(rows[:4], labels[:4]))
    assert np.isnan(best.own).sum() == 3  # of the three that are alone, though the collection holds a copy of each
    assert best.other.max() < 0.999


def test_a_larger_collection_asks_for_more_similarity():
    rows, labels = made(each=20)
    more, _ = made(classes=200, each=10, seed=5)
    few = calibrate(rows, labels, [0.05]).thresholds[0]
    many = calibrate(rows, labels, [0.05], collection=Points(more, np.full(len(more), "another"))).thresholds[0]
    assert many.similarity > few.similarity
    assert many.misses > few.misses
    assert many.pair_similarity == few.pair_similarity  # pairs know no size


def test_intervals_hold_the_value_and_are_of_classes():
    rows, labels = made(each=20, noise=0.9)
    one, again, other = (calibrate(rows, labels, [0.1], seed=seed).thresholds[0] for seed in (0, 0, 1))
    assert one == again != other
    low, high = one.misses_interval
    assert low <= one.misses <= high
    assert low < high
    low, high = one.similarity_interval
    assert low <= one.similarity <= high


def test_an_item_that_is_in_the_collection_too_counts_once():
    """The copy is as similar to all others as the item is: nothing that is measured changes."""
    rows, labels = made()
    alone, both = (calibrate(rows, labels, [0.1], collection=more) for more in (None, Points(rows[::2], labels[::2])))
    assert both.searched == alone.searched == len(rows) - 1
    assert both.half == pytest.approx(alone.half, abs=1e-6)
    (first,), (second,) = alone.thresholds, both.thresholds
    assert second.similarity == pytest.approx(first.similarity, abs=1e-6)
    assert (second.false_matches, second.misses) == pytest.approx((first.false_matches, first.misses), abs=0.01)


def test_every_class_alike_has_an_interval_of_one_point():
    """Two classes that mirror each other: whichever are drawn, the threshold is the same."""
    turn = np.array([[0.0, 1.0], [1.0, 0.0]])
    one = np.array([[1.0, 0.1], [1.0, 0.2]])
    found = calibrate(np.concatenate([one, one @ turn]), [0, 0, 1, 1], [0.5]).thresholds[0]
    assert found.similarity_interval == (found.similarity, found.similarity)
    assert found.misses_interval == (0.0, 0.0)


ROWS, LABELS = made()
test_what_cannot_be_measured_is_refused = refused(
    [
        (lambda: calibrate(ROWS, LABELS, []), "rates= must hold a number; try 0.01"),
        (lambda: calibrate(ROWS, LABELS, [0.1, 1.0]), "rates=1 must lie between 0 and 1; try 0.01"),
        (
            lambda: calibrate(ROWS, LABELS),
            "rates=0.001 cannot be measured on 108 items; give 1,000 or more, or ask for a larger rate such as 0.01",
        ),
        (lambda: calibrate(ROWS[:5], LABELS[:5], [0.01]), "on 5 items; give 100 or more, or ask for a larger rate such as 0.5"),
        (lambda: calibrate(ROWS, np.zeros(len(ROWS), dtype=int), [0.1]), "labels: there is one class only"),
        (lambda: calibrate(ROWS, np.arange(len(ROWS)), [0.1]), "labels: no item has another one of its class"),
        (lambda: calibrate(ROWS, None, [0.1]), "labels=None must be given; pass one for each of the 108 embeddings"),
        (
            lambda: calibrate(ROWS, LABELS, [0.1], collection=Points(ROWS[:, :3], LABELS)),
            "collection.embeddings have length 3, embeddings 6; give rows of one model",
        ),
        (
            lambda: calibrate(ROWS, LABELS, [0.1], collection=Points(ROWS, np.full(len(ROWS), "photo"))),
            "108 of 108 items are there again under another label, so no similarity tells classes apart; give the items of the index",
        ),
    ]
)
