"""Pages: finished runs (`gather` reads them and looks at them from all sides, `render` draws what was gathered), and what a search found.
Names load on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from obdsd.errors import explain_missing

if TYPE_CHECKING:
    from obdsd.report.found import render_found
    from obdsd.report.gathering import gather
    from obdsd.report.page import render

__all__ = ["gather", "render", "render_found"]
_HOMES = {"gather": "gathering", "render": "page", "render_found": "found"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'obdsd.report' has no attribute {name!r}")
    with explain_missing():
        return getattr(importlib.import_module(f"obdsd.report.{_HOMES[name]}"), name)
