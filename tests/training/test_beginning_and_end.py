"""What a training begins with and what it leaves: a batch that fits, another model to begin with, all classes, and scores that fail."""

import json
import os
import signal
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch

from obdsd import InputError
from obdsd.data import open_data
from obdsd.errors import Terminated
from obdsd.models import Embedder, open_model
from obdsd.training import RunRecord, Trainer, build, train
from obdsd.training.scoring import Scoring
from obdsd.training.verifying import verify_run
from tests.data.trees import touch
from tests.made_up import write_rows
from tests.started import helpers
from tests.training.reading import assert_same_end

MODEL = {"head": "linear", "dim": None}  # as usual: another model brings its own


def test_the_usual_batch_fits_the_classes_that_there_are(options, capsys):
    record = train(options("ms", batch_size=None), show=True)
    assert record.options.batch_size == 24  # 12 training classes × 2
    assert "batches of 24: the training set has 12 classes of 2 items or more; --batch-size chooses another size" in capsys.readouterr().err
    with pytest.raises(InputError, match="batch_size=112 needs 56 classes × 2, but 12 classes have 2 images or more; try 24"):
        train(options("ms", batch_size=112, out=str(record.folder) + "-asked"), show=False)


def test_the_usual_batch_fits_folders_and_benchmarks_too(options, pictures, tmp_path):
    for c in (1, 2, 3, 101, 102):
        for i in range(3):
            touch(tmp_path, f"{c:03}.Bird/{i}.jpg")
    for data, classes in ((pictures, 6), (f"cub200:{tmp_path}", 3)):
        chosen = options("ms", data=data, batch_size=None, allow_incomplete=True, backbone="tiny-conv", head="linear", ks=(1,))
        fit, remarks = build.fitted(chosen, build.collection_of(chosen))
        assert fit.batch_size == 2 * classes
        told = f"batches of {2 * classes}: the training set has {classes} classes of 2 items or more; --batch-size chooses another size"
        assert remarks == [told]


def test_many_classes_fill_the_usual_batch(options, tmp_path):
    many = write_rows(tmp_path / "many.npz", 120, 2, 6)
    assert train(options("ms", data=many, batch_size=None, epochs=1), show=False).options.batch_size == 112


def test_a_batch_that_was_fitted_stays_when_the_run_goes_on(finished, broken_off):
    chosen = broken_off(Scoring, "final", 1, preset="ms", batch_size=None)
    assert_same_end(finished("ms", batch_size=24).folder, train(chosen, show=False).folder)


def test_a_training_begins_with_another_model_and_remembers_what_it_had_seen(finished, options, features, tmp_path):
    first = finished("ms")
    model = first.model()
    record = train(options("ms", init=str(first.folder), epochs=1, lr=1e-12, weight_decay=0.0, **MODEL), show=False)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(record.model().state_dict()[name], value)
    assert (record.options.head, record.options.dim) == ("two-layer", 6)  # what it is, not what the options would have made
    seen = record.model().trained_on
    assert {*seen.items["train"].split()} == {*model.trained_on.items["train"].split()}
    other = write_rows(tmp_path / "other.npz", 12, 5, 12)
    again = {**MODEL, "data": other, "init": str(first.folder / "model"), "batch_size": 8, "out": str(tmp_path / "more")}
    more = train(options("ms", **again), show=False).model().trained_on
    assert {*seen.items["train"].split()} < {*more.items["train"].split()}


def test_models_that_cannot_be_begun_with(finished, options, pictures, features, tmp_path):
    first = finished("ms")
    wide = write_rows(tmp_path / "wide.npz", 24, 6, 13)
    Embedder("tiny-conv", dim=6).save(tmp_path / "network")
    cases = {
        "takes rows of length 12, .* has 13; give a model that fits the data": {"data": wide, "init": str(first.folder)},
        "takes embeddings, .* holds images; give a model that fits": {"data": pictures, "init": str(first.folder)},
        "was trained as a whole network, not as a head; add --no-frozen": {
            "data": pictures, "init": str(tmp_path / "network"), "frozen": True,
        },
        "does not exist; train it first": {"init": str(tmp_path / "nowhere")},
        f"model={first.folder}: was trained on": {"init": str(first.folder), "split_seed": 3},
    }  # fmt: skip
    for message, changes in cases.items():
        with pytest.raises(InputError, match=message):
            train(options("ms", **{"out": str(tmp_path / "run"), "batch_size": 8, **MODEL, **changes}), show=False)


def test_all_classes_are_trained_on_and_nothing_is_scored(options, features, capsys):
    record = train(options("ms", test_fraction=0, reference=True), show=True)
    assert "test_fraction=0: all classes are trained on, and nothing is scored" in capsys.readouterr().err
    assert (record.options.score, record.scores, record.reference, record.data.keys()) == ("none", {}, {}, {"train"})
    assert record.data["train"]["items"] == len(open_data(features)["train"]) + len(open_data(features)["test"])
    assert record.train["density"] > 0
    assert all(not check.differences for check in verify_run(record.folder))
    with pytest.raises(InputError, match="is finished; nothing is left to resume"):
        train(options("ms", test_fraction=0, reference=True, resume=True), show=False)


def test_scores_that_fail_leave_a_model_and_the_same_command_scores_it(finished, options, monkeypatch):
    chosen = options("ms")

    def broken(self):
        raise InputError("photos/wren/7.jpg: cannot be read as an image; replace or remove it")

    with monkeypatch.context() as patch:
        patch.setattr(Scoring, "final", broken)
        with pytest.raises(InputError, match=r"7\.jpg: cannot .*; the trained model is kept in .*/run/model, only its scores are missing"):
            train(chosen, show=False)
    expected = finished("ms").model().state_dict()
    for name, value in open_model(chosen.out).state_dict().items():
        assert torch.equal(value, expected[name])
    assert_same_end(finished("ms").folder, train(chosen.replace(resume=True), show=False).folder)


def test_a_test_part_may_be_mended_before_it_was_scored(options, features, tmp_path, capsys):
    file = Path(write_rows(tmp_path / "rows.npz", 24, 6, 12))
    chosen = options("ms", data=str(file), reference=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scoring, "final", lambda self: (_ for _ in ()).throw(InputError("broken")))
        with pytest.raises(InputError, match="broken"):
            train(chosen, show=False)
    with np.load(file) as kept:
        rows, labels = kept["embeddings"].copy(), kept["labels"]
    test = open_data(str(file))["test"].positions
    rows[test[0]] = rows[test[0], ::-1]
    np.savez(file, embeddings=rows, labels=labels)
    before = json.loads((Path(chosen.out) / "reference.json").read_text())
    record = train(chosen.replace(resume=True), show=True)
    assert "test changed since the run began; what is there now is scored" in capsys.readouterr().err
    assert record.reference != before
    assert all(not check.differences for check in verify_run(record.folder))
    assert RunRecord.read(chosen.out).data["test"]["fingerprint"] == open_data(str(file))["test"].fingerprint()
    rows[test[1]] *= 2
    np.savez(file, embeddings=rows, labels=labels)
    with pytest.raises(InputError, match=r"changed since the run in .* began; restore it"):
        train(chosen.replace(resume=True), show=False)


ENDINGS = {"to its end": None, "by an error": ZeroDivisionError(), "by a signal": Terminated()}


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_no_process_that_loads_images_outlives_a_training(uncollected, image_options, monkeypatch, ending):
    before, step, during = helpers(), Trainer.step, []

    def watching(self, *batch):
        during.append(len(helpers()))
        if isinstance(ending, Exception):
            raise ending
        if ending is not None:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(self, *batch)

    monkeypatch.setattr(Trainer, "step", watching)
    with nullcontext() if ending is None else pytest.raises(type(ending)) as kept:
        train(image_options("ms", workers=2, epochs=1, batch_size=4), show=False)
    assert max(during) > len(before)
    assert helpers() == before
    del kept
