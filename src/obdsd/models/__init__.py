"""Embedders: backbone → pooling → head → unit rows, with the preprocessing that the weights expect. Names load on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from obdsd.errors import explain_missing

if TYPE_CHECKING:
    from obdsd.models.embedder import Embedder, open_model
    from obdsd.models.places import FEATURES, TINY_CONV

__all__ = ["FEATURES", "TINY_CONV", "Embedder", "open_model"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'obdsd.models' has no attribute {name!r}")
    with explain_missing():
        from obdsd.models import embedder
    return getattr(embedder, name)
