"""A small training beside a busy process: threads that sleep while they wait, as the program sets them, against threads that spin."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.harness import Comparison, run

ROWS, FEATURES, CLASSES, STEPS = 5_864, 1_280, 100, 20
SETTINGS = ("OMP_WAIT_POLICY", "KMP_BLOCKTIME", "GOMP_SPINCOUNT", "OMP_NUM_THREADS")
SPINNING = {"OMP_WAIT_POLICY": "", "KMP_BLOCKTIME": "200"}  # what the libraries do if nothing is set
TRAINING = """
import os, sys
from obdsd.processes import let_threads_sleep
let_threads_sleep()
if not os.environ["OMP_WAIT_POLICY"]:
    del os.environ["OMP_WAIT_POLICY"]
from obdsd.experiments.timing import Pace
from obdsd.presets import preset
pace = Pace(preset("ms+obd-sd", sys.argv[1], epochs=10, batch_size=112, test_fraction=0.4, device="cpu"))
for steps in sys.stdin:
    for _ in range(int(steps)):
        pace.step()
    print("done", flush=True)
"""


class Training:
    """A head on frozen features in a process of its own, with as many threads as there are cores: takes steps when asked to."""

    def __init__(self, data: Path, settings: dict[str, str]) -> None:
        environment = {name: value for name, value in os.environ.items() if name not in SETTINGS}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen([sys.executable, "-c", TRAINING, data], env={**environment, **settings}, text=True, **pipes)

    def __call__(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(STEPS, file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == "done\n"


class Busy:
    """A process that wants a core all the time, while it is let."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        self.process.send_signal(signal.SIGSTOP)

    def beside(self, training: Training) -> None:
        self.process.send_signal(signal.SIGCONT)
        try:
            training()
        finally:
            self.process.send_signal(signal.SIGSTOP)


@contextmanager
def started() -> Iterator[tuple[Training, Training, Busy]]:
    """A training whose threads sleep, one whose threads spin, and a busy process; gone at the end."""
    with TemporaryDirectory() as folder, ExitStack() as ends:
        data = Path(folder) / "rows.npz"
        rows = np.random.default_rng(0).normal(size=(ROWS, FEATURES)).astype(np.float32)
        np.savez(data, embeddings=rows, labels=np.arange(ROWS) % CLASSES)
        sleeping, spinning, busy = Training(data, {}), Training(data, SPINNING), Busy()
        for each in (sleeping, spinning, busy):
            ends.callback(each.process.wait)
            ends.callback(each.process.kill)
        yield sleeping, spinning, busy


def comparisons(sleeping: Training, spinning: Training, busy: Busy) -> Iterator[Comparison]:
    yield Comparison(
        name="threads that sleep, beside a busy process",
        ours=lambda: busy.beside(sleeping),
        peer=sleeping,
        peer_name="the same alone",
        goal=0.5,
    )
    yield Comparison(
        name="threads that sleep, beside a busy process (again)",
        ours=lambda: busy.beside(sleeping),
        peer=lambda: busy.beside(spinning),
        peer_name="threads that spin, beside it",
        rounds=6,
    )
    yield Comparison(name="threads that sleep, alone", ours=sleeping, peer=spinning, peer_name="threads that spin, alone", rounds=6)


def main() -> None:
    title = f"A busy process beside a training: {STEPS} steps of a head on {FEATURES} features, batch 112, a thread a core"
    with started() as processes:
        run(title, "busy", comparisons(*processes))
