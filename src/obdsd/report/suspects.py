"""The suspects of a collection as one self-contained page with the pictures."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import jinja2
import numpy as np

from obdsd.counting import Progress, counted
from obdsd.data import Part, Photos, short_name
from obdsd.errors import InputError
from obdsd.report.views import Lent, pictures_by_name, pictures_of
from obdsd.search.suspects import Suspects

SIDE = 160  # longest side of a picture, in pixels
MOST = 200  # of each kind on a page, which then has some ten megabytes; the CSV file has all


class Card(NamedTuple):
    """A picture with what is written below it; without a picture if there is none."""

    name: str
    label: str
    picture: str | None


def render_suspects(data: str, suspects: Suspects, items: Part, photos: Photos | None, progress: Progress) -> str:
    """The page as text, which asks no host for anything."""
    labels = suspects.labels[:MOST]
    pairs = {across: [pair for pair in suspects.copies if pair.across == across] for across in (True, False)}
    shown = {one for found in labels for one in (found.item, *found.own, *found.others)}
    shown |= {one for kind in pairs.values() for pair in kind[:MOST] for one in (pair.one, pair.other)}
    pictures, missing = _pictures(items, photos, sorted(shown), progress)
    classes = items.classes

    def card(item: int) -> Card:
        return Card(items.name(item), str(classes[item]), pictures.get(item))

    wrong: list[dict[str, Any]] = [
        {
            "card": card(found.item),
            "score": found.score,
            "better": items.class_names[found.better],
            "own": [card(item) for item in found.own],
            "others": [card(item) for item in found.others],
        }
        for found in labels
    ]
    copies = {
        across: [{"cards": (card(pair.one), card(pair.other)), "similarity": pair.similarity} for pair in kind[:MOST]]
        for across, kind in pairs.items()
    }
    titles = {False: "Near-copies"} if items.unlabelled else {True: "Near-copies across classes", False: "Near-copies inside a class"}
    return _template().render(
        title=f"Suspects in {short_name(data)}",
        facts=_facts(suspects, items, pairs, missing),
        wrong=wrong,
        more_wrong=len(suspects.labels) - len(wrong),
        kinds=[(title, copies[across], len(pairs[across]) - len(copies[across])) for across, title in titles.items()],
        labelled=not items.unlabelled,
    )


def _facts(suspects: Suspects, items: Part, pairs: dict[bool, list[Any]], missing: str) -> dict[str, str]:
    facts = {"items": f"{len(items):,}"}
    if not items.unlabelled:
        facts |= {"classes": f"{len(items.class_names):,}", "labels that look wrong": f"about {100 * suspects.wrong_share:.1f} %"}
        facts |= {"listed": f"{len(suspects.labels):,}", "near-copies across classes": f"{len(pairs[True]):,}"}
    facts["near-copies" if items.unlabelled else "near-copies inside a class"] = f"{len(pairs[False]):,}"
    return facts | ({"pictures": missing} if missing else {})


def _pictures(items: Part, photos: Photos | None, shown: Sequence[int], progress: Progress) -> tuple[dict[int, str], str]:
    """Pictures of these items as data addresses, and why there are none."""
    advance, reason = counted(progress, "pictures for the page", max(1, len(shown))), ""
    found: list[bytes | None] = []
    if shown and not items.is_rows:
        found = pictures_of(Lent(**vars(items.take(np.array(shown)))), advance, SIDE)
    elif shown and photos is not None:
        try:
            found = pictures_by_name(photos, [items.name(item) for item in shown], advance, SIDE)
        except (InputError, OSError) as fault:
            reason = f"none, the images that were embedded are not there any more ({fault})"
    elif shown:
        reason = "none, the file does not say where its images are; obdsd data suspects MODEL DATA shows them"
    kept = {item: picture for item, picture in zip(shown, found, strict=bool(found)) if picture}
    return {item: f"data:image/webp;base64,{b64encode(picture).decode()}" for item, picture in kept.items()}, reason


@cache
def _template() -> jinja2.Template:
    loader = jinja2.PackageLoader("obdsd.report")
    return jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    ).get_template("suspects.html")
