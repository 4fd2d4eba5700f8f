"""When a signal ends a training: at once, where it is deferred only when asked for, and what the exit says."""

import os
import pickle
import signal
import threading

import pytest

from obdsd.errors import Terminated
from obdsd.stopping import Stop


def test_at_once_unless_deferred():
    with Stop() as stop:
        with stop.deferred():
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop.asked == signal.SIGTERM  # and nothing was raised
            with pytest.raises(Terminated):
                stop.go()
        with pytest.raises(Terminated) as end:
            os.kill(os.getpid(), signal.SIGTERM)
        assert end.value.code == 75


def test_a_block_that_does_not_wait_inside_one_that_does():
    with Stop() as stop, stop.deferred():
        with pytest.raises(KeyboardInterrupt), stop.deferred(waits=False):
            os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt), stop.deferred(waits=False):
            pytest.fail("it was asked before, and goes on entering")


def test_a_second_ctrl_c_does_not_wait():
    with Stop() as stop, stop.deferred():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_handlers_are_given_back():
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with Stop():
        assert signal.getsignal(signal.SIGTERM) is not before[0]
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_outside_the_main_thread_nothing_is_touched():
    found = []

    def enter():
        with Stop():
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGTERM)]


def test_the_end_travels_between_processes():
    end = pickle.loads(pickle.dumps(Terminated("a process was lost")))
    assert (end.code, end.reason) == (75, "a process was lost")
