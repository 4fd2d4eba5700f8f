"""Processes that load items: which signals they heed, and what is said when one is lost."""

import os
import signal
import time
from contextlib import closing

import pytest
import torch

from obdsd import loading
from obdsd.errors import InputError, Terminated
from obdsd.evaluation.embedding import embed
from obdsd.loading import Loader
from tests.started import PATIENCE, helpers, python


class Signalled:
    """Items whose reading sends a signal to the process that reads, as somebody outside does."""

    def __init__(self, number):
        self.number = number

    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 5:
            os.kill(os.getpid(), self.number)
        return index


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_all_processes_is_not_for_them(number):
    assert [int(batch) for batch in Loader(Signalled(number), batch_size=1, num_workers=2)] == list(range(8))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_nor_is_one_that_reaches_them_while_they_start(monkeypatch, number):
    """Before they know what to do about it: with what they inherit, they would do what the process that trains does."""

    def begin(worker):
        os.kill(os.getpid(), number)
        time.sleep(0.1)
        heed(worker)

    heed = loading._heed_the_parent_alone
    monkeypatch.setattr(loading, "_heed_the_parent_alone", begin)
    before = signal.signal(signal.SIGTERM, lambda *_: pytest.fail("met by a signal"))
    try:
        assert [int(batch) for batch in Loader(range(8), batch_size=1, num_workers=2)] == list(range(8))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, []) & {signal.SIGTERM, signal.SIGINT}


def test_a_lost_process_is_told_where_its_batch_is_asked_for():
    """Never in the middle of what is done with the batch before: torch's own handler is not left in place."""
    seen, done, before = [], [], signal.getsignal(signal.SIGCHLD)

    def read_on():
        for batch in Loader(Signalled(signal.SIGKILL), batch_size=1, num_workers=2):
            seen.append(int(batch))
            time.sleep(0.05)
            done.append(int(batch))

    with pytest.raises(Terminated) as end:
        read_on()
    assert done == seen == list(range(len(seen)))
    assert 0 < len(seen) < 6
    assert signal.getsignal(signal.SIGCHLD) == before
    remedy = "use fewer of them (--workers) or smaller batches"
    assert end.value.reason == f"a process that loads items was killed, perhaps for lack of memory; {remedy}"


class Torn:
    """An item whose process is gone before it has handed it over."""

    def __reduce__(self):
        return _reset, ()


def _reset():
    raise ConnectionResetError


def test_an_item_that_was_not_handed_over_is_a_lost_process():
    with pytest.raises(Terminated) as end:
        list(Loader([Torn()], num_workers=1, collate_fn=list))
    assert end.value.reason.startswith("a process that loads items was killed")


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("number", [1, 8])
def test_a_closed_loader_leaves_nobody_behind(uncollected, persistent, number):
    before = helpers()
    loader = Loader(range(8), batch_size=1, num_workers=2, persistent_workers=persistent)
    with closing(loader):
        batches = iter(loader)  # somebody holds it, as a traceback does
        assert [int(next(batches)) for _ in range(number)] == list(range(number))
        assert len(helpers()) > len(before)
    assert helpers() == before
    assert [int(batch) for batch in loader] == list(range(8))  # it begins anew
    loader.close()
    loader.close()
    assert helpers() == before


def test_rows_that_cannot_be_made_leave_nobody_behind(uncollected):
    """By an error in the model, or in the middle of reading."""
    before = helpers()
    items = [(torch.ones(2), 0, 0)] * 40
    with pytest.raises(ZeroDivisionError) as kept:
        embed(torch.nn.Linear(2, 2), items, batch_size=1, workers=2, advance=lambda count: 1 // 0)
    with pytest.raises(InputError) as also_kept:
        embed(torch.nn.Linear(2, 2), Refusing(), batch_size=1, workers=2)
    assert helpers() == before
    del kept, also_kept


class Refusing:
    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 5:
            raise InputError("an item that cannot be read")
        return torch.ones(2), 0, 0


HOLDING = """
import sys, time
from obdsd.loading import Loader
loader = Loader(range(100), batch_size=1, num_workers=2, persistent_workers=True)
batches = iter(loader)
next(batches)
print(*(worker.pid for worker in loader._iterator._workers), flush=True)
time.sleep(float(sys.argv[1]))
"""


@pytest.mark.parametrize("killed", [False, True])
def test_they_end_with_their_parent(killed):
    """It ends as programs do, with batches left, or is killed."""
    with python("-c", HOLDING, 60 if killed else 0) as process:
        pids = process.stdout.readline().split()
        if killed:
            process.kill()
        assert process.wait(timeout=PATIENCE) == (-signal.SIGKILL if killed else 0)
    deadline = time.monotonic() + PATIENCE
    while any(os.path.exists(f"/proc/{pid}") for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)
