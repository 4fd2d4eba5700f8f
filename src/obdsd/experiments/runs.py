"""The runs of a plan: finished ones are not repeated, interrupted ones go on, and one that fails is named."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, suppress
from importlib import import_module
from multiprocessing import connection
from pathlib import Path
from typing import Any, NamedTuple

import torch

from obdsd.catalogue import OUTSIDE
from obdsd.errors import InputError, MissingExtra, Terminated, explain_shortage
from obdsd.options import TrainOptions
from obdsd.processes import check_carried, keep_memory
from obdsd.stopping import Stop
from obdsd.terminal import Count, Watch, runs_display
from obdsd.training import train
from obdsd.training.build import collection_of
from obdsd.training.run_folder import RunFolder, data_record

Key = tuple[Any, ...]  # what a run is called in its plan
Outcome = Exception | None  # what a run failed by, with its folder's name


class Told(NamedTuple):
    """How far a run in another process is: steps done, of how many, and the line that stands for it now."""

    done: int
    total: int
    text: str


def carry_out(
    plan: Mapping[Key, TrainOptions],
    jobs: int,
    show: bool,
    then: Callable[[Key], object] = lambda key: None,
    keep_going: bool = False,
    count: Count | None = None,
) -> None:
    """Every run of a plan, `jobs` at a time; finished ones are not repeated, interrupted ones go on.

    `then` is told of each that was finished before, and of each that ends. One that fails ends the others, which keep their state; or,
    to `keep_going`, is told of when the others are through. `count` counts the runs of several plans; it is told of those of this one.
    """
    check_carried("jobs", jobs)
    check_carried("jobs × workers", jobs * max((options.workers or 0 for options in plan.values()), default=0))
    count = count or Count("runs", len(plan))
    due = {key: todo for key, options in plan.items() if (todo := _left_to_do(options)) is not None}
    for key in plan:
        if key not in due:
            then(key)
    failures, kept = [], len(plan) - len(due)
    count.done += kept
    count.begun += kept  # which took no time
    if kept and due:
        tell(show, f"{count.done} of {count.total} runs {'is' if count.done == 1 else 'are'} finished and kept")
    with closing(_in_turn(due, count, show) if jobs == 1 else _side_by_side(due, jobs, show)) as runs:
        for key, failure in runs:
            count.done += 1
            left = f", {count.left}" if count.done < count.total else ""
            tell(show, f"{'failed' if failure else 'finished'} {count.done} of {count.total}: {_named(key)}{left}")
            if failure is None:
                then(key)
            elif keep_going:
                failures.append(failure)
            else:
                raise failure
    if failures:
        raise failures[0]


def _left_to_do(options: TrainOptions) -> TrainOptions | None:
    """The options to run with: anew, resumed, or None if the run is there."""
    assert options.out is not None
    folder = RunFolder(Path(options.out), writes=False)
    if not (folder.path / "config.yaml").exists():
        return options
    begun = folder.begun_as()
    for name, before, value in folder.differences(options):
        raise InputError(f"{folder.path} holds a run with {name}={before}, not {value}; choose another out or remove it")
    if begun["data"] != data_record(collection_of(options.replace(data=folder.source(options.data)))):
        raise InputError(f"{folder.path} holds a run on other data than {options.data} holds now; choose another out or remove it")
    return None if folder.result_file.exists() else options.replace(resume=True)


def _in_turn(due: Mapping[Key, TrainOptions], count: Count, show: bool) -> Generator[tuple[Key, Outcome], None, None]:
    for key, options in due.items():
        tell(show, f"run {count.done + 1} of {count.total}: {_named(key)}")
        yield key, _attempt(options, show)


def _attempt(options: TrainOptions, show: bool | Watch) -> Outcome:
    """Train. What makes a run fail is returned with its folder; of a defect the traceback is printed first."""
    try:
        with explain_shortage():
            train(options, show=show)
    except (InputError, MissingExtra, OSError) as fault:
        return InputError(f"{options.out}: {fault}")
    except Exception as defect:
        traceback.print_exc()
        return RuntimeError(f"{options.out}: {type(defect).__name__}: {defect} (its traceback is above); the same command goes on")
    return None


def _side_by_side(due: Mapping[Key, TrainOptions], jobs: int, show: bool) -> Generator[tuple[Key, Outcome], None, None]:
    """Each run in one of several processes, in the order in which they end. Closed early, it ends all that are under way."""
    waiting, workers, busy = deque(due.items()), list[Worker](), dict[Worker, Key]()
    with Stop() as stop, runs_display(show) as display:
        try:
            while waiting or busy:
                while waiting and len(busy) < jobs:
                    with stop.deferred():  # no process is forgotten
                        if not (idle := [worker for worker in workers if worker not in busy]):
                            workers += (idle := [Worker(threads=max(1, (os.cpu_count() or 1) // jobs))])
                    busy[idle[0]], options = waiting.popleft()
                    idle[0].begin(options)
                if stop.asked is not None:  # meanwhile
                    stop.go()
                ready = connection.wait([worker.orders for worker in busy])
                for worker in [worker for worker in busy if worker.orders in ready]:
                    word, name = worker.hear(), _named(busy[worker])
                    if isinstance(word, Told):
                        display.tell(name, *word)
                        continue
                    display.end(name)
                    if not worker.process.is_alive():
                        workers.remove(worker)
                    yield busy.pop(worker), word
        finally:
            for worker in workers:
                worker.process.terminate()  # it finishes its step and keeps its state
            for worker in workers:
                worker.end()


class Worker:
    """A process that trains one run after the other."""

    def __init__(self, threads: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.orders, theirs = spawn.Pipe()
        self.process = spawn.Process(target=_work, args=(theirs, threads, sorted(OUTSIDE - {"__main__"})))
        self.process.start()
        theirs.close()

    def begin(self, options: TrainOptions) -> None:
        self.out = options.out
        with suppress(BrokenPipeError):  # its outcome says that it is gone
            self.orders.send(options)

    def hear(self) -> Told | Outcome:
        """How far the run is, or its outcome. A process that was asked to end raises `Terminated`; one that died would die again, so it is
        a failure."""
        try:
            word: Told | Outcome = self.orders.recv()
            return word
        except (EOFError, ConnectionResetError):
            self.process.join()
        code = self.process.exitcode
        assert code is not None
        if code in (Terminated.CODE, -signal.SIGTERM):
            raise Terminated("the process of a run was ended from outside; the same command goes on with what is left")
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        remedy = "if memory ran out, give fewer jobs or workers or a smaller batch_size"
        return InputError(f"{self.out}: its process was ended {how}; {remedy}, then the same command goes on")

    def end(self) -> None:
        """Wait for its end, and listen until then: it may have more to tell than the pipe holds."""
        with suppress(EOFError, OSError):
            while True:
                self.orders.recv()
        self.process.join()


def _work(orders: connection.Connection, threads: int, modules: Sequence[str]) -> None:
    """Runs as they are ordered, with a share of the cores. When the comparison is gone, even if it was killed, its trainings go too."""
    for module in modules:
        import_module(module)
    keep_memory()
    torch.set_num_threads(threads)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # between runs there is nothing to keep
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the comparison, which tells its workers
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()

    def watch(done: int, total: int, text: str) -> None:
        with suppress(BrokenPipeError):  # the comparison is gone, and this process goes too
            orders.send(Told(done, total, text))

    while True:
        try:
            orders.send(_attempt(orders.recv(), watch))
        except (KeyboardInterrupt, Terminated):
            os._exit(Terminated.CODE)  # the run's state is kept


def _end_with(parent: int) -> None:
    connection.wait([parent])
    os.kill(os.getpid(), signal.SIGTERM)


def _named(key: Key) -> str:
    return ", ".join(map(str, key))


def tell(show: bool, text: str) -> None:
    if show:
        print(text, file=sys.stderr, flush=True)
