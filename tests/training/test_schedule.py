import math

import pytest
import torch

from obdsd.options import TrainOptions
from obdsd.training.schedule import lr_factor, set_learning_rates


def test_constant_steps_and_cosine():
    assert lr_factor(TrainOptions("rows.npz"), 100, 1.0) == 1.0
    steps = TrainOptions("rows.npz", schedule="steps", lr_steps=(200, 250), lr_gamma=0.3, epochs=300)
    assert [lr_factor(steps, epoch, 0.1) for epoch in (199, 200, 249, 250)] == pytest.approx([1, 0.3, 0.3, 0.09])
    cosine = TrainOptions("rows.npz", schedule="cosine", epochs=10)
    assert lr_factor(cosine, 4, 1.0) == pytest.approx(0.5)
    assert lr_factor(cosine, 9, 1.0) == pytest.approx(0, abs=1e-12)
    assert lr_factor(cosine, 1, 0.5) == pytest.approx((1 + math.cos(math.pi * 0.15)) / 2)


def test_warmup_rises_from_nothing_and_multiplies_the_rest():
    warm = TrainOptions("rows.npz", warmup_epochs=2, schedule="steps", lr_steps=(1,), lr_gamma=0.5)
    assert [lr_factor(warm, 0, 0.1), lr_factor(warm, 0, 1.0)] == pytest.approx([0.05, 0.5])
    assert [lr_factor(warm, 1, 0.5), lr_factor(warm, 5, 1.0)] == pytest.approx([0.375, 0.5])


def test_every_group_keeps_its_own_rate():
    weights = [torch.nn.Parameter(torch.ones(1)) for _ in range(2)]
    optimizer = torch.optim.SGD([{"params": [weights[0]], "base_lr": 1.0}, {"params": [weights[1]], "base_lr": 0.1}], lr=9)
    set_learning_rates(optimizer, 0.5)
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 0.05]
