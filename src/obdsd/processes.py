"""What computes: the versions of packages, how many processes torchrun started, and which of them this is. Imports no torch."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version

from obdsd import __version__

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


def processes() -> int:
    """1 without torchrun."""
    return int(os.environ["WORLD_SIZE"]) if "LOCAL_RANK" in os.environ else 1


def rank() -> int:
    return int(os.environ["RANK"]) if processes() > 1 else 0


def first_process() -> bool:
    """Whether this one writes and prints."""
    return rank() == 0
