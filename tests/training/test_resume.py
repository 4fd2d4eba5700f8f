"""A run goes on where it stopped, to the same end; what is not the same run is refused."""

import json
import multiprocessing
import os
import shutil
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch

from obdsd import cli
from obdsd.errors import InputError, Terminated
from obdsd.loading import LOST
from obdsd.models import Embedder
from obdsd.report.opening import open_collection
from obdsd.training import RunRecord, Trainer, build, loop, run_folder, train
from obdsd.training.checkpoints import Checkpoints, read_state, write_state
from obdsd.training.scoring import Scoring
from tests.training.reading import assert_equal, assert_same_end, lines, rewritten, weights

CHOOSING = {"epochs": 3, "val_fraction": 0.3, "evaluate_every": 1, "select": "best", "optimizer": "adamw"}
WAYS = [{}, {"teacher": "ema"}, {"teacher": "memory"}, {"head": "linear", "head_init": "projection"}]
WRAPPED = {"targets": "balanced(global-diffusion(omega=0.3, neighbours=9))", "weight": 50.0}


@pytest.mark.parametrize("changes", WAYS, ids=str)
def test_an_interrupted_run_goes_on_to_the_same_end(finished, broken_off, changes):
    broken = broken_off(loop.Loop, "_run_epoch", 3, KeyboardInterrupt, "margin+obd-sd", **CHOOSING, **changes)
    with open(Path(broken.out) / "metrics.jsonl", "a") as file:  # an epoch whose checkpoint was not written in time
        file.write(json.dumps({"epoch": 2}) + "\n")
    train(broken, show=False)
    assert_same_end(finished("margin+obd-sd", **CHOOSING, **changes).folder, broken.out)


def test_targets_inside_targets_go_on_inside_an_epoch(finished, broken_off):
    """What the wrapped targets know of the whole training set is in the checkpoint."""
    broken = broken_off(Trainer, "step", 4 + 3, KeyboardInterrupt, "ms+global", **WRAPPED, checkpoint_steps=1)  # the second epoch distils
    train(broken, show=False)
    assert_same_end(finished("ms+global", **WRAPPED).folder, broken.out)


def test_a_signal_during_an_evaluation_ends_it_at_once(finished, broken_off):
    """All steps of the epoch are kept, it is evaluated anew, and the teacher hears of its end once."""
    broken = broken_off(Scoring, "validation", 2, None, "margin+obd-sd", **CHOOSING)
    state = read_state(Path(broken.out) / "checkpoints" / "last.pt")
    assert (state["place"]["epoch"], state["place"]["step"]) == (1, 3)
    assert not torch.equal(state["system"]["teacher.model.head.0.weight"], state["system"]["model.head.0.weight"])
    train(broken, show=False)
    assert_same_end(finished("margin+obd-sd", **CHOOSING).folder, broken.out)


def test_a_best_epoch_that_no_checkpoint_knows_does_not_take_the_place_of_the_one_that_it_knows(finished, broken_off, monkeypatch):
    """A kill between the two files, and rounding by which the epoch that was repeated is no longer the best."""
    choosing = {**CHOOSING, "epochs": 6, "lr": 0.02}
    recalls = [line["validation"]["recall@1"] for line in finished("ms", **choosing).metrics]
    bests = [epoch for epoch, recall in enumerate(recalls) if recall > max([-1.0, *recalls[:epoch]])]
    known, unknown = bests[-2:]
    broken = broken_off(run_folder.RunFolder, "append", unknown + 1, KeyboardInterrupt, "ms", **choosing)
    remember = loop.Loop._remember_best

    def worse(self, recall):
        remember(self, recall - (self.trainer.place.epoch >= unknown))

    monkeypatch.setattr(loop.Loop, "_remember_best", worse)
    expected = Checkpoints(Path(broken.out) / "checkpoints").read_best(known)
    record = train(broken, show=False)
    assert record.epoch == known
    assert_equal(weights(record.folder), expected)


def test_a_signal_during_the_last_scores_loses_no_epoch(finished, broken_off, monkeypatch):
    whole, broken = finished(), broken_off(Scoring, "final", 1)
    monkeypatch.setattr(Trainer, "step", lambda *_: pytest.fail("all steps were done"))
    train(broken, show=False)
    assert_same_end(whole.folder, broken.out)


def test_a_killed_process_of_the_loader_costs_no_step(image_options, monkeypatch, tmp_path):
    chosen = image_options(workers=1, batch_size=4, epochs=1, checkpoint_minutes=0)
    take, taken = Trainer.step, []

    def killing(self, *batch):
        if self.place.step == 1:
            for process in multiprocessing.active_children():
                process.kill()
                process.join()
        taken.append(take(self, *batch))
        return taken[-1]

    monkeypatch.setattr(Trainer, "step", killing)
    with pytest.raises(Terminated) as end:
        train(chosen, show=False)
    assert end.value.reason == LOST
    assert read_state(Path(chosen.out) / "checkpoints" / "last.pt")["place"]["step"] == len(taken) > 1
    monkeypatch.undo()
    train(chosen.replace(resume=True), show=False)
    assert_same_end(train(chosen.replace(out=str(tmp_path / "whole")), show=False).folder, chosen.out)


def test_checkpoints_inside_an_epoch_by_steps_and_by_minutes(options, monkeypatch, tmp_path):
    write, places = Checkpoints.write, []
    monkeypatch.setattr(Checkpoints, "write", lambda self, state: (places.append(state["place"]["step"]), write(self, state)))
    expected = {(0, 0.0): [0], (2, 0.0): [2, 4, 0], (0, 1e-9): [1, 2, 3, 4, 0], (0, 60.0): [0]}
    for number, ((steps, minutes), expected_places) in enumerate(expected.items()):
        places.clear()
        train(options("ms", epochs=1, checkpoint_steps=steps, checkpoint_minutes=minutes, out=str(tmp_path / str(number))), show=False)
        assert places == expected_places


@pytest.fixture
def begun(finished, options):
    """A run with all epochs done but no result yet."""
    chosen = options()
    shutil.copytree(finished(keep_checkpoints=True).folder, chosen.out)
    (Path(chosen.out) / "result.json").unlink()
    return chosen.replace(resume=True)


def test_another_run_is_not_resumed(begun):
    with pytest.raises(
        InputError, match=r"epochs=4 differs from 2 that the run in .* began with; train on from its model with init=.* and another out"
    ):
        train(begun.replace(epochs=4), show=False)
    with pytest.raises(InputError, match=r"targets=pairwise differs from batch-diffusion\(omega=0.3\)"):
        train(begun.replace(targets="pairwise"), show=False)


def test_options_of_the_machine_may_change(begun, finished):
    train(begun.replace(checkpoint_minutes=3.0, workers=1), show=False)
    assert_same_end(finished().folder, begun.out)


def test_other_numbers_of_threads_and_processes_are_told(begun, capsys):
    record = Path(begun.out) / "run.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "threads": 77, "processes": 3}))
    train(begun)
    shown, rest = capsys.readouterr().err, "from here on numbers agree within rounding only"
    assert f"the run began with 77 threads, now there are {torch.get_num_threads()}: {rest}" in shown
    assert f"the run began with 3 processes, now there are 1: {rest}, and dropout draws others" in shown


def test_a_run_goes_on_with_the_threads_that_it_began_with(begun, monkeypatch):
    """Rounding depends on them; what the user says counts more."""
    cores, usual, seen = os.cpu_count(), torch.get_num_threads(), []
    record = Path(begun.out) / "run.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "threads": cores}))
    monkeypatch.delenv("OMP_NUM_THREADS")
    train(begun, show=lambda done, total, text: seen.append((text, torch.get_num_threads())))
    assert ("scoring the test classes", cores) in seen
    assert "threads" not in str([text for text, _ in seen])
    assert torch.get_num_threads() == usual


def test_a_run_stopped_before_its_first_checkpoint_begins_anew(begun, finished, capsys):
    for name in ("last", "before"):
        (Path(begun.out) / "checkpoints" / f"{name}.pt").unlink()
    train(begun)
    assert f"nothing to resume in {begun.out} yet: beginning" in capsys.readouterr().err
    assert_same_end(finished().folder, begun.out)


def test_a_line_that_was_cut_off_is_written_anew(begun, finished):
    with open(Path(begun.out) / "metrics.jsonl", "a") as file:
        file.write('{"epoch": 2, "lo')
    train(begun, show=False)
    assert_same_end(finished().folder, begun.out)


def test_a_folder_in_use_or_finished_is_refused_before_a_model_is_made(finished, options, monkeypatch):
    chosen = options()
    out = Path(shutil.copytree(finished().folder, chosen.out))
    before = (out / "result.json").read_bytes()
    monkeypatch.setattr(Trainer, "__init__", lambda *_: pytest.fail("a model was made"))
    with pytest.raises(InputError, match="holds a run already; add --resume to go on with it, or choose another folder"):
        train(chosen, show=False)
    with pytest.raises(InputError, match=r"is finished; nothing is left to resume, see result\.json there"):
        train(chosen.replace(resume=True), show=False)
    assert (out / "result.json").read_bytes() == before
    with run_folder.RunFolder(out) as held:
        held.claim(chosen.replace(resume=True))
        monkeypatch.setattr(run_folder, "LOCK_SECONDS", 0.05)
        with pytest.raises(InputError, match=r"out=.*run is being trained by another process; wait for it, or stop it"):
            train(chosen.replace(resume=True), show=False)
        for file in (out / "result.json", *out.glob("checkpoints/*.pt")):  # the other one has just begun
            file.unlink()
        with pytest.raises(InputError, match="is being trained by another process"):
            train(chosen, show=False)


def test_a_folder_is_claimed_before_anything_is_built(options, monkeypatch):
    """A second training of the same name is refused while the first still reads its data; a failure leaves nothing behind."""
    chosen, opened = options(), build.collection_of
    monkeypatch.setattr(run_folder, "LOCK_SECONDS", 0.05)

    def slowly(*given):
        monkeypatch.setattr(build, "collection_of", opened)
        with pytest.raises(InputError, match=r"out=.*run is being trained by another process; wait for it, or stop it"):
            train(chosen, show=False)
        raise InputError("the data are gone")

    monkeypatch.setattr(build, "collection_of", slowly)
    with pytest.raises(InputError, match="the data are gone"):
        train(chosen, show=False)
    assert not Path(chosen.out).exists()
    Path(chosen.out).mkdir()
    (Path(chosen.out) / "notes").touch()
    monkeypatch.setattr(build, "collection_of", slowly)
    with pytest.raises(InputError, match="the data are gone"):
        train(chosen, show=False)
    assert os.listdir(chosen.out) == ["notes"]


def test_a_relative_path_is_found_from_any_working_directory(finished, features, options, tmp_path, monkeypatch):
    """Written as before, or as it is seen from there; where the data moved along with their run, they are taken as given."""
    home, away = tmp_path / "home", tmp_path / "away"
    for folder in (home, away):
        folder.mkdir()
    shutil.copy(features, home)
    monkeypatch.chdir(home)
    chosen = options(data=Path(features).name, keep_checkpoints=True)
    train(chosen, show=False)
    for place, data in ((away, chosen.data), (away, f"../home/{chosen.data}"), (home, f"./{chosen.data}")):
        monkeypatch.chdir(place)
        (Path(chosen.out) / "result.json").unlink()
        record = train(chosen.replace(data=data, resume=True), show=False)
        assert_same_end(finished().folder, record.folder)
        assert len(open_collection(record)["train"]) == 72
    monkeypatch.chdir(away)
    with pytest.raises(InputError, match=r"rows.npz: no such file"):
        train(chosen.replace(out="run"), show=False)
    monkeypatch.chdir(home.rename(tmp_path / "moved"))
    assert len(open_collection(RunRecord.read(chosen.out))["train"]) == 72


@pytest.mark.parametrize("named", ["teacher", "init"])
def test_other_relative_paths_mean_the_same_from_any_working_directory(named, finished, options, tmp_path, monkeypatch):
    """A model that teaches or is begun with is found again, and a run in another folder that has one of that name is another run."""
    home, away = tmp_path / "home", tmp_path / "away"
    for folder in (home, away):
        folder.mkdir()
    shutil.copytree(finished("ms").folder / "model", home / "models" / "first")
    monkeypatch.chdir(home)
    first = "models/first" if named == "init" else "frozen(source=models/first)"
    chosen = options().replace(**{named: first}, keep_checkpoints=True)
    train(chosen, show=False)
    whole = shutil.copytree(chosen.out, tmp_path / "whole")
    monkeypatch.chdir(away)
    (Path(chosen.out) / "result.json").unlink()
    assert_same_end(whole, train(chosen.replace(resume=True), show=False).folder)
    assert cli.main(["report", chosen.out, "--out", "page.html"]) == 0
    shutil.copytree(finished("margin").folder / "model", away / "models" / "first")
    with pytest.raises(InputError, match=rf"{named}=.*models/first.* differs from .*{home}/models/first.* that the run in .* began with"):
        train(chosen.replace(resume=True), show=False)


def test_a_finished_run_keeps_what_its_report_shows_and_no_more(finished, options, tmp_path):
    """Of three checkpoints with the optimiser's state, one without; `keep_checkpoints` keeps them."""
    choosing = {"val_fraction": 0.3, "evaluate_every": 1, "select": "best"}
    kept, tidy = (Path(finished(**choosing, keep_checkpoints=keep).folder) / "checkpoints" for keep in (True, False))
    best = RunRecord.read(kept.parent).epoch
    assert {path.name for path in kept.glob("*.pt")} >= {"before.pt", f"best-{best}.pt", "last.pt"}
    assert [path.name for path in tidy.glob("*.pt")] == ["before.pt"]
    whole, slim = (read_state(folder / "before.pt") for folder in (kept, tidy))
    assert whole.keys() - slim.keys() == {"optimizer", "precision"}
    assert_equal(whole["system"], slim["system"])
    assert_same_end(kept.parent, tidy.parent)


def test_data_that_changed_since(begun, features, tmp_path):
    copy, config = tmp_path / "copy.npz", Path(begun.out) / "config.yaml"
    config.write_text(config.read_text().replace(features, str(copy)))
    rewritten(features, copy, embeddings=np.load(features)["embeddings"] + 1e-3 * (np.arange(12) == 3))
    with pytest.raises(InputError, match=r"data=.*copy.npz changed since the run in .* began; restore it, or begin a new run"):
        train(begun.replace(data=str(copy)), show=False)


def test_a_checkpoint_of_another_model_or_of_none(begun):
    last = Path(begun.out) / "checkpoints" / "last.pt"
    state = torch.load(last, weights_only=True)  # the checksum at the end disturbs no other reader
    other = Embedder("features", features=12, dim=7, head="two-layer").state_dict()
    write_state(last, {**state, "system": {**state["system"], **{f"model.{name}": value for name, value in other.items()}}})
    with pytest.raises(InputError, match=r"last.pt: is of another model or optimiser \(.*size mismatch.*\); begin a new run"):
        train(begun, show=False)
    write_state(last, {"model": {}})
    with pytest.raises(InputError, match=r"last.pt: is no checkpoint of a training; begin a new run"):
        train(begun, show=False)


NO_ROOM = [  # for run.json, config.yaml, then of each epoch its line and its checkpoint
    (5, r"metrics.jsonl: cannot be written \(No space left on device\); make room, then go on with --resume"),
    (6, r"last.pt: cannot be written \(No space left on device\)"),
]


@pytest.mark.parametrize(("number", "message"), NO_ROOM)
def test_a_full_disk_keeps_the_last_epoch(options, monkeypatch, number, message):
    chosen, sync, calls = options(epochs=3), os.fsync, count(1)

    def full(descriptor):
        if next(calls) == number:
            raise OSError(28, os.strerror(28))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match=message):
        train(chosen, show=False)
    good = read_state(Path(chosen.out) / "checkpoints" / ("before.pt" if number == 6 else "last.pt"))
    assert good["place"]["epoch"] == 1  # the next
    assert train(chosen.replace(resume=True), show=False).epoch == 2
    assert [line["epoch"] for line in lines(chosen.out)] == [0, 1, 2]
