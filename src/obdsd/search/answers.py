"""What a search answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from obdsd.data.items import Box
from obdsd.search.queries import Query


class Hit(NamedTuple):
    """A found item. `similarity` is its cosine to the query. `score` is what it is ranked by: the same, or that of the re-ranking."""

    name: str
    label: str | None
    similarity: float
    score: float
    file: Path | None = None
    box: Box | None = None


class Answer(NamedTuple):
    """The items found for one query, best first: none if nothing in the index is as alike as the threshold asks.

    `most_alike` is the similarity of the nearest item, as alike as asked or not; None if there is no other item.
    """

    query: Query
    hits: list[Hit]
    most_alike: float | None

    @property
    def nothing_alike(self) -> bool:
        return not self.hits

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        found = [
            {
                "rank": rank,
                "name": hit.name,
                "label": hit.label,
                "similarity": round(hit.similarity, 6),
                "score": float(f"{hit.score:.6g}"),
                "file": None if hit.file is None else str(hit.file),
            }
            for rank, hit in enumerate(self.hits, start=1)
        ]
        most = None if self.most_alike is None else round(self.most_alike, 6)
        return {"query": self.query.name, "nothing_alike": self.nothing_alike, "most_alike": most, "found": found}
