"""What computes: the versions of packages, how many processes there are or may be, and which of them this is. Imports no torch."""

from __future__ import annotations

import ctypes
import os
import platform
from importlib.metadata import PackageNotFoundError, version

from obdsd import __version__
from obdsd.errors import InputError

MMAP_MAX, TRIM_THRESHOLD = -4, -1  # how glibc's mallopt numbers them
PACKAGES = ("torch", "torchvision", "timm", "pytorch-metric-learning", "lightning", "faiss-cpu", "numpy")


def versions() -> dict[str, str]:
    """Of this package, of Python, and of the packages that numbers depend on."""
    found = {"obdsd": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def check_carried(name: str, asked: int) -> None:
    """Refuse more processes than the machine carries: four a core, and two a GiB of memory."""
    cores, memory = os.cpu_count() or 1, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    most = max(1, min(4 * cores, int(2 * memory)))
    if asked > most:
        raise InputError(f"{name}={asked} is more processes than {cores} cores and {memory:.0f} GiB of memory carry; try {most} or fewer")


def let_threads_sleep() -> None:
    """Before torch is imported: threads that wait for each other sleep, unless the user set something else.

    By default they spin. Where another process wants the core, each step then waits until the other's turn ends: one busy process beside a
    small training made it 12 times slower and more.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("KMP_BLOCKTIME", "0")  # the same for Intel's and LLVM's library


def keep_memory() -> None:
    """Let glibc keep the memory that is given back to it, unless the user set something else.

    By default it returns large blocks to the system, and a network's activations are large: at every step they were taken anew, page by
    page, which cost a third to a half of a training's time on a CPU.
    """
    if any(name.startswith("MALLOC_") for name in os.environ) or platform.libc_ver()[0] != "glibc":
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(MMAP_MAX, 0)  # no block is a mapping of its own, which free returns
    libc.mallopt(TRIM_THRESHOLD, -1)  # nor is the end of the heap returned


def processes() -> int:
    """1 without torchrun."""
    return int(os.environ["WORLD_SIZE"]) if "LOCAL_RANK" in os.environ else 1


def rank() -> int:
    return int(os.environ["RANK"]) if processes() > 1 else 0


def first_process() -> bool:
    """Whether this one writes and prints."""
    return rank() == 0


def first_here() -> bool:
    """Whether this one is the first of its machine."""
    return processes() == 1 or os.environ["LOCAL_RANK"] == "0"
