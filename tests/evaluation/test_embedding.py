import numpy as np
import pytest
import torch
from torch import nn

from obdsd.errors import InputError
from obdsd.evaluation.embedding import embed


class Numbers:
    """Item i is the vector (i, 1)."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int, int]:
        return torch.tensor([float(index), 1.0]), 0, index


@pytest.mark.parametrize("workers", [0, 2])
def test_rows_come_in_the_order_of_the_items(workers):
    model = nn.Linear(2, 3)
    told = []
    found = embed(model, Numbers(11), batch_size=4, workers=workers, advance=told.append)
    truth = model(torch.stack([Numbers(11)[i][0] for i in range(11)])).detach().numpy()
    np.testing.assert_allclose(found, truth, rtol=1e-5)
    assert told == [4, 4, 3]


class ModeTells(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.full((len(x), 1), float(self.training))


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_asked_in_eval_mode_and_left_as_it_was(training):
    model = ModeTells().train(training)
    assert embed(model, Numbers(3)).tolist() == [[0.0]] * 3
    assert model.training is training


def test_half_precision_rows_become_float32():
    found = embed(nn.Linear(2, 3).bfloat16(), [(torch.ones(2, dtype=torch.bfloat16), 0, 0)])
    assert found.dtype == np.float32


def test_nothing_to_embed_is_refused():
    with pytest.raises(InputError, match="items: there is nothing to embed; check the data"):
        embed(nn.Linear(2, 3), Numbers(0))
