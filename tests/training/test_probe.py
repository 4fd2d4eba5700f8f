"""Readings of the distillation: hand numbers."""

import math

import pytest
import torch
from torch.nn.functional import normalize

from obdsd import PairwiseTargets, SelfDistillation
from obdsd.method.teachers import TeacherBatch
from obdsd.training.probe import gradient_share, targets_reading


def test_rows_that_are_all_alike_give_flat_targets():
    alike = TeacherBatch(torch.eye(3)[:1].expand(4, 3))
    reading = targets_reading(SelfDistillation(1.0), alike, torch.tensor([0, 0, 0, 1]))
    assert reading == pytest.approx({"entropy": 1.0, "same_class": (3 * 2 / 4) / 4})


def test_the_entropy_of_two_orthogonal_rows():
    reading = targets_reading(SelfDistillation(1.0, temperature=0.5), TeacherBatch(torch.eye(2)), torch.tensor([7, 7]))
    p = 1 / (1 + math.exp(-2))
    assert math.isclose(reading["entropy"], -(p * math.log(p) + (1 - p) * math.log(1 - p)) / math.log(2), rel_tol=1e-6)
    assert math.isclose(reading["same_class"], 1 - p, rel_tol=1e-6)


def test_rows_that_the_teacher_does_not_know_are_left_out():
    z, labels = normalize(torch.randn(5, 3, generator=torch.Generator().manual_seed(0)), dim=1), torch.tensor([0, 0, 1, 1, 1])
    known = torch.tensor([True, False, True, True, False])
    distill = SelfDistillation(1.0, targets=PairwiseTargets(2.0))
    assert targets_reading(distill, TeacherBatch(z, known), labels) == targets_reading(distill, TeacherBatch(z[known]), labels[known])
    assert targets_reading(distill, TeacherBatch(z, torch.zeros(5, dtype=torch.bool)), labels) == {}


def test_shares_are_of_what_moves_unit_rows():
    z = normalize(torch.randn(5, 3, generator=torch.Generator().manual_seed(1)), dim=1).requires_grad_()
    pull = (z @ torch.tensor([1.0, 2.0, 3.0])).sum()
    along = 5 * z.square().sum()  # its gradient is 10 z: it moves no unit row
    assert math.isclose(gradient_share(z, z.shape[1], 3 * pull + along, pull), 1 / 4, rel_tol=1e-5)
    assert math.isclose(gradient_share(z, z.shape[1], along, pull), 1.0, rel_tol=1e-5)
    assert gradient_share(z, z.shape[1], 0 * pull, 0 * pull) == 0
    beside = torch.cat([z.detach(), torch.ones(5, 2)], dim=1).requires_grad_()  # features, which pull too
    pull = (beside[:, :3] @ torch.tensor([1.0, 2.0, 3.0])).sum()
    assert math.isclose(gradient_share(beside, 3, 3 * pull + 100 * beside[:, 3:].sum(), pull), 1 / 4, rel_tol=1e-5)
    assert z.grad is None
