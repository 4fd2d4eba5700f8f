"""Search: an index of a collection on the disk, and re-ranking by what the collection as a whole tells. Names load on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from obdsd.errors import explain_missing

if TYPE_CHECKING:
    from obdsd.search.answers import Answer, Hit
    from obdsd.search.how import Change, Pass
    from obdsd.search.index import Index
    from obdsd.search.queries import Query
    from obdsd.search.reranker import Fitted, Found, Reranker


__all__ = ["Answer", "Change", "Fitted", "Found", "Hit", "Index", "Pass", "Query", "Reranker"]
_HOMES = {"answers": "Answer Hit", "how": "Change Pass", "index": "Index", "queries": "Query", "reranker": "Fitted Found Reranker"}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names.split():
            with explain_missing():
                return getattr(importlib.import_module(f"obdsd.search.{home}"), name)
    raise AttributeError(f"module 'obdsd.search' has no attribute {name!r}")
