"""A step that cannot be taken ends the run in one line, and nothing bad is kept."""

import json
from pathlib import Path

import pytest
import torch

from obdsd import objectives
from obdsd.data import open_data
from obdsd.data.batches import ClassBatches
from obdsd.errors import InputError
from obdsd.training import Trainer, build, train
from obdsd.training.checkpoints import read_state


class Broken(torch.nn.Module):
    """A loss that is NaN at its third call."""

    calls = 0

    def forward(self, z, labels, indices_tuple=None):
        self.calls += 1
        return z.sum() * (float("nan") if self.calls == 3 else 1.0)


def test_a_loss_that_is_not_finite_stops_the_run_before_the_update(options, monkeypatch):
    chosen = options()
    monkeypatch.setattr(build.LOSSES, "build", lambda *_, **__: objectives.from_pml(Broken()))
    message = r"epoch 0, step 2: the loss is not finite \(base nan, distillation 0\); stopped before the update.*; try a smaller lr"
    with pytest.raises(InputError, match=message) as caught:
        train(chosen, show=False)
    assert "\n" not in str(caught.value)
    failure = json.loads((Path(chosen.out) / "failure.json").read_text())
    batch = list(ClassBatches(open_data(chosen.data)["train"].labels, 16, 2, seed=0).epoch(0))[2]
    assert failure["indices"] == [draw.item for draw in batch]
    assert not (Path(chosen.out) / "result.json").exists()


def test_a_diverging_model_is_named_with_its_step(options):
    with pytest.raises(InputError, match=r"epoch \d+, step \d+: .*(NaN or infinite|not finite|diverged).*; try a smaller lr"):
        train(options("ms", lr=1e25, epochs=20, optimizer="sgd"), show=False)


def test_rows_without_a_length_are_told_as_divergence(options, monkeypatch):
    monkeypatch.setattr(Trainer, "_forward", lambda self, inputs: self.system.rows(inputs) * 0)
    with pytest.raises(
        InputError, match=r"step 0: the model's rows no longer have unit length, the training diverged; .*; try a smaller lr"
    ):
        train(options("ms"), show=False)


def test_weights_that_are_not_finite_are_not_kept(options, monkeypatch):
    chosen, step = options("ms"), Trainer.step

    def spoil(self, *batch):
        parts = step(self, *batch)
        if self.place.epoch == 1:
            self.model.head[0].weight.data[0, 0] = float("nan")
            monkeypatch.setattr(Trainer, "step", lambda *_: parts)
        return parts

    monkeypatch.setattr(Trainer, "step", spoil)
    with pytest.raises(InputError, match="epoch 1: the model's weights are not finite; the checkpoint before is kept, try a smaller lr"):
        train(chosen, show=False)
    assert read_state(Path(chosen.out) / "checkpoints" / "last.pt")["place"]["epoch"] == 1
