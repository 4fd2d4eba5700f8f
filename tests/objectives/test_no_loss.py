import torch

from obdsd.objectives.no_loss import NoLoss
from tests.oracles import slow


def test_it_asks_nothing_of_the_rows():
    rows = torch.full((4, 3), float("nan")).requires_grad_()
    loss = NoLoss()(rows, torch.zeros(4, dtype=torch.long))
    assert float(loss.detach()) == 0
    loss.backward()
    assert torch.equal(rows.grad, torch.zeros(4, 3))
    half = NoLoss()(slow.unit_rows(4, 3, seed=0, dtype=torch.bfloat16), torch.arange(4))
    assert half.dtype == torch.float32
