"""Show versions and devices, for bug reports: obdsd info."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

from obdsd import __version__
from obdsd.options import option


@dataclass(frozen=True)
class Options:
    format: Literal["table", "json"] = option("table", "A table for people, or JSON for programs and bug reports.")


def run(options: Options) -> None:
    import torch  # not by obdsd.models, which takes seconds to import and may be what is broken

    accelerator = torch.accelerator.current_accelerator(check_available=True) if hasattr(torch, "accelerator") else None
    facts = {
        **versions(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "threads of torch": torch.get_num_threads(),
        "accelerator": str(accelerator or "none (CPU)"),
    }
    if options.format == "json":
        print(json.dumps(facts, indent=2))
        return
    width = max(map(len, facts))
    for name, fact in facts.items():
        print(f"{name:{width}}  {fact}")


def versions() -> dict[str, str]:
    """Of this package, of Python, and of the packages that numbers depend on."""
    packages = ("torch", "torchvision", "timm", "pytorch-metric-learning", "lightning", "faiss-cpu")
    return {"obdsd": __version__, "python": platform.python_version(), **{name: _version_or_missing(name) for name in packages}}


def _version_or_missing(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
