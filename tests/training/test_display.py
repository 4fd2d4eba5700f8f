"""What a person sees of a training: bars in a terminal, lines in a log, nothing where nothing is asked for."""

import re

import pytest

from obdsd.terminal import training_display
from obdsd.training import train

SHOWN = {"epochs": 3, "val_fraction": 0.3, "evaluate_every": 1, "reference": True}


@pytest.fixture
def in_a_terminal(monkeypatch):
    """Standard error as a terminal of 160 columns."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.delenv("NO_COLOR", raising=False)


def seen(capsys) -> str:
    """Standard error without the codes that colour text and move the cursor."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)


def test_bars_in_a_terminal(options, in_a_terminal, capsys):
    train(options(**SHOWN))
    text = seen(capsys)
    assert all(words in text for words in ("epochs ━", "steps", "3/3"))
    assert re.search(r"base \d\.\d+, distillation \d\S*, weight \d\S*, [\d,]+ items/s, validation R@1 \d+\.\d\d %", text)
    for note in ("scoring the untrained features", "scoring the test classes"):
        assert note in [line.strip() for line in text.splitlines()]  # a line of its own, which stays


def test_bars_begin_where_a_run_goes_on(in_a_terminal, capsys):
    with training_display(True, 5, 4, first_epoch=2) as display:
        display.note("the run in :ghost: began with [2] threads")  # no markup of rich
        display.step(2, 1, 7.0, {"base": 0.5})
        assert [task.completed for task in display.bars.tasks] == [2, 1]
        display.epoch({"epoch": 2, "loss": {"base": 0.5}, "items_per_second": 7.0})
        assert [task.completed for task in display.bars.tasks] == [3, 0]
    assert "the run in :ghost: began with [2] threads" in seen(capsys)


def test_lines_in_a_log(options, capsys, monkeypatch):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    train(options(**SHOWN))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "scoring the untrained features"
    pattern = r"epoch {}/3: base \d\.\d+, distillation \S+, weight \S+, [\d,]+ items/s, validation R@1 \d+\.\d\d %, [\d,]+ s left"
    assert all(re.fullmatch(pattern.format(number), line) for number, line in enumerate(lines[1:4], start=1))
    assert lines[4:] == ["scoring the test classes"]


def test_where_nobody_teaches_a_line_has_one_loss(options, capsys, monkeypatch):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    train(options("ms", epochs=2))
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("epoch")]
    assert all(re.fullmatch(rf"epoch {number}/2: loss \S+, [\d,]+ items/s, [\d,]+ s left", line) for number, line in enumerate(lines, 1))
    assert len(lines) == 2


def test_nothing_where_nothing_is_asked_for(options, capsys):
    train(options(**SHOWN), show=False)
    assert capsys.readouterr() == ("", "")
