"""Items that processes of their own read: they outlive a signal that reaches all processes, and a lost one is told in one line."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.utils.data import DataLoader

from obdsd.errors import Terminated

LOST = "a process that loads items was killed, perhaps for lack of memory; use fewer of them (--workers) or smaller batches"
FEEDER_SECONDS = 5  # that a thread may take to end after its queue was closed


class Loader(DataLoader[Any]):
    """torch's, whose processes leave SIGTERM and Ctrl-C to the process that trains, and end when it is closed."""

    def __init__(self, items: Any, **how: Any) -> None:
        super().__init__(items, worker_init_fn=_heed_the_parent_alone, **how)
        self._batches: Any = None  # of the pass under way, or of the last one

    def close(self) -> None:
        """End the processes and the threads that feed them. (torch leaves that to the garbage collector.) A new pass starts new ones."""
        batches, self._batches, self._iterator = self._batches, None, None
        if self.num_workers and batches is not None:
            batches._shutdown_workers()
            for queue in batches._index_queues:
                if queue._thread is not None:
                    queue._thread.join(FEEDER_SECONDS)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        before = signal.getsignal(signal.SIGCHLD)
        try:
            with _signals_wait():
                self._batches = batches = super().__iter__()
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGCHLD, before or signal.SIG_DFL)  # torch's would raise in the middle of a step
            yield from batches
        except (ConnectionError, EOFError) as fault:  # what it had read was not handed over yet
            raise Terminated(LOST) from fault
        except RuntimeError as fault:
            if "DataLoader worker (pid" in str(fault):
                raise Terminated(LOST) from fault
            raise


@contextmanager
def _signals_wait() -> Iterator[None]:
    """A process that starts must not be met by a signal to all before it knows that the signal is for its parent."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _heed_the_parent_alone(worker: int) -> None:
    """A signal to all processes of a job is for the parent, which finishes its step and needs its batches until then."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "sigtimedwait"):  # where the system tells who sends a signal
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        threading.Thread(target=_end_with_the_parent, daemon=True).start()
    else:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])


def _end_with_the_parent() -> None:
    """End when the parent says so, or is gone."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    while parent.is_alive():
        told = signal.sigtimedwait([signal.SIGTERM], 1.0)
        if told is not None and told.si_pid == parent.pid:
            break
    os._exit(0)
