"""Ctrl-C and SIGTERM, in real processes."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import obdsd
from tests.cli.conftest import SMALL


def heed_ctrl_c():
    """A shell starts background jobs with the signal ignored, and that would be inherited."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def running(command):
    """A process that is gone at the end, whatever happens."""
    environment = {**os.environ, "PYTHONPATH": str(Path(obdsd.__file__).parent.parent)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes, env=environment, preexec_fn=heed_ctrl_c) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_until(true, process, seconds=120):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)


def test_a_signal_keeps_the_step_and_says_how_to_go_on(rows, tmp_path):
    """Ctrl-C; the same command with --resume goes on; SIGTERM; every epoch is there once."""
    out = tmp_path / "run"
    metrics = out / "metrics.jsonl"
    command = [sys.executable, "-m", "obdsd", "train", rows, "--out", str(out), *SMALL, "--epochs", "4000"]

    def epochs():
        return [json.loads(line)["epoch"] for line in metrics.read_text().splitlines()] if metrics.exists() else []

    for number, code, more in ((signal.SIGINT, 130, []), (signal.SIGTERM, 75, ["--resume"])):
        before = len(epochs())
        with running([*command, *more]) as process:
            wait_until(lambda before=before: len(epochs()) > before and (out / "checkpoints" / "last.pt").exists(), process)
            process.send_signal(number)
            _, said = process.communicate(timeout=60)
            assert process.returncode == code
        assert f"stopped; {out} keeps everything so far: the same command with --resume goes on from there\n" in said
        assert "Traceback" not in said
    assert epochs() == list(range(len(epochs())))
