"""Score a model on a collection, or an embeddings file alone: obdsd evaluate MODEL DATA, obdsd evaluate FILE.

--rerank PART scores a re-ranking beside the cosine. Re-ranking is transductive: it uses the unlabelled collection that is searched as a
whole, so its scores are those of this collection and not of the model alone. obdsd parts rerank lists what there is.
"""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from obdsd.catalogue import RERANKERS
from obdsd.cli.embed import MODEL, ModelOptions, PassOptions, check_suffix, embed_part, open_both, tell_left_out, tell_seen
from obdsd.errors import InputError
from obdsd.files import check_place, write_json
from obdsd.options import LARGEST, OPENING, as_dict, opening, option
from obdsd.processes import versions
from obdsd.spec import Spec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from obdsd.data import Collection, Part
    from obdsd.evaluation import Scores

TRANSDUCTIVE = "Re-ranking is transductive: it uses the unlabelled items that are searched as a whole."


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
    rerank: str = option("none", "Also score this re-ranking of what the cosine finds, or auto, which chooses one on held-out classes.")
    val_fraction: float | None = option(
        None, "Share of the training classes on which --rerank auto chooses; 1 takes all, for a model that they did not train.", above=0
    )

    def __post_init__(self) -> None:
        if self.rerank not in ("none", "auto"):
            object.__setattr__(self, "rerank", str(RERANKERS.checked(self.rerank)))
        if self.val_fraction is not None and self.rerank != "auto":
            raise InputError(f"val_fraction={self.val_fraction:g} is for rerank=auto, which chooses by it; leave it out")
        if self.rerank == "auto" and self.part != "test":
            raise InputError(f"part={self.part} is what rerank=auto may choose on, and it must be scored on others; leave it out")
        if self.val_fraction is not None and not 0 < self.val_fraction <= 1:
            raise InputError(f"val_fraction={self.val_fraction:g} must lie above 0 and be 1 or less; try 0.5")
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

    if options.rerank not in ("none", "auto"):
        RERANKERS.build(options.rerank)  # what is wrong with it is told before long work
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
    tell_seen(options.model, collection.trained_on if embedder is None else embedder.trained_on, chosen)
    trained_on = None if embedder is None else embedder.trained_on
    held_out = _held_out(options, source, collection, options.split_seed or (trained_on.split_seed if trained_on else None) or 0)
    if embedder is not None and held_out:
        tell_seen(options.model, trained_on, held_out)
    from obdsd.evaluation import Points, Scores, evaluate
    from obdsd.search.scoring import choose, scores_of

    def points(part: Part) -> Points:
        return Points(rows_of(part), part.classes, part.groups)

    searched = [points(part) for part in chosen.values()]
    gallery, query = searched[0], searched[1] if len(searched) > 1 else None
    with stages() as progress:
        how: dict[str, Any] = {"ks": options.ks, "seed": options.seed, "details": options.per_class, "progress": progress}
        how |= {"clusters": options.clusters, "restarts": options.restarts}
        scores = evaluate(gallery.embeddings, gallery.labels, query=query, groups=gallery.groups, **how)
        spec, tried = Spec.parse(options.rerank), dict[str, Scores]()
        if held_out:
            spec, tried = choose(*map(points, held_out.values()), progress=progress)
        reranked = None if spec.name == "none" else scores_of(spec, gallery, query, **how)
    classes = len({name for part in chosen.values() for name in part.classes.tolist()})
    named = {"all": chosen["test"]} if options.data is None and collection.parts.keys() == {"test"} else chosen  # a file without a split
    print(*_tried(tried, held_out), sep="\n", end="\n" * bool(tried))
    print(f"{source}: {' and '.join(f'{name} of {len(part):,} items' for name, part in named.items())}, {classes:,} classes")
    print(*_table(scores, reranked), sep="\n")
    if reranked is not None:
        print(f"Re-ranked by {spec}. {TRANSDUCTIVE}")
    if out is not None:
        data = {"classes": classes, "items": {name: len(part) for name, part in chosen.items()}}
        record = {"scores": scores.as_dict(), "options": as_dict(options), "data": data, "versions": versions()} | _by_class(scores)
        if reranked is not None:
            record["reranked"] = {"rerank": str(spec), "note": TRANSDUCTIVE, "scores": reranked.as_dict()} | _by_class(reranked)
        if held_out:
            record["tried"] = {name: values.as_dict() for name, values in tried.items()}
        write_json(out, record)


def _held_out(options: Options, source: str, collection: Collection, seed: int) -> dict[str, Part]:
    """What --rerank auto chooses on, held out as in a training; nothing else wants any."""
    from obdsd.data.check import check_scorable

    if options.rerank != "auto":
        return {}
    if "val" not in collection.parts and options.val_fraction is None:
        raise InputError("rerank=auto chooses on held-out training classes; add --val-fraction 0.5, or name a re-ranker")
    parts = collection.parts
    if options.val_fraction is not None:
        if "train" not in parts:
            raise InputError(f"{source}: rerank=auto chooses on training classes, but it has {', '.join(parts)} alone; name a re-ranker")
        whole = options.val_fraction == 1
        parts = {"val": parts["train"]} if whole else collection.hold_out(fraction=options.val_fraction, seed=seed).parts
    return check_scorable(source, parts, "val")


def opened_alone(given: str, options: PassOptions) -> Collection:
    """An embeddings file as it is: without a split all its rows are in one part."""
    from obdsd.data import open_data
    from obdsd.data.embeddings import SUFFIXES

    path = Path(given.removeprefix("embeddings:")).expanduser()
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"{given}: one word alone must be an embeddings file ({', '.join(SUFFIXES)}); else give MODEL DATA")
    own = {each.name for each in fields(ModelOptions)} - {*OPENING}
    for each in fields(options):
        if each.name in own and getattr(options, each.name) != each.default:
            value = f"{each.name}={getattr(options, each.name)}"
            raise InputError(f"{value} is for a model and its data; leave it out for an embeddings file alone")
    collection = open_data(f"embeddings:{path}", test_fraction=1, **opening(options))
    tell_left_out(collection)
    return collection


def _tried(tried: Mapping[str, Scores], held_out: Mapping[str, Part]) -> list[str]:
    """What was tried on held-out classes, the best marked."""
    if not tried:
        return []
    best = max(tried, key=lambda name: tried[name]["map@r"] or 0.0)
    width = max(map(len, tried))
    from obdsd.evaluation.metrics import score_line

    head = f"rerank=auto on {len(held_out['val']):,} items of held-out training classes, by MAP@R:"
    lines = [f"  {name:<{width}}  {score_line(tried[name].as_dict())}{'  <' * (name == best)}" for name in tried]
    return [head, *lines]


def _table(scores: Scores, reranked: Scores | None) -> list[str]:
    """A line a score; shares in percent. What re-ranking does not change is shown once."""
    from obdsd.evaluation import metric

    shown = {metric(name): value for name, value in scores.values.items() if value is not None}
    lines = {found.title: f"{found.text(value):>8}{' %' * found.percent}" for found, value in shown.items()}
    if reranked is not None:
        for found in shown:
            if (value := reranked.values[found.name]) is not None:
                lines[found.title] = f"{lines[found.title]:<12}{found.text(value):>8}{' %' * found.percent}"
    if scores["spectral-decay"] == math.inf:
        lines["Spectral decay"] += "    a direction is not used"
    lone = f"    {scores.lone_queries:,} more are alone in their class and do not count" if scores.lone_queries else ""
    lines["Queries"] = f"{scores.queries:8,}{lone}"
    head = [] if reranked is None else [f"{'':<24} {'cosine':>8}{'re-ranked':>13}"]
    return [*head, *(f"{name:<24} {text}" for name, text in lines.items())]


def _by_class(scores: Scores) -> dict[str, Any]:
    """The scores of each class by its name, if they were asked for."""
    found = scores.per_class
    if found is None:
        return {}
    columns = {"queries": found.queries, **found.values}
    rows = ({name: column[i].item() for name, column in columns.items()} for i in range(len(found.labels)))
    return {"per_class": dict(zip(map(str, found.labels), rows, strict=True))}
