"""What people see while something runs, in real processes: lines where standard error is a pipe, bars where it is a terminal."""

import os
import re
import sys
import threading
import time
from functools import partial

import numpy as np
import pytest
from PIL import Image

from obdsd import terminal
from obdsd.presets import preset
from obdsd.terminal import Count, bar, stages
from obdsd.training import Trainer, build, train
from tests.made_up import write_rows
from tests.training.reading import assert_same_end
from tests.training.starting import run_command

SMALL = {"epochs": 2, "batch_size": 16, "dim": 16, "device": "cpu", "val_fraction": 0.3, "evaluate_every": 1}
FLAGS = [word for name, value in SMALL.items() for word in (f"--{name.replace('_', '-')}", str(value))]
LEFT = r"(\d+ s left|\d+ s so far)"


def impatient():
    """Lines come often enough to be seen in a short training."""
    terminal.LINE_SECONDS = terminal.WATCH_SECONDS = 0.005


def at_a_terminal(name):
    os.environ.update(TERM="xterm-256color", COLUMNS="160")
    os.environ.pop("NO_COLOR", None)
    os.dup2(os.open(name, os.O_RDWR | os.O_NOCTTY), 2)
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    terminal.WATCH_SECONDS = 0.005


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """40 classes × 40 rows of length 64."""
    return write_rows(tmp_path_factory.mktemp("data") / "rows.npz", 40, 40, 64)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """20 classes × 4 images of noise."""
    folder, noise = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for number in range(80):
        (folder / f"c{number // 4}").mkdir(exist_ok=True)
        Image.fromarray(noise.integers(0, 255, (32, 32, 3), dtype=np.uint8)).save(folder / f"c{number // 4}" / f"{number}.png")
    return f"folder:{folder}"


@pytest.fixture
def screen():
    """The name of a real terminal, and what was written there, without the codes that colour text and move the cursor."""
    ours, theirs = os.openpty()
    parts = []

    def read():
        while True:
            try:
                parts.append(os.read(ours, 4096))
            except OSError:
                return

    reader = threading.Thread(target=read, daemon=True)
    reader.start()

    def written():
        os.close(theirs)
        reader.join()
        os.close(ours)
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", b"".join(parts).decode())

    return os.ttyname(theirs), written


def test_every_long_part_of_a_training_is_told_and_changes_no_number(data, tmp_path, screen):
    code, text = run_command(["train", data, *FLAGS, "--preset", "ms+obd-sd", "--out", "piped", "--no-report"], tmp_path, impatient)
    assert code == 0
    lines = text.splitlines()
    for what in (
        r"(reading the data|search|clustering|PCA of the training set|geometry of the training set): .*" + LEFT,
        r"epoch 1/2, step \d+/\d+: base \S+, distillation \S+, [\d,]+ items/s, " + LEFT,
        r"epoch 2/2: base .* validation R@1 \S+ %, \d+ s left",
    ):
        assert any(re.fullmatch(what, line) for line in lines), (what, text)
    name, written = screen
    words = ["train", data, *FLAGS, "--preset", "ms+obd-sd", "--out", "shown", "--no-report"]
    assert run_command(words, tmp_path, partial(at_a_terminal, name))[0] == 0
    seen = written()
    assert all(re.search(what, seen) for what in ("epochs ━+", "steps  ━+", "2/2", r"\d+ items/s, validation R@1 \S+ %"))
    silent = train(preset("ms+obd-sd", data, **SMALL, out=str(tmp_path / "silent")), show=False)
    for other in ("piped", "shown"):
        assert_same_end(silent.folder, tmp_path / other)


def test_scoring_tells_each_of_its_stages(pictures):
    told = []
    options = preset("ms", pictures, backbone="tiny-conv", pretrained="none", workers=0, epochs=1, batch_size=8, dim=4, val_fraction=0.3)
    collection = build.collection_of(options.replace(device="cpu"))
    trainer = Trainer(options.replace(device="cpu"), collection, progress=lambda *words: told.append(words))
    scoring = trainer.scoring
    for act, stages_of_it in (
        (scoring.geometry, ["embedding train items", "geometry of the training set"]),
        (scoring.validation, ["embedding val items", "search"]),
        (scoring.final, ["embedding test items", "search", "clustering"]),
        (scoring.reference, ["untrained features", "features", "search", "PCA of the training set", "search"]),
        (scoring.projection, ["projection of the training set"]),
    ):
        told.clear()
        act()
        assert [stage for stage, done, _ in told if done == 0] == stages_of_it
        assert {stage for stage, done, total in told if done == total} == set(stages_of_it)


def test_runs_side_by_side_have_a_line_or_a_bar_each(data, tmp_path, screen):
    words = ["compare", data, *FLAGS, "--presets", "ms,ms+psd", "--seeds", "1", "--jobs", "2", "--no-report", "--out"]
    code, text = run_command([*words, "piped"], tmp_path, impatient)
    assert code == 0
    for run in ("ms, 0", "ms+psd, 0"):
        assert re.search(rf"^{re.escape(run)}: (epoch \d/2|search|clustering|reading the data).* {LEFT}$", text, re.MULTILINE), text
        assert re.search(rf"^finished \d of 2: {re.escape(run)}(, \d+ s left)?$", text, re.MULTILINE)
    name, written = screen
    assert run_command([*words, "shown"], tmp_path, partial(at_a_terminal, name))[0] == 0
    seen = written()
    for run in ("ms, 0", "ms+psd, 0"):
        assert re.search(rf"{re.escape(run)} +━+", seen), seen


def test_what_computes_without_a_word_is_told_too(capsys, monkeypatch):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setattr(terminal, "LINE_SECONDS", 0.02)
    with stages() as tell:
        tell("solving", 0, 1)
        time.sleep(0.1)  # a library
        tell("solving", 1, 1)
        tell("looking", 3, 7)
        time.sleep(0.1)
    solving, *_, looking = capsys.readouterr().err.splitlines()
    assert (solving, looking) == ("solving: 0 s so far", "looking: 3 of 7, 0 s left")


def test_what_is_over_soon_is_not_told(capsys):
    with bar("embedding", 4) as advance:
        advance(4)
    with stages(show=False) as tell:
        tell("silence", 0, 1)
    assert capsys.readouterr() == ("", "")


def test_the_time_left_is_that_of_what_was_done_here():
    count = Count("search", 1_000, "images", done=400)
    assert count.line().startswith("search: 400 of 1,000, 0 s so far")
    count.done, count.since = 500, time.monotonic() - 40
    assert count.line() == "search: 500 of 1,000, 2 images/s, 3 min left"
