"""Wrong labels and near-copies, against brute force and labels that were made wrong on purpose."""

import numpy as np
import pytest

from obdsd.data.noise import flip_labels
from obdsd.search import suspects
from obdsd.search.suspects import find_suspects, judge, near_copies, whitened
from tests.refusing import refused


def made(classes=20, each=15, dim=24, seed=0):
    """Rows of classes that share most of their length, as features of a network do."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), each)
    rows = 3 + rng.standard_normal((classes, dim))[labels] + 0.8 * rng.standard_normal((len(labels), dim))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32), labels


def cosine(x, y):
    return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))


@pytest.mark.parametrize("held", [1 << 22, 60], ids=["at once", "three rows at a time"])
def test_scores_are_those_of_plain_loops(monkeypatch, held):
    monkeypatch.setattr(suspects, "AT_ONCE", held)
    rows, labels = made(classes=6, each=4)
    rows, labels = rows[:-3], labels[:-3]  # the last class has one item
    judged = judge(rows, labels, seed=3)
    wrong = (labels + np.random.default_rng(3).integers(1, 6, len(labels))) % 6
    for i, row in enumerate(rows.astype(np.float64)):
        similar = {}
        for label in range(6):
            members = [j for j in range(len(rows)) if labels[j] == label and j != i]
            similar[label] = cosine(row, rows[members].astype(np.float64).mean(axis=0)) if members else np.nan
        for chosen, found in ((labels[i], judged.score[i]), (wrong[i], judged.if_wrong[i])):
            best = np.nanmax([similar[label] for label in similar if label != chosen])
            np.testing.assert_allclose(found, best - similar[chosen], atol=1e-6)
        if not np.isnan(judged.score[i]):
            assert similar[judged.better[i]] == max(similar[label] for label in similar if label != labels[i])
    assert np.isnan(judged.score).tolist() == [False] * 20 + [True]


def test_whitened_rows_have_the_covariance_that_is_asked_for():
    rng = np.random.default_rng(0)
    rows = (rng.standard_normal((500, 4)) * [10, 3, 1, 0.1] + 5).astype(np.float32)
    centred = rows - rows.mean(axis=0, dtype=np.float64)
    covariance = centred.T @ centred / len(rows)
    inverse = np.linalg.inv(covariance + 2.0 * np.trace(covariance) / 4 * np.eye(4))
    slow = centred @ inverse @ centred.T  # cosines do not depend on the rotation
    lengths = np.sqrt(np.diag(slow))
    Z = whitened(rows, shrinkage=2.0).astype(np.float64)
    np.testing.assert_allclose(Z @ Z.T, slow / np.outer(lengths, lengths), atol=1e-5)


@pytest.mark.parametrize("share", [0.0, 0.05, 0.2])
def test_labels_made_wrong_are_found_and_counted(share):
    rows, labels = made()
    noisy = flip_labels(labels, share, seed=1)
    found = find_suspects(rows, noisy)
    listed, wrong = [each.item for each in found.labels], np.flatnonzero(noisy != labels)
    assert abs(found.wrong_share - share) <= 0.03
    assert len({*listed} & {*wrong.tolist()}) >= 0.9 * len(wrong)
    assert len(listed) <= len(wrong) + 5
    scores = [each.score for each in found.labels]
    assert scores == sorted(scores, reverse=True)
    true = [each for each in found.labels if noisy[each.item] != labels[each.item]]
    assert sum(each.better == labels[each.item] for each in true) >= 0.9 * len(true)
    for each in found.labels:
        assert {noisy[item] for item in each.own} == {noisy[each.item]}
        assert {noisy[item] for item in each.others} == {each.better}
        assert each.item not in each.own
        assert len(each.own) == len(each.others) == 3


def test_as_many_as_are_asked_for_and_names_of_classes_in_any_order():
    rows, labels = made()
    noisy = flip_labels(labels, 0.1, seed=0)
    names = np.array([f"class {number:02}" for number in range(20)])
    by_number, by_name = find_suspects(rows, noisy, most=7), find_suspects(rows, names[noisy], most=7)
    assert by_number.labels == by_name.labels
    assert len(by_number.labels) == 7
    order = np.random.default_rng(0).permutation(len(rows))
    moved = find_suspects(rows[order], noisy[order], most=7)
    assert sorted(order[each.item] for each in moved.labels) == sorted(each.item for each in by_number.labels)
    assert len(find_suspects(rows, noisy, most=10**9).labels) == len(rows)


def test_near_copies_are_the_pairs_of_brute_force():
    rows, labels = made(classes=5, each=8)
    rows[3] = rows[30]  # across classes
    rows[11] = rows[10] + 0.003 * np.random.default_rng(0).standard_normal(24)
    rows[11] /= np.linalg.norm(rows[11])
    rows[20] = rows[21] = rows[22]
    distance = 1 - rows.astype(np.float64) @ rows.T.astype(np.float64)
    np.fill_diagonal(distance, np.inf)
    usual = np.median(distance.min(axis=1))
    slow = {(i, j) for i in range(40) for j in range(i) if distance[i, j] <= 0.4 * usual}
    found = near_copies(rows, labels)
    assert {(each.other, each.one) for each in found} == slow >= {(30, 3), (11, 10), (21, 20), (22, 20), (22, 21)}
    assert [each.across for each in found] == sorted((labels[i] != labels[j] for i, j in slow), reverse=True)
    assert (found[0].one, found[0].other) == (3, 30)
    assert found[0].similarity == pytest.approx(1, abs=1e-6)
    inside = [each.similarity for each in found if not each.across]
    assert inside == sorted(inside, reverse=True)


def test_without_labels_only_copies_are_looked_for():
    rows, _ = made(classes=5, each=8)
    rows[3] = rows[30]
    found = find_suspects(rows, None)
    assert (found.labels, found.wrong_share, found.alone) == ([], 0.0, 0)
    first = found.copies[0]
    assert (first.one, first.other, first.across) == (3, 30, False)


def test_an_item_alone_in_its_class_is_counted_not_judged():
    rows, labels = made(classes=5, each=8)
    labels = np.where(np.arange(40) == 17, 9, labels)
    found = find_suspects(rows, labels, most=40)
    assert found.alone == 1
    assert 17 not in [each.item for each in found.labels]
    assert find_suspects(rows[:4], np.arange(4)).labels == []  # all are alone


SAME = np.ones((6, 3), dtype=np.float32)
test_what_cannot_be_judged_is_refused = refused(
    [
        (lambda: find_suspects(SAME[:1], [0]), "embeddings: 1 item has nothing to be compared with; give 2 or more"),
        (lambda: find_suspects(made()[0], np.zeros(300, dtype=int)), "labels: all items have one label, so no other class can fit better"),
        (lambda: find_suspects(SAME, [0, 0, 0, 1, 1, 1]), "embeddings: all rows are the same, so nothing tells classes apart"),
        (lambda: find_suspects(made()[0], [0, 1]), "labels of shape (2,) must have one entry for each of the 300 embeddings"),
    ]
)
