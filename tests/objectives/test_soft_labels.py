"""Soft labels: the cross-entropy to the mixed target, row by row; its limits and its controls."""

import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from obdsd import AffineScores, BatchDiffusion, PairwiseTargets, SelfDistillation, TeacherBatch, objectives
from obdsd.method.class_mates import ClassMates
from obdsd.method.teachers import NoTeacher
from obdsd.objectives.soft_labels import SoftLabels, over_others
from tests.oracles import losses as literal
from tests.oracles import slow
from tests.refusing import refused

Z, T = (slow.unit_rows(9, dim, seed, dtype=torch.float64) for dim, seed in ((5, 0), (7, 1)))
LABELS = torch.tensor([0, 0, 0, 1, 1, 2, 2, 3, 1])


class Model(nn.Linear):
    dim = 5


def system_of(weight=0.3, targets=PairwiseTargets(), temperature=0.2, ramp="constant", loss=lambda dim: objectives.supcon(0.25)):
    system = SoftLabels(Model(5, 5), loss, NoTeacher(), SelfDistillation(weight, temperature, targets, ramp))
    system.check(9)
    return system


def parts_and_gradient(system, taught, progress=0.5, z=Z):
    z = z.clone().requires_grad_()
    parts = system.losses(z, LABELS, taught, progress)
    return *(part.detach() for part in parts), torch.autograd.grad(sum(parts), z)[0]


def expected(z, share, target_of, temperature=0.25):
    """The cross-entropy to (1-m)·labels + m·target, with loops."""
    terms = []
    for i in range(len(z)):
        mates, soft = literal.mates(LABELS, i), target_of(i)
        target = {j: (1 - share) / len(mates) * (j in mates) if mates else 0.0 for j in range(len(z)) if j != i}
        target = {j: hard + share * soft.get(j, 0.0) for j, hard in target.items()}
        terms.append(literal.cross_entropy(z, i, target, temperature))
    return torch.stack(terms).mean()


def teachers_row(i, known=range(9)):
    """softmax over the other known items of the teacher's cosines at 0.2."""
    weights = {j: float((T[i] @ T[j] / 0.2).exp()) for j in known if j != i}
    return {j: weight / sum(weights.values()) for j, weight in weights.items()}


def hard_row(i):
    mates = literal.mates(LABELS, i)
    return {j: 1 / len(mates) for j in mates}


KNOWN = torch.tensor([True, True, False, True, False, True, True, True, True])
SOME = KNOWN.nonzero().squeeze(1).tolist()
CASES = {
    "a teacher": (TeacherBatch(T), teachers_row),
    "nobody": (None, lambda i: {j: 1 / 8 for j in range(9) if j != i}),
    "a teacher who does not know all": (TeacherBatch(T, KNOWN), lambda i: teachers_row(i, SOME) if i in SOME else hard_row(i)),
    "a teacher who knows one": (TeacherBatch(T, torch.arange(9) == 4), hard_row),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("share", [0.3, 1.0])
def test_it_is_the_cross_entropy_to_the_mixed_target(case, share):
    taught, target_of = CASES[case]
    base, distillation, slope = parts_and_gradient(system_of(share), taught)
    z = Z.clone().requires_grad_()
    truth = expected(z, share, target_of)
    torch.testing.assert_close(base + distillation, truth.detach(), rtol=1e-7, atol=1e-10)
    torch.testing.assert_close(slope, torch.autograd.grad(truth, z)[0], rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(base, (1 - share) * literal.supcon(Z, LABELS, 0.25), rtol=1e-7, atol=1e-10)


def test_a_share_of_zero_is_the_plain_loss_and_the_ramp_is_that_of_the_distillation():
    plain = objectives.supcon(0.25)(Z, LABELS)
    for share, progress in ((0.0, 1.0), (0.8, 0.0)):
        base, distillation, _ = parts_and_gradient(system_of(share, ramp="linear"), TeacherBatch(T), progress)
        assert float(distillation) == 0
        torch.testing.assert_close(base, plain)
    half = parts_and_gradient(system_of(0.8, ramp="linear"), TeacherBatch(T), 0.5)
    torch.testing.assert_close(half, parts_and_gradient(system_of(0.4), TeacherBatch(T)))


@pytest.mark.parametrize("targets", [PairwiseTargets(), BatchDiffusion(0.4), AffineScores(), ClassMates()], ids=str)
def test_targets_of_any_kind_are_brought_to_the_other_items(targets):
    system, taught = system_of(targets=targets), TeacherBatch(T, labels=LABELS)
    target = system.target(taught, LABELS)
    assert (target.diagonal() == 0).all()
    sums = target.sum(dim=1)
    assert (((sums - 1).abs() < 1e-9) | (sums == 0)).all()  # an item without class-mates learns nothing from them
    given = targets(taught, 0.2)
    ratios = given / given.clone().fill_diagonal_(0).sum(dim=1, keepdim=True).clamp(min=1e-30)
    torch.testing.assert_close(target, ratios.fill_diagonal_(0))


def test_sharp_targets_whose_diagonal_is_nearly_all_keep_their_rest():
    rest = over_others(torch.tensor([[1.0, 2e-30, 6e-30], [0.0, 1.0, 0.0], [1e-20, 1e-20, 1.0]]))
    torch.testing.assert_close(rest, torch.tensor([[0.0, 0.25, 0.75], [0.0, 0.0, 0.0], [0.5, 0.5, 0.0]]))


def test_the_order_of_the_rows_does_not_matter():
    order = torch.randperm(9, generator=torch.Generator().manual_seed(0))
    system, z = system_of(), Z[order].clone().requires_grad_()
    *_, slope = parts_and_gradient(system, TeacherBatch(T))
    total = sum(system.losses(z, LABELS[order], TeacherBatch(T[order]), 0.5))
    torch.testing.assert_close(torch.autograd.grad(total, z)[0], slope[order])


def test_gradients_are_those_of_finite_differences():
    free = torch.randn(9, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64).requires_grad_()
    system = system_of()
    assert torch.autograd.gradcheck(lambda x: sum(system.losses(normalize(x, dim=1), LABELS, TeacherBatch(T), 0.5)), free)


BAD = [
    (lambda: system_of(1000.0), "weight=1000.0 is the teacher's share of the target and must lie in [0, 1]; try 0.5"),
    (lambda: system_of(loss=lambda dim: objectives.multi_similarity()), "there are no labels to soften in this loss; use loss=supcon"),
]
test_bad_input_is_refused_in_one_clear_line = refused(BAD)
