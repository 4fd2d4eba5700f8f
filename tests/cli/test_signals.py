"""Ctrl-C and SIGTERM, in real processes."""

import json
import signal
import time

from obdsd import cli
from tests.cli.conftest import SMALL
from tests.started import PATIENCE, python, wait_until


def test_a_signal_keeps_the_step_and_says_how_to_go_on(rows, tmp_path):
    """Ctrl-C; the same command with --resume goes on; SIGTERM; every epoch is there once."""
    out = tmp_path / "run"
    metrics = out / "metrics.jsonl"
    command = ["-m", "obdsd", "train", rows, "--out", str(out), *SMALL, "--epochs", "4000"]

    def epochs():
        return [json.loads(line)["epoch"] for line in metrics.read_text().splitlines()] if metrics.exists() else []

    for number, code, more in ((signal.SIGINT, 130, []), (signal.SIGTERM, 75, ["--resume"])):
        before = len(epochs())
        with python(*command, *more) as process:
            wait_until(lambda before=before: len(epochs()) > before and (out / "checkpoints" / "last.pt").exists(), process)
            process.send_signal(number)
            _, said = process.communicate(timeout=PATIENCE)
            assert process.returncode == code
        assert f"stopped; {out} keeps everything so far: the same command with --resume goes on from there\n" in said
        assert "Traceback" not in said
    assert epochs() == list(range(len(epochs())))


def test_a_signal_while_the_report_is_made(rows, tmp_path):
    """The run is complete, the exit code is that of every other moment, and the command that is named makes the report."""
    out = tmp_path / "run"
    command = ["-u", "-m", "obdsd", "train", rows, "--out", str(out), *SMALL, "--report"]
    with python(*command) as process:
        while not process.stdout.readline().startswith("scores:"):
            assert process.poll() is None
        time.sleep(0.2)  # the report takes longer
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 75, said
    report = f"obdsd report {out} --out {out / 'report.html'}"
    assert said.endswith(f"{out} is complete but for its report: {report} makes it\nobdsd: terminated\n")
    assert not (out / "report.html").exists()
    assert cli.main(report.split()[1:]) == 0
    assert (out / "report.html").exists()


def test_a_signal_ends_every_command_alike():
    code = """
import os, signal
from obdsd.cli import info, main
info.run = lambda options: os.kill(os.getpid(), signal.SIGTERM)
raise SystemExit(main(["info"]))
"""
    with python("-c", code) as process:
        _, said = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said) == (75, "obdsd: terminated\n")
