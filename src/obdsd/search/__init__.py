"""Search: an index of a collection on the disk, and re-ranking by what the collection as a whole tells. Names load on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from obdsd.errors import explain_missing

if TYPE_CHECKING:
    from obdsd.search.answers import Answer, Hit
    from obdsd.search.index import Index
    from obdsd.search.reranker import Fitted, Found, Reranker
    from obdsd.search.writing import Pass

__all__ = ["Answer", "Fitted", "Found", "Hit", "Index", "Pass", "Reranker"]
_HOMES = {"answers": "Answer Hit", "index": "Index", "reranker": "Fitted Found Reranker", "writing": "Pass"}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names.split():
            with explain_missing():
                return getattr(importlib.import_module(f"obdsd.search.{home}"), name)
    raise AttributeError(f"module 'obdsd.search' has no attribute {name!r}")
