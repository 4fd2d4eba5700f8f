"""The gradient of a batch in chunks is that of the whole; readings of the distillation, by hand numbers."""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from obdsd import BatchDiffusion, MemoryTeacher, PairwiseTargets, PreviousEpochTeacher, SelfDistillation, TeacherBatch, objectives
from obdsd.training.gradient import backward, gradient_share, in_chunks, targets_reading
from tests.oracles import slow


class Net(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Dropout(dropout), nn.Linear(16, 5))

    def forward(self, x):
        return normalize(self.layers(x), dim=1)


INPUTS, LABELS = torch.randn(16, 10, generator=torch.Generator().manual_seed(0)), torch.arange(8).repeat(2)


def gradients(make_loss, micro_batch, teacher_kind):
    """Gradients of model and objective for the whole loss, OBD-SD included, and the rows."""
    torch.manual_seed(0)
    model, loss = Net(), make_loss()
    torch.manual_seed(1)
    teacher = PreviousEpochTeacher(Net())
    if teacher_kind is MemoryTeacher:
        teacher = MemoryTeacher(20, 5)
        teacher.observe(torch.arange(4, 14), slow.unit_rows(10, 5, seed=3))
    distill = SelfDistillation(50.0, targets=BatchDiffusion(0.6))
    batch = in_chunks(teacher, INPUTS, torch.arange(16), micro_batch)
    torch.manual_seed(2)
    rows = backward(model, INPUTS, lambda z: loss(z, LABELS) + distill(z, batch, 0.5), micro_batch, torch.Tensor.backward)
    return [p.grad for p in (*model.parameters(), *loss.parameters())], rows


@pytest.mark.parametrize("micro_batch", [1, 5, 8, 15])
@pytest.mark.parametrize("teacher", [PreviousEpochTeacher, MemoryTeacher])
@pytest.mark.parametrize("make_loss", [objectives.multi_similarity, lambda: objectives.margin(8), lambda: objectives.proxy_anchor(8, 5)])
def test_chunks_give_the_gradient_of_the_whole_batch(make_loss, teacher, micro_batch):
    direct, rows = gradients(make_loss, 0, teacher)
    cached, same_rows = gradients(make_loss, micro_batch, teacher)
    torch.testing.assert_close(same_rows, rows, rtol=1e-5, atol=1e-6)
    largest = max(float(g.abs().max()) for g in direct)
    assert largest > 1e-3
    for a, b in zip(cached, direct, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5 * largest)


def test_dropout_draws_the_same_numbers_in_both_passes():
    """A gradient at the rows of the first pass only fits if the second pass has the same mask: compare with finite differences."""

    def loss_of(z):
        return (z[:, 0] * torch.arange(16)).sum()

    torch.manual_seed(0)
    model = Net(dropout=0.5).double()
    torch.manual_seed(2)
    backward(model, INPUTS.double(), loss_of, 4, torch.Tensor.backward)
    weight = model.layers[0].weight

    def value(step):
        with torch.no_grad():
            weight[3, 4] += step
            torch.manual_seed(2)
            loss = loss_of(torch.cat([model(chunk) for chunk in INPUTS.double().split(4)]))
            weight[3, 4] -= step
        return loss.item()

    assert weight.grad[3, 4].item() == pytest.approx((value(1e-6) - value(-1e-6)) / 2e-6, rel=1e-5)


def test_no_chunk_is_larger_than_asked():
    sizes = []
    model = Net()
    model.register_forward_pre_hook(lambda module, inputs: sizes.append(len(inputs[0])))
    backward(model, INPUTS, lambda z: z.sum(), 6, torch.Tensor.backward)
    assert sizes == [6, 6, 4, 6, 6, 4]


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
