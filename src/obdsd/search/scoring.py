"""What a re-ranking is worth: the metrics of a query with it, and a choice among several on held-out classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from obdsd.catalogue import RERANKERS
from obdsd.counting import Progress
from obdsd.evaluation import Points, Scores, evaluate
from obdsd.search.reranker import silent
from obdsd.spec import Spec

GRID = (
    "none",
    *(f"diffusion(neighbours={k}, power={power})" for k in (5, 10, 20) for power in (3, 5)),
    *(f"diffusion(omega={omega})" for omega in (0.8, 0.95)),
    *(f"alpha-qe(neighbours={k})" for k in (5, 10, 20)),
    "alpha-qe(alpha=1)",
    "k-reciprocal",
    "k-reciprocal(neighbours=40)",
    "k-reciprocal(original=0.1)",
    *(f"alpha-qe(diffusion, neighbours={k})" for k in (2, 5)),
)
"""What `choose` tries unless told otherwise."""


def scores_of(rerank: Spec | str, gallery: Points, query: Points | None = None, *, progress: Progress = silent, **how: Any) -> Scores:
    """The metrics of a query when a re-ranker fitted on the gallery ranks it; `how` is passed on to `evaluate`."""
    fitted = RERANKERS.build(rerank).fit(gallery.embeddings, progress)
    rows, labels, groups = gallery
    return evaluate(rows, labels, query=query, groups=groups, search=fitted.search, progress=progress, **how)


def choose(
    gallery: Points, query: Points | None = None, grid: Sequence[str] = GRID, *, progress: Progress = silent
) -> tuple[Spec, dict[str, Scores]]:
    """The re-ranker of the highest MAP@R on these points, which should be of classes that are not scored later; and what each came to.

    Of equally good ones the first counts.
    """
    tried = {}
    for number, spec in enumerate(grid):
        progress("choosing a re-ranker", number, len(grid))
        tried[str(RERANKERS.checked(spec))] = scores_of(spec, gallery, query, ks=(1,))
    progress("choosing a re-ranker", len(grid), len(grid))
    best = max(tried, key=lambda name: tried[name]["map@r"] or 0.0)
    return Spec.parse(best), tried
