"""Python in a process of its own, with its signals as a user's shell leaves them."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import obdsd

SOURCES = os.pathsep.join(str(folder) for folder in (Path(obdsd.__file__).parents[1], Path(__file__).parents[1]))  # whatever is installed


PATIENCE = 600  # seconds: a machine may be very busy


def _heed_ctrl_c():
    """A shell starts background jobs with the signal ignored, and that would be inherited."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def python(*words):
    """A process that is gone at the end with all that it started, whatever happens."""
    environment = {**os.environ, "PYTHONPATH": SOURCES, "OMP_NUM_THREADS": "1"}
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True, "preexec_fn": _heed_ctrl_c}
    with subprocess.Popen([sys.executable, *map(str, words)], env=environment, **how) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def wait_until(happened, process, seconds=PATIENCE):
    deadline = time.monotonic() + seconds
    while not happened():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)


def helpers():
    """Processes that this one has started and that are there, and threads that feed them."""
    return [*multiprocessing.active_children(), *(thread for thread in threading.enumerate() if thread.name == "QueueFeederThread")]
