"""What the interface answers."""

from __future__ import annotations

from pydantic import BaseModel, Field

from obdsd.search import Answer
from obdsd.serve.asked import Asked
from obdsd.serve.limits import MOST_FOUND, Limits
from obdsd.serve.opened import Opened

DIGITS = 16  # of an item's digest in a link


class Refusal(BaseModel):
    detail: str = Field(description="What is wrong, on one line.")


class Health(BaseModel):
    status: str
    items: int


class Found(BaseModel):
    """A found item; see `obdsd search --json`."""

    rank: int
    name: str
    label: str | None
    similarity: float = Field(description="The cosine to the query.")
    score: float = Field(description="What it is ranked by: the same, or that of the re-ranker.")
    image: str | None = Field(description="Where its picture is, if it is an image file.")


class Answered(BaseModel):
    query: str
    label: str | None = Field(description="The label of the query, if it is an item.")
    image: str | None = Field(description="Where the picture of the query is, if it is an item.")
    nothing_alike: bool = Field(description="Whether nothing is as similar as the threshold asks.")
    most_alike: float | None = Field(description="The similarity of the nearest item, as alike as asked or not.")
    threshold: float | None = Field(description="The similarity that was asked for, by the client or by the index.")
    rerank: str | None = Field(description="The re-ranker that ordered them.")
    within: str | None
    found: list[Found]
    seconds: float = Field(description="From the request to this answer, on the server.")


class Facts(BaseModel):
    name: str
    items: int
    labels: dict[str, int] = Field(description="How many items have which label.")
    dim: int
    kind: str
    model: str
    takes_images: bool = Field(description="Whether its model knows images; else only items can be searched for.")
    rerank: str | None = Field(description="The re-ranker that is offered.")
    threshold: float | None = Field(description="Below this similarity nothing is found, unless a search says otherwise.")
    max_k: int
    max_bytes: int
    max_pixels: int


def answered(opened: Opened, asked: Asked, answer: Answer, seconds: float) -> Answered:
    """An answer with links to pictures in the place of paths, which are nobody's business outside this machine."""
    index, position = opened.index, answer.query.position
    found = answer.as_dict()
    hits = [{**hit, "image": _link(opened, index.places[hit["name"]])} for hit in found["found"]]
    return Answered(
        query=found["query"],
        label=None if position is None else index.items[position].label,
        image=None if position is None else _link(opened, position),
        nothing_alike=found["nothing_alike"],
        most_alike=found["most_alike"],
        threshold=index.threshold() if asked.threshold is None else asked.threshold,
        rerank=opened.rerank if asked.rerank else None,
        within=asked.within,
        found=[Found.model_validate(hit) for hit in hits],
        seconds=round(seconds, 4),
    )


def _link(opened: Opened, place: int) -> str | None:
    item = opened.index.items[place]
    return None if item.file is None else f"/api/items/{place}/image?of={item.digest[:DIGITS]}"


def facts_of(opened: Opened, limits: Limits) -> Facts:
    index = opened.index
    return Facts(
        name=index.path.name,
        items=len(index.items),
        labels=opened.labels,
        dim=index.settings.dim,
        kind=index.settings.kind,
        model=index.embedder.architecture.backbone,
        takes_images=opened.transform is not None,
        rerank=opened.rerank,
        threshold=index.threshold(),
        max_k=MOST_FOUND,
        max_bytes=limits.max_bytes,
        max_pixels=limits.max_pixels,
    )
