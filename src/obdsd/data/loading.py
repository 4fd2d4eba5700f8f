"""How many processes read items beside the one that trains."""

from __future__ import annotations

import os

from obdsd.data.collection import Part
from obdsd.data.images import ImageFiles


def loader_workers(asked: int | None, part: Part) -> int:
    """As many as asked for; else one a core, at most 8, for image files, and none for what is in memory."""
    if asked is not None:
        return asked
    return min(8, os.cpu_count() or 1) if isinstance(part.items, ImageFiles) else 0
