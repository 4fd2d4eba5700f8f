"""What a process does to itself before it begins: limits by which its writing fails, a kill at a certain moment."""

import os
import resource
import signal
from importlib import import_module
from itertools import count
from pathlib import Path


def full_disk(size):
    """No file can become larger than that many bytes; the write that reaches it fails."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def killed_writing(size):
    """The same, and that write kills the process: a file of that size is left."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    full_disk(size)


def little_memory(spare):
    """That many bytes more than now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + spare
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def killed_at(place, number):
    """SIGKILL where `module:function` or `module:Class.method` is called for the `number`-th time."""
    module, _, path = place.partition(":")
    *parents, name = path.split(".")
    home = import_module(module)
    for parent in parents:
        home = getattr(home, parent)
    function, calls = getattr(home, name), count(1)

    def lethal(*given, **named):
        if next(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*given, **named)

    setattr(home, name, lethal)
