"""Trainings in processes of their own, to be stopped and killed: forked from a server that has imported everything."""

import multiprocessing
import os
import sys
import time
from itertools import count
from pathlib import Path
from signal import SIGKILL

import torch

import obdsd
from obdsd import cli
from obdsd.experiments import compare
from obdsd.objectives import multi_similarity
from obdsd.training import train
from tests.started import SOURCES

os.environ["PYTHONPATH"] = SOURCES  # the server knows nothing of pytest's path
processes = multiprocessing.get_context("forkserver")
IMPORTED = ("obdsd.cli.train", "obdsd.data.folders", "obdsd.data.embeddings", "obdsd.objectives.s2sd", "obdsd.report.gathering")
IMPORTED += ("obdsd.report.found", "obdsd.search.changing", "sklearn.manifold")
processes.set_forkserver_preload([__name__, *IMPORTED])


def _train(plan, start_method, threads):
    multiprocessing.set_start_method(start_method, force=True)  # that of a process which a user starts; the loader's processes follow it
    torch.set_num_threads(threads)
    os.setpgrp()  # as a scheduler's job: a signal can be sent to it with all that it starts
    for options in plan:
        train(options, show=False)


def start(*plan, threads=1):
    """These trainings, one after the other; each goes on if it was begun."""
    plan = [options.replace(resume=(Path(options.out) / "config.yaml").exists()) for options in plan]
    process = processes.Process(target=_train, args=(plan, multiprocessing.get_start_method(), threads))
    process.start()
    return process


def _compare(rows, seeds, out):
    forked = multiprocessing.get_context("fork")
    multiprocessing.get_context = lambda method: forked  # its workers need not import everything anew
    compare(rows, seeds, out, jobs=2, show=False)


def start_comparison(rows, seeds, out):
    process = processes.Process(target=_compare, args=(rows, seeds, out))
    process.start()
    return process


def _command(words, folder, says, fault):
    os.chdir(folder)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(says.fileno(), number)
        setattr(sys, name, open(number, "w", buffering=1, closefd=False))  # noqa: SIM115
    forked = multiprocessing.get_context("fork")
    multiprocessing.get_context = lambda method=None: forked
    obdsd.register("loss", "dying", Dying)
    if fault is not None:
        fault()
    sys.exit(cli.main(words))


class Dying(torch.nn.Module):
    """Multi-Similarity that dies at its twentieth step, by an error or by SIGKILL, once another run has an epoch; or that is slow.

    Until a file says that it is mended."""

    def __init__(self, mended: str, how: str, after: str = "") -> None:
        super().__init__()
        self.loss, self.mended, self.how, self.after, self.steps = multi_similarity(), Path(mended), how, Path(after), count(1)

    def forward(self, rows, labels):
        if not self.mended.exists():
            if self.how == "slow":
                time.sleep(0.05)
            elif next(self.steps) == 20:
                self._die()
        return self.loss(rows, labels)

    def _die(self):
        while not self.after.exists():
            time.sleep(0.01)
        if self.how == "error":
            raise ZeroDivisionError("nobody expected this")
        os.kill(os.getpid(), SIGKILL)


def run_command(words, folder, fault=None):
    """A command of the command line in a folder, after `fault()`: its exit code and what it printed."""
    told, says = processes.Pipe(duplex=False)
    process = processes.Process(target=_command, args=([str(word) for word in words], folder, says, fault))
    process.start()
    says.close()
    with open(told.fileno(), closefd=False) as printed:
        text = printed.read()
    process.join()
    return process.exitcode, text


def to_the_end(*plan, threads=1):
    process = start(*plan, threads=threads)
    process.join()
    assert process.exitcode == 0


def children_of(process) -> list[int]:
    """The processes that it started."""
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def epochs_done(folder) -> int:
    """Lines of metrics in a folder and all below it."""
    return sum(file.read_bytes().count(b"\n") for file in Path(folder).rglob("metrics.jsonl"))


def wait_for_epochs(process, folder, number) -> bool:
    """Whether the process is still there when that many epochs are done."""
    while process.is_alive() and epochs_done(folder) < number:
        time.sleep(0.002)
    return process.is_alive()
