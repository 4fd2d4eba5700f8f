import itertools

import numpy as np
import pytest
import torch

from obdsd.evaluation.pairs import cosine_histograms, gradient_shares
from obdsd.method.targets import PairwiseTargets
from tests.oracles import slow

EDGES = np.linspace(-1, 1, 9)


def test_histograms_are_those_of_all_pairs():
    z = slow.unit_rows(40, 4, seed=5).numpy()
    labels = np.array([0] * 12 + [1] * 3 + [2] * 24 + [3])
    cosines = {True: [], False: []}
    for i, j in itertools.combinations(range(40), 2):
        cosines[bool(labels[i] == labels[j])].append(float(z[i] @ z[j]))
    found = cosine_histograms(z, labels, EDGES)
    for same, shares in ((True, found.positive), (False, found.negative)):
        truth = np.histogram(cosines[same], EDGES)[0] / len(cosines[same])
        assert shares == pytest.approx(truth, abs=0.01)  # 100,000 draws: a standard error below 0.002
    again, other = cosine_histograms(z, labels, EDGES), cosine_histograms(z, labels, EDGES, seed=1)
    assert (again.negative == found.negative).all()
    assert (other.negative != found.negative).any()


def test_a_pairs_share_is_the_norm_of_its_part_of_the_gradient():
    """Eq. 8 by autograd: the gradient of row i's loss along v_i, pair by pair."""
    student, teacher = slow.unit_rows(8, 4, 1).double(), slow.unit_rows(8, 4, 2).double()
    labels = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])
    targets = PairwiseTargets()(teacher, 0.5)
    norms, cosines, same = [], [], []
    for i, j in itertools.permutations(range(8), 2):
        v = student[i].clone().requires_grad_()
        cosine = torch.nn.functional.normalize(v, dim=0) @ student[j]
        pull = torch.autograd.grad(cosine, v)[0].norm().item()  # ‖z_j - (z_i·z_j) z_i‖
        P = torch.softmax(student[i] @ student.T / 0.5, dim=0)[j]
        norms.append(pull * abs((P - targets[i, j]).item()))
        cosines.append(cosine.item())
        same.append(bool(labels[i] == labels[j]))
    norms, cosines, same = map(np.array, (norms, cosines, same))
    found = gradient_shares(student, targets, labels, EDGES, temperature=0.5)
    for shares, chosen in ((found.positive, same), (found.negative, ~same)):
        truth = np.histogram(cosines[chosen], EDGES, weights=norms[chosen])[0] / norms.sum()
        assert shares == pytest.approx(truth, rel=1e-6, abs=1e-9)


def test_a_student_that_agrees_has_nothing_to_share():
    z = slow.unit_rows(6, 4, 3)
    found = gradient_shares(z.double(), PairwiseTargets()(z.double()), torch.arange(6) // 2, EDGES)
    assert np.isnan(found.positive).all()
    assert np.isnan(found.negative).all()
