"""Embedders: backbone → pooling → head → unit rows, with the preprocessing that the weights expect."""

from obdsd.errors import explain_missing

with explain_missing():
    from obdsd.models.backbones import FEATURES, TINY_CONV
    from obdsd.models.embedder import Embedder, open_model

__all__ = ["FEATURES", "TINY_CONV", "Embedder", "open_model"]
