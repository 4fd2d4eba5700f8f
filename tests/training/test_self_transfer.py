"""RCL's self-transfer: a first training with another loss teaches the second, which has no labels; PLG's teacher beside its preset."""

import pytest
import torch

from obdsd.errors import InputError, Terminated
from obdsd.experiments.timing import Pace
from obdsd.method.relations import relaxed_contrastive
from obdsd.training import RunRecord, Trainer, train
from obdsd.training.checkpoints import read_state
from tests.training.reading import assert_same_end, model_bytes, trainer_of


def test_the_first_generation_is_the_training_with_its_loss_and_teaches_the_second(finished):
    plain, again = finished("proxy-anchor"), finished("none+self-transfer", keep_checkpoints=True)
    first = RunRecord.read(again.folder / "first")
    assert (first.options.preset, str(first.options.loss), str(first.options.teacher)) == ("proxy-anchor", "proxy-anchor", "none")
    assert model_bytes(first.folder) == model_bytes(plain.folder)
    state = read_state(again.folder / "checkpoints" / "last.pt")["system"]
    for name, weight in plain.model().state_dict().items():
        assert torch.equal(state[f"teacher.model.{name}"], weight)
    assert all(line["loss"]["base"] == 0 and line["loss"]["distillation"] > 0 for line in again.metrics)


def test_a_step_is_the_relaxed_contrastive_loss(options):
    trainer = trainer_of(options("none+self-transfer"))
    trainer.begin(lambda: trainer.model)
    with torch.no_grad():
        for weight in trainer.system.teacher.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)))
    trainer.begin_epoch()
    inputs, labels, indices = next(trainer.batches.epoch(0))
    with torch.no_grad():
        expected = relaxed_contrastive(trainer.model(inputs), trainer.system.teacher(inputs, indices).embeddings)
    parts = trainer.step(inputs, labels, indices)
    assert float(parts["distillation"]) == pytest.approx(float(expected), rel=1e-4)
    assert float(parts["base"]) == 0


@pytest.mark.parametrize("step", [6, 14])  # an epoch is 4 steps, a generation 8
def test_it_goes_on_inside_either_generation(broken_off, finished, capsys, step):
    whole, broken = finished("none+self-transfer"), broken_off(Trainer, "step", step, Terminated, "none+self-transfer", show=True)
    assert "first, proxy-anchor is trained in " in capsys.readouterr().err
    train(broken, show=False)
    assert_same_end(whole.folder, broken.out)


def test_beside_a_loss_it_is_a_term(options):
    trainer = trainer_of(options("ms+self-transfer"))
    trainer.begin(lambda: trainer.model)
    trainer.begin_epoch()
    assert trainer.step(*next(trainer.batches.epoch(0)))["base"] > 0


def test_its_time_is_that_of_both_generations(options):
    pace = Pace(options("none+self-transfer"))
    assert str(pace.first.options.loss) == "proxy-anchor"


BAD = [
    ({"teacher": "self-transfer"}, "teacher=self-transfer needs loss; write self-transfer(loss=…)"),
    ({"teacher": "self-transfer(proxy)"}, "teacher=self-transfer(proxy): loss=proxy is not known; did you mean proxy-"),
    ({"teacher": "self-transfer(none)"}, "loss=none leaves the first training nothing to learn; try proxy-anchor"),
]


@pytest.mark.usefixtures("as_shipped")
@pytest.mark.parametrize(("changes", "message"), BAD)
def test_what_cannot_be_is_one_line(options, changes, message):
    with pytest.raises(InputError) as refusal:
        train(options("none+self-transfer", **changes), show=False)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)
