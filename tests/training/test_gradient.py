import pytest
import torch
from torch import nn

from obdsd import BatchDiffusion, MemoryTeacher, PreviousEpochTeacher, SelfDistillation, objectives
from obdsd.training.gradient import backward, in_chunks
from tests.oracles import slow


class Net(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Dropout(dropout), nn.Linear(16, 5))

    def forward(self, x):
        return nn.functional.normalize(self.layers(x), dim=1)


def objective(name):
    return {
        "multi-similarity": objectives.multi_similarity,
        "margin": lambda: objectives.margin(8),
        "proxy-anchor": lambda: objectives.proxy_anchor(8, 5),
    }[name]()


INPUTS, LABELS = torch.randn(16, 10, generator=torch.Generator().manual_seed(0)), torch.arange(8).repeat(2)


def gradients(name, micro_batch, dropout=0.0, teacher_kind=PreviousEpochTeacher):
    """Gradients of model and objective for the whole loss, OBD-SD included, and the state of the random numbers afterwards."""
    torch.manual_seed(0)
    model, loss = Net(dropout), objective(name)
    torch.manual_seed(1)
    teacher = PreviousEpochTeacher(Net())
    if teacher_kind is MemoryTeacher:
        teacher = MemoryTeacher(20, 5)
        teacher.observe(torch.arange(4, 14), slow.unit_rows(10, 5, seed=3))
    distill = SelfDistillation(50.0, targets=BatchDiffusion(0.6))
    batch = in_chunks(teacher, INPUTS, torch.arange(16), micro_batch)
    torch.manual_seed(2)
    rows = backward(model, INPUTS, lambda z: loss(z, LABELS) + distill(z, batch, 0.5), micro_batch, torch.Tensor.backward)
    return [p.grad for p in (*model.parameters(), *loss.parameters())], rows, torch.get_rng_state()


@pytest.mark.parametrize("micro_batch", [1, 5, 8, 15])
@pytest.mark.parametrize("teacher", [PreviousEpochTeacher, MemoryTeacher])
@pytest.mark.parametrize("name", ["multi-similarity", "margin", "proxy-anchor"])
def test_chunks_give_the_gradient_of_the_whole_batch(name, teacher, micro_batch):
    direct, rows, _ = gradients(name, 0, teacher_kind=teacher)
    cached, same_rows, _ = gradients(name, micro_batch, teacher_kind=teacher)
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
