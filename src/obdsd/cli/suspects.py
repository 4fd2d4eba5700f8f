"""Labels that the other items contradict, and near-copies, for obdsd data suspects: a table, CSV, a page with the pictures."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from obdsd.cli.embed import PassOptions, embed_part, open_both
from obdsd.cli.evaluate import opened_alone
from obdsd.errors import InputError, explain_missing, printable
from obdsd.files import check_place, csv_table, replacing

if TYPE_CHECKING:
    from obdsd.data import Collection, Part
    from obdsd.models import Embedder
    from obdsd.search.suspects import Suspects

SHOWN = 20  # lines of each kind in the terminal
ACROSS, INSIDE, LABEL = "copy across classes", "copy inside a class", "label"


def find(given: Sequence[str], options: PassOptions, outs: Sequence[Path], most: int | None) -> None:
    for out in outs:
        check_place(out)
    if len(given) == 1:
        collection = opened_alone(given[0], options)
        items, _ = collection.joined()
        rows = items.matrix()
    else:
        model, data = given
        embedder, collection = open_both(model, data, options)
        items, _ = collection.joined()
        _tell_trained(model, embedder, items)
        rows = embed_part(embedder, items, collection, options)
    from obdsd.search.suspects import find_suspects
    from obdsd.terminal import stages

    if items.unlabelled:
        print(f"obdsd: {given[-1]}: {items.unlabelled}; without labels only near-copies are looked for", file=sys.stderr)
    elif len(items.class_names) < 2:
        only = f"all items have one label ({items.class_names[0]!r})"
        raise InputError(f"{given[-1]}: {only}, so no other class can fit better; give 2 classes or more")
    with stages() as progress:
        suspects = find_suspects(rows, None if items.unlabelled else items.labels, most=most, progress=progress)
    print(*map(printable, _lines(given[-1], suspects, items)), sep="\n")
    for out in outs:
        text = csv_table(_table(suspects, items)) if out.suffix.lower() == ".csv" else _page(given[-1], suspects, items, collection)
        with replacing(out) as file:
            file.write(text.encode(errors="backslashreplace"))  # names of files may hold bytes that are no text
        print(f"written: {out}")


def _tell_trained(model: str, embedder: Embedder, items: Part) -> None:
    """A model fits the labels that it was trained with, the wrong ones too."""
    if embedder.trained_on is None:
        return
    trained = {*embedder.trained_on.items.get("train", "").split()}
    count = sum(digest in trained for digest in items.digests())
    if count:
        print(
            f"obdsd: model={model}: was trained on {count:,} of these {len(items):,} items and may fit their wrong labels, too; an "
            "untrained model such as tf_efficientnet_lite0:offline judges them anew",
            file=sys.stderr,
        )


def _table(suspects: Suspects, items: Part) -> list[list[str]]:
    """A row for each suspect. `other` is the class that fits better with its most similar item, or the other item of a pair."""
    rows = [["kind", "rank", "score", "item", "label", "other_label", "other_item"]]
    for rank, found in enumerate(suspects.labels, start=1):
        similar = items.name(found.others[0])
        names = [items.name(found.item), items.classes[found.item], items.class_names[found.better], similar]
        rows.append([LABEL, str(rank), f"{found.score:.4f}", *map(str, names)])
    classes = items.classes
    for kind in (ACROSS, INSIDE):
        pairs = [pair for pair in suspects.copies if pair.across == (kind == ACROSS)]
        for rank, pair in enumerate(pairs, start=1):
            names = [items.name(pair.one), classes[pair.one], classes[pair.other], items.name(pair.other)]
            rows.append([kind, str(rank), f"{pair.similarity:.4f}", *map(str, names)])
    return rows


def _lines(data: str, suspects: Suspects, items: Part) -> list[str]:
    """The same for a terminal: the first of each kind."""
    rows = _table(suspects, items)[1:]
    lines = [f"{data}: {len(items):,} items" + ("" if items.unlabelled else f", {len(items.class_names):,} classes")]
    if not items.unlabelled:
        lines.append(f"about {100 * suspects.wrong_share:.1f} % of the labels look wrong")
    if suspects.alone:
        lines.append(f"{suspects.alone:,} items are alone in their class; nothing can be said of their labels")
    titles = {LABEL: "labels that another class fits better", ACROSS: "near-copies across classes", INSIDE: "near-copies inside a class"}
    for kind, title in titles.items():
        own = [row for row in rows if row[0] == kind]
        if items.unlabelled and kind != INSIDE:
            continue
        more = f", the first {SHOWN} of them" if len(own) > SHOWN else ""
        lines.append(f"{'near-copies' if items.unlabelled else title}: {len(own):,}{more}")
        wide = max((len(row[3]) for row in own[:SHOWN]), default=0)
        for _, rank, score, item, label, other, similar in own[:SHOWN]:
            words = f"{label} → {other}" if kind == LABEL else f"= {similar}" if kind == INSIDE else f"{label} = {other} {similar}"
            lines.append(f"{rank:>6}  {float(score):6.3f}  {item:<{wide}}  {words}")
    return lines


def _page(data: str, suspects: Suspects, items: Part, collection: Collection) -> str:
    with explain_missing():
        from obdsd.report.suspects import render_suspects
    from obdsd.terminal import stages

    with stages(unit="images") as progress:
        return render_suspects(data, suspects, items, collection.photos, progress)
