"""Ctrl-C and SIGTERM, in real processes."""

import json
import signal

from tests.cli.conftest import SMALL
from tests.started import python, wait_until


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
            _, said = process.communicate(timeout=60)
            assert process.returncode == code
        assert f"stopped; {out} keeps everything so far: the same command with --resume goes on from there\n" in said
        assert "Traceback" not in said
    assert epochs() == list(range(len(epochs())))
