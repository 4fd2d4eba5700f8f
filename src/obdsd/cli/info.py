"""Show versions and devices, for bug reports: obdsd info."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import dataclass
from typing import Literal

from obdsd.options import option
from obdsd.processes import versions


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
        return print(json.dumps(facts, indent=2))
    width = max(map(len, facts))
    for name, fact in facts.items():
        print(f"{name:{width}}  {fact}")
