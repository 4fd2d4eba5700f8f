"""What a search found as one self-contained page with the pictures."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from PIL import Image

from obdsd.data.items import Box, read_image
from obdsd.errors import InputError
from obdsd.report.views import thumbnail
from obdsd.search import Answer, Index
from obdsd.search.queries import Query

SIDE = 240  # longest side of a picture, in pixels


class Card(NamedTuple):
    """A picture with what is written below it; without a picture if it could not be read."""

    name: str
    label: str | None
    picture: str | None
    similarity: float | None = None
    score: float | None = None


def render_found(index: Index, answers: Sequence[Answer], facts: dict[str, str]) -> tuple[str, list[str]]:
    """The page as text, which asks no host for anything, and the names of the items whose pictures could not be read."""
    missing: list[str] = []

    def card(name: str, label: str | None, image: Path | Image.Image | None, box: Box | None, **numbers: float) -> Card:
        shown = _picture(image, box)
        if shown is None and image is not None:
            missing.append(name)
        return Card(name, label, shown, **numbers)

    blocks: list[dict[str, Any]] = []
    for answer in answers:
        label, image, box = _shown(index, answer.query)
        found = [card(hit.name, hit.label, hit.file, hit.box, similarity=hit.similarity, score=hit.score) for hit in answer.hits]
        blocks.append({"query": card(answer.query.name, label, image, box), "found": found, "most_alike": answer.most_alike})
    reranked = "re-ranked by" in facts
    title = f"{len(answers):,} searches in {index.path.name}" if len(answers) > 1 else f"{answers[0].query.name} in {index.path.name}"
    return _template().render(title=title, facts=facts, blocks=blocks, reranked=reranked), list(dict.fromkeys(missing))


def _shown(index: Index, query: Query) -> tuple[str | None, Path | Image.Image | None, Box | None]:
    """The label and the picture of a query, as far as they are known."""
    if query.position is None:
        return None, query.image, None
    item = index.items[query.position]
    return item.label, index.file(query.position), item.box


def _picture(image: Path | Image.Image | None, box: Box | None) -> str | None:
    """A small picture as a data address; None if there is none, or none that can be read."""
    if image is None:
        return None
    try:
        whole = read_image(image) if isinstance(image, Path) else image.convert("RGB")
    except InputError:
        return None
    return f"data:image/webp;base64,{b64encode(thumbnail(whole if box is None else whole.crop(box), SIDE)).decode()}"


@cache
def _template() -> jinja2.Template:
    loader = jinja2.PackageLoader("obdsd.report")
    return jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    ).get_template("found.html")
