"""An index as a page and an HTTP interface: `serve` runs it here, `make_app` is it for a server of your own. Names load on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from obdsd.errors import explain_missing

if TYPE_CHECKING:
    from obdsd.serve.app import make_app
    from obdsd.serve.engine import Engine
    from obdsd.serve.limits import Limits
    from obdsd.serve.opened import open_index
    from obdsd.serve.server import listen, serve

__all__ = ["Engine", "Limits", "listen", "make_app", "open_index", "serve"]
_HOMES = {"Engine": "engine", "Limits": "limits", "listen": "server", "make_app": "app", "open_index": "opened", "serve": "server"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'obdsd.serve' has no attribute {name!r}")
    with explain_missing():
        return getattr(importlib.import_module(f"obdsd.serve.{_HOMES[name]}"), name)
