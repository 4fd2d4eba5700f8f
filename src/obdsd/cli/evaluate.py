"""Score a model on a collection, or an embeddings file alone: obdsd evaluate MODEL DATA, obdsd evaluate FILE."""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from obdsd.cli.embed import MODEL, ModelOptions, PassOptions, check_suffix, embed_part, open_both, tell_left_out, tell_seen
from obdsd.errors import InputError
from obdsd.files import check_place, write_json
from obdsd.options import LARGEST, OPENING, as_dict, opening, option
from obdsd.processes import versions

if TYPE_CHECKING:
    from obdsd.data import Collection
    from obdsd.evaluation import Scores


@dataclass(frozen=True)
class Options(ModelOptions):
    model: str = option(MISSING, f"{MODEL} Or an embeddings file alone.", positional=True)
    data: str | None = option(None, "The collection, as for obdsd data; left out for an embeddings file alone.", positional=True)
    ks: tuple[int, ...] = option((1, 2, 4, 8), "Depths of Recall@K, as 1,2,4,8.", at_least=1)
    seed: int = option(0, "Seed of k-means.", at_least=0, below=LARGEST)
    restarts: int = option(1, "Starts of k-means, of which the best by its own objective counts.", at_least=1)
    clusters: bool = option(True, "Cluster for NMI and AMI, which takes long with thousands of classes.")
    part: Literal["test", "train", "val"] = option("test", "Which items; test stands for query and gallery where the data have these.")
    out: str | None = option(None, "A .json file for the scores, with the options and versions that made them.")
    per_class: bool = option(False, "Add the scores of each class to the JSON file.")

    def __post_init__(self) -> None:
        if not self.ks:
            raise InputError("ks= must hold a number; try 1,2,4,8")
        if self.out is not None:
            check_suffix(self.out, (".json",))
        elif self.per_class:
            raise InputError("per_class=true needs a JSON file to go to; add --out scores.json")


def run(options: Options) -> None:
    from obdsd.data import Part
    from obdsd.data.check import check_scorable
    from obdsd.terminal import stages

    out = None if options.out is None else Path(options.out).expanduser()
    if out is not None:
        check_place(out)
    source = options.data or options.model
    if options.data is None:
        embedder, collection, rows_of = None, opened_alone(options.model, options), Part.matrix
    else:
        embedder, collection = open_both(options.model, options.data, options)
        rows_of = partial(embed_part, embedder, collection=collection, options=options)
    chosen = check_scorable(source, collection.parts, options.part, options.ks)
    from obdsd.evaluation import Points, evaluate

    if embedder is not None:
        tell_seen(options.model, embedder, chosen)
    gallery, *query = (Points(rows_of(part), part.classes, part.groups) for part in chosen.values())
    with stages() as progress:
        scores = evaluate(
            gallery.embeddings,
            gallery.labels,
            options.ks,
            options.seed,
            query[0] if query else None,
            groups=gallery.groups,
            clusters=options.clusters,
            restarts=options.restarts,
            details=options.per_class,
            progress=progress,
        )
    classes = len({name for part in chosen.values() for name in part.classes.tolist()})
    named = {"all": chosen["test"]} if options.data is None and collection.parts.keys() == {"test"} else chosen  # a file without a split
    print(f"{source}: {' and '.join(f'{name} of {len(part):,} items' for name, part in named.items())}, {classes:,} classes")
    print(*_table(scores), sep="\n")
    if out is not None:
        data = {"classes": classes, "items": {name: len(part) for name, part in chosen.items()}}
        record = {"scores": scores.as_dict(), "options": as_dict(options), "data": data, "versions": versions()}
        write_json(out, record | _by_class(scores))


def opened_alone(given: str, options: PassOptions) -> Collection:
    """An embeddings file as it is: without a split all its rows are in one part."""
    from obdsd.data import open_data
    from obdsd.data.embeddings import SUFFIXES

    path = Path(given.removeprefix("embeddings:")).expanduser()
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"data must be given with model={given!r}; only an embeddings file ({', '.join(SUFFIXES)}) stands alone")
    own = {each.name for each in fields(ModelOptions)} - {*OPENING}
    for each in fields(options):
        if each.name in own and getattr(options, each.name) != each.default:
            value = f"{each.name}={getattr(options, each.name)}"
            raise InputError(f"{value} is for a model and its data; leave it out for an embeddings file alone")
    collection = open_data(f"embeddings:{path}", test_fraction=1, **opening(options))
    tell_left_out(collection)
    return collection


def _table(scores: Scores) -> list[str]:
    """A line a score; shares in percent."""
    from obdsd.evaluation import metric

    shown = {metric(name): value for name, value in scores.values.items() if value is not None}
    lines = {found.title: f"{found.text(value):>8}{' %' * found.percent}" for found, value in shown.items()}
    if scores["spectral-decay"] == math.inf:
        lines["Spectral decay"] += "    a direction is not used"
    lone = f"    {scores.lone_queries:,} more are alone in their class and do not count" if scores.lone_queries else ""
    lines["Queries"] = f"{scores.queries:8,}{lone}"
    return [f"{name:<24} {text}" for name, text in lines.items()]


def _by_class(scores: Scores) -> dict[str, Any]:
    """The scores of each class by its name, if they were asked for."""
    found = scores.per_class
    if found is None:
        return {}
    columns = {"queries": found.queries, **found.values}
    rows = ({name: column[i].item() for name, column in columns.items()} for i in range(len(found.labels)))
    return {"per_class": dict(zip(map(str, found.labels), rows, strict=True))}
