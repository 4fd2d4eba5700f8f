"""Search in a gallery of unit rows: by cosine, or re-ranked by what the unlabelled gallery as a whole tells."""

from obdsd.errors import explain_missing

with explain_missing():
    from obdsd.search.reranker import Fitted, Found, Reranker

__all__ = ["Fitted", "Found", "Reranker"]
