"""Names for the parts of a step, as a profile of torch shows them."""

from __future__ import annotations

from torch.profiler import record_function

PREFIX = "obdsd: "


def stage(name: str) -> record_function:
    """A block that a profile calls by this name; without one it costs microseconds."""
    return record_function(PREFIX + name)
