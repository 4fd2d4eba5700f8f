import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from obdsd.evaluation.geometry import density, singular_values, spectral_decay
from obdsd.evaluation.retrieval import neighbours
from tests.oracles import slow
from tests.refusing import refused

cases = pytest.mark.parametrize("case", ["metrics0", "metrics1"])


@cases
def test_density_of_the_oracle(reference, case):
    measured = density(reference[f"{case}/features"].numpy(), reference[f"{case}/labels"].numpy())
    for key, value in (("intra", measured.intra), ("inter", measured.inter), ("intra_over_inter", measured.ratio)):
        assert value == pytest.approx(reference[f"{case}/dists@{key}"].item(), rel=1e-6)


@cases
@pytest.mark.parametrize("first", [1, 2, 3])
def test_spectral_decay_of_the_oracle(reference, case, first):
    decay = spectral_decay(reference[f"{case}/features"].numpy(), skip=first - 1)
    assert decay == pytest.approx(reference[f"{case}/rho_spectrum@{first}"].item(), rel=1e-5)


@given(st.integers(0, 10**6))
def test_density_is_the_mean_of_pairwise_distances(seed):
    z = slow.unit_rows(12, 3, seed).double().numpy()
    labels = np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 3])  # the last class has no pair inside
    inside, means = [], []
    for c in range(4):
        members = z[labels == c]
        pairs = [1 - a @ b for a, b in itertools.combinations(members, 2)]
        inside += [np.mean(pairs)] if pairs else []
        means.append(members.mean(axis=0) / np.linalg.norm(members.mean(axis=0)))
    measured = density(z, labels)
    assert measured.intra == pytest.approx(np.mean(inside))
    assert measured.inter == pytest.approx(np.mean([1 - a @ b for a, b in itertools.combinations(means, 2)]))


@pytest.mark.parametrize("shape", [(30, 6), (6, 30)])
def test_singular_values_are_those_of_the_svd(shape):
    z = slow.unit_rows(*shape, seed=1).double().numpy()
    np.testing.assert_allclose(singular_values(z), np.linalg.svd(z, compute_uv=False), rtol=1e-7)


BAD = [
    (lambda: density(np.eye(3), np.array([0, 0, 0])), "labels of 1 classes, the largest of 3: density needs 2 classes and a pair in one"),
    (lambda: density(np.eye(3), np.array([0, 1, 2])), "labels of 3 classes, the largest of 1"),
    (lambda: neighbours(np.eye(4), 0), "k=0 must lie in 1..3, the other rows; ask for fewer neighbours"),
    (lambda: neighbours(np.eye(4), 4), "k=4 must lie in 1..3"),
    (lambda: spectral_decay(np.eye(2)), "skip=2 leaves no singular value of embeddings of shape (2, 2)"),
]


test_what_has_no_geometry_is_refused = refused(BAD)


def test_a_row_is_left_out_of_its_own_list_by_identity_even_among_duplicates():
    z = np.tile(np.array([[1.0, 0.0]]), (6, 1))
    found = neighbours(z, k=3)
    assert not (found == np.arange(6)[:, None]).any()
    assert all(len(set(row)) == 3 for row in found.tolist())


def test_a_class_without_a_direction_and_means_that_agree():
    opposed = np.array([[1.0, 0, 0], [-1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]])
    measured = density(opposed, np.array([0, 0, 1, 1, 2, 2]))
    assert (measured.intra, measured.inter) == (pytest.approx(2 / 3), pytest.approx(1.0))
    assert np.isnan(density(opposed[:4], np.array([0, 0, 1, 1])).ratio)
    alike = density(np.array([[1.0, 0], [0, 1], [1, 0], [0, 1]]), np.array([0, 0, 1, 1]))
    assert alike.ratio == np.inf
