"""Which weights are kept: the last, their running average, or a mixture with those at the start."""

import json

import numpy as np
import pytest
import torch

from obdsd.cli import main
from obdsd.training import Trainer, train, verifying
from obdsd.training.build import collection_of
from obdsd.training.interpolation import SHARES, between, go_back
from obdsd.training.scoring import Scoring
from tests.training.reading import assert_equal, assert_same_end, few_steps, model_bytes, weights

AVERAGE = {"keep": "average", "average_decay": 0.8}
HELD_OUT = {"val_fraction": 0.3, "evaluate_every": 1}
BETWEEN = {**HELD_OUT, "interpolate": True, "head": "linear", "head_init": "projection", "lr": 0.02}


def test_the_average_is_that_of_the_weights_after_each_step(options, monkeypatch):
    seen, step = [], Trainer.step
    monkeypatch.setattr(Trainer, "step", lambda self, *batch: (step(self, *batch), seen.append(clone(self.model)))[0])
    trainer, _ = few_steps(options("ms", **AVERAGE), count=0)
    average = clone(trainer.model)
    trainer, _ = few_steps(options("ms", **AVERAGE), count=4)
    for after in seen:
        average = {name: 0.8 * average[name] + 0.2 * after[name] for name in average}
    for name, tensor in trainer.kept.state_dict().items():
        torch.testing.assert_close(tensor, average[name])
    assert not torch.allclose(average["head.0.weight"], seen[-1]["head.0.weight"], atol=1e-4)


def clone(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def test_the_average_is_kept_and_scored_and_changes_nothing_of_the_training(finished, options):
    plain, averaged = finished("ms", **HELD_OUT), finished("ms", **HELD_OUT, **AVERAGE)
    assert model_bytes(plain.folder) != model_bytes(averaged.folder)
    assert [line["loss"] for line in plain.metrics] == [line["loss"] for line in averaged.metrics]
    assert (plain.chosen_by, averaged.chosen_by) == ("last epoch", "last epoch, running average")
    assert averaged.metrics[-1]["validation"]["recall@1"] == averaged.validation["recall@1"]
    at_once = train(options("ms", **HELD_OUT, keep="average", average_decay=0.0), show=False)
    assert model_bytes(plain.folder) == model_bytes(at_once.folder)


def test_statistics_of_batches_are_averaged_with_the_weights(image_options):
    trainer, _ = few_steps(image_options("ms", **AVERAGE, batchnorm="train"))
    norms = [name for name in trainer.model.state_dict() if name.endswith("running_var")]
    kept, own = trainer.kept.state_dict(), trainer.model.state_dict()
    assert norms
    assert all(not torch.equal(kept[name], own[name]) for name in norms)
    assert all((kept[name] > 0).all() for name in norms)


def test_an_average_of_the_best_epoch_is_taken_from_its_checkpoint(finished):
    record = finished("ms", **HELD_OUT, **AVERAGE, select="best", epochs=3)
    recalls = [line["validation"]["recall@1"] for line in record.metrics]
    assert record.epoch == int(np.argmax(recalls))
    assert record.validation["recall@1"] == pytest.approx(max(recalls))


@pytest.mark.parametrize("changes", [{**AVERAGE, **HELD_OUT}, BETWEEN, {**BETWEEN, **AVERAGE}], ids=["average", "between", "both"])
def test_a_run_that_stopped_inside_an_epoch_goes_on_to_the_same_bits(finished, broken_off, changes):
    broken = broken_off(Trainer, "step", 6, KeyboardInterrupt, "margin+psd", **changes, checkpoint_steps=1)
    train(broken, show=False)
    assert_same_end(finished("margin+psd", **changes).folder, broken.out)


def test_a_run_that_stopped_while_weights_were_tried_chooses_the_same(finished, broken_off):
    broken = broken_off(Scoring, "validation", 2 + 5, KeyboardInterrupt, "ms", **BETWEEN)  # after those of two epochs
    train(broken, show=False)
    assert_same_end(finished("ms", **BETWEEN).folder, broken.out)


def test_held_out_classes_choose_between_the_start_and_the_end(finished):
    record = finished("ms", **BETWEEN, keep_checkpoints=True)
    end = finished("ms", **{**BETWEEN, "interpolate": False})
    trainer = Trainer(record.options, collection_of(record.options))
    trainer.begin(lambda: None)
    start, last = clone(trainer.model), weights(end.folder)
    found = record.interpolation
    recalls = []
    for share in found["shares"]:
        trainer.model.load_state_dict({name: (1 - share) * start[name] + share * last[name] for name in last})
        trainer.scoring.forget()
        recalls.append(trainer.scoring.validation().as_dict()["recall@1"])
    assert found["shares"] == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    assert found["recall@1"] == pytest.approx(recalls)
    assert found["share"] == max(share for share, recall in zip(SHARES, recalls, strict=True) if recall == max(recalls))
    for name, tensor in weights(record.folder).items():
        torch.testing.assert_close(tensor, (1 - found["share"]) * start[name] + found["share"] * last[name])
    assert record.chosen_by == "last epoch, interpolated"
    assert record.validation["recall@1"] == pytest.approx(max(recalls))


def test_of_equals_the_nearest_to_the_end_is_taken_and_ends_are_exact():
    start, model = {"weight": torch.full((2, 2), 0.1)}, torch.nn.Linear(2, 2, bias=False)
    end = clone(model)
    assert_equal(between(start, end, 0.0), start)
    assert_equal(between(start, end, 1.0), end)
    assert go_back(model, start, lambda: 0.5)["share"] == 1.0
    assert_equal(clone(model), end)
    tried = iter([0.1, 0.9, 0.3, 0.9, *[0.2] * 7])
    assert go_back(model, start, lambda: next(tried))["share"] == 0.3
    assert_equal(clone(model), between(start, end, 0.3))
    counted = between({"n": torch.tensor(0)}, {"n": torch.tensor(7)}, 0.5)
    assert int(counted["n"]) == 7


@pytest.mark.parametrize("changes", [{**AVERAGE, **HELD_OUT}, BETWEEN, {**BETWEEN, **AVERAGE, "select": "best"}], ids=str)
def test_what_was_kept_can_be_verified_and_a_wrong_choice_shows(finished, changes, tmp_path):
    record = finished("ms", **changes)
    assert [check for check in verifying.verify_run(record.folder) if check.differences] == []
    if record.interpolation is None:
        return
    file = record.folder / "result.json"
    said = file.read_text()
    result = json.loads(said)
    result["interpolation"]["recall@1"] = [value / 2 for value in result["interpolation"]["recall@1"]]
    try:
        file.write_text(json.dumps(result))
        wrong = [line for check in verifying.verify_run(record.folder) for line in check.differences]
    finally:
        file.write_text(said)
    assert any(line.startswith("recall@1: interpolation of result.json") for line in wrong)


def test_the_command_tells_what_was_chosen(features, tmp_path, capsys):
    out = tmp_path / "run"
    words = ["--epochs", "2", "--batch-size", "16", "--dim", "6", "--no-report", "--device", "cpu", "--out", str(out)]
    assert main(["train", features, *words, "--val-fraction", "0.3", "--interpolate", "--keep", "average"]) == 0
    found = json.loads((out / "result.json").read_text())["interpolation"]
    printed = capsys.readouterr().out
    assert f"  weights {100 * found['share']:.0f} % of the way from the start to the end: Recall@1" in printed
    assert "last epoch, running average, interpolated (epoch 2 of 2)" in printed


BAD = [
    ({"interpolate": True}, "interpolate=True needs held-out classes; add val_fraction=0.2"),
    ({"average_decay": 0.9}, "average_decay=0.9 does nothing with keep=weights; leave it out, or change keep"),
    ({"keep": "average", "average_decay": 1.0}, "average_decay=1.0 must be from 0 to less than 1"),
    ({"keep": "best"}, "keep=best"),
]


@pytest.mark.usefixtures("as_shipped")
@pytest.mark.parametrize(("changes", "message"), BAD, ids=[message for _, message in BAD])
def test_what_cannot_be_is_one_line(options, changes, message):
    with pytest.raises(ValueError, match="^" + message) as refusal:
        train(options("ms", **changes), show=False)
    assert "\n" not in str(refusal.value)


def test_statistics_between_two_networks_are_refused(image_options):
    with pytest.raises(ValueError, match=r"^interpolate=True needs BatchNorm that keeps its statistics; use batchnorm=frozen with it$"):
        train(image_options("ms", val_fraction=0.3, interpolate=True, batchnorm="train"), show=False)
