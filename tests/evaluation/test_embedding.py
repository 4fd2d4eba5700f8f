import numpy as np
import pytest
import torch
from torch import nn

from obdsd.errors import InputError
from obdsd.evaluation.embedding import embed

ITEMS = [(torch.tensor([float(i), 1.0]), 0, i) for i in range(11)]


@pytest.mark.parametrize("workers", [0, 2])
def test_rows_come_in_the_order_of_the_items(workers):
    model = nn.Linear(2, 3)
    told = []
    found = embed(model, ITEMS, batch_size=4, workers=workers, advance=told.append)
    truth = model(torch.stack([item for item, *_ in ITEMS])).detach().numpy()
    np.testing.assert_allclose(found, truth, rtol=1e-5)
    assert told == [4, 4, 3]


class ModeTells(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.full((len(x), 1), float(self.training))


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_asked_in_eval_mode_and_left_as_it_was(training):
    model = ModeTells().train(training)
    assert embed(model, ITEMS[:3]).tolist() == [[0.0]] * 3
    assert model.training is training


def test_half_precision_rows_become_float32_and_nothing_is_refused():
    assert embed(nn.Linear(2, 3).bfloat16(), [(torch.ones(2, dtype=torch.bfloat16), 0, 0)]).dtype == np.float32
    with pytest.raises(InputError, match="items: there is nothing to embed; check the data"):
        embed(nn.Linear(2, 3), [])
