"""Score a model on a collection, or an embeddings file alone: obdsd evaluate MODEL DATA, obdsd evaluate FILE."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from obdsd.cli.embed import MODEL, ModelOptions, check_suffix, embed_part, open_both
from obdsd.errors import InputError
from obdsd.files import check_place, write_json
from obdsd.options import LARGEST, as_dict, option
from obdsd.processes import versions

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from obdsd.data import Part
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
    from obdsd.evaluation import Points, evaluate
    from obdsd.terminal import stages

    out = None if options.out is None else Path(options.out).expanduser()
    if out is not None:
        check_place(out)
    source = options.data or options.model
    parts, rows_of = _open_file(options) if options.data is None else _open_model(options.data, options)
    chosen = _choose(source, parts, options.part)
    _check(source, chosen, options.ks)
    gallery, *query = (Points(_usable(source, part, rows_of(part)), part.classes, part.groups) for part in chosen.values())
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
    classes = _classes(chosen)
    named = {"all": chosen["test"]} if options.data is None and parts.keys() == {"test"} else chosen  # a file without a split
    print(f"{source}: {' and '.join(f'{name} of {len(part):,} items' for name, part in named.items())}, {len(classes):,} classes")
    print(*_table(scores), sep="\n")
    if out is not None:
        data = {"classes": len(classes), "items": {name: len(part) for name, part in chosen.items()}}
        record = {"scores": scores.as_dict(), "options": as_dict(options), "data": data, "versions": versions()}
        write_json(out, record | _by_class(scores))


Parts = Mapping[str, "Part"]
RowsOf = Callable[["Part"], "NDArray[np.float32]"]


def _open_file(options: Options) -> tuple[Parts, RowsOf]:
    """The rows of an embeddings file as they are."""
    from obdsd.data.embeddings import SUFFIXES, parts_as_given

    path = Path(options.model.removeprefix("embeddings:")).expanduser()
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"data must be given with model={options.model!r}; only an embeddings file ({', '.join(SUFFIXES)}) stands alone")
    for each in fields(ModelOptions):
        if getattr(options, each.name) != each.default:
            raise InputError(
                f"{each.name}={getattr(options, each.name)} is for a model and its data; leave it out for an embeddings file alone"
            )
    return parts_as_given(path), lambda part: part.matrix()


def _open_model(data: str, options: Options) -> tuple[Parts, RowsOf]:
    embedder, collection = open_both(options.model, data, options)
    return collection.parts, lambda part: embed_part(embedder, part, options)


def _choose(source: str, parts: Parts, part: str) -> Parts:
    """What is searched, and what is searched for if that is another part."""
    if part == "test" and "test" not in parts and {"query", "gallery"} <= parts.keys():
        return {"gallery": parts["gallery"], "query": parts["query"]}
    if part not in parts:
        raise InputError(f"{source}: part={part} is not there; it has {', '.join(parts)}, choose one with --part")
    return {part: parts[part]}


def _check(source: str, chosen: Parts, depths: Sequence[int]) -> None:
    """Refuse what cannot be scored, before long work for it."""
    for name, part in chosen.items():
        item, times = Counter(part.name(index) for index in range(len(part))).most_common(1)[0]
        if times > 1:
            raise InputError(f"{source}: {name} holds {item!r} {times} times; an item that repeats finds itself, keep one")
    classes = _classes(chosen)
    if len(classes) < 2:
        raise InputError(f"{source}: there is one class only ({classes[0]!r}); retrieval needs 2 or more to tell apart")
    gallery = next(iter(chosen.values()))
    most = len(gallery) - (len(chosen) == 1)
    if max(depths) > most:
        raise InputError(f"ks={max(depths)} is more than the {most} items of {source} that can be found; ask for fewer with --ks")


def _classes(chosen: Parts) -> list[str]:
    return sorted({str(name) for part in chosen.values() for name in part.classes})


def _usable(source: str, part: Part, rows: NDArray[np.float32]) -> NDArray[np.float32]:
    import numpy as np

    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1) | ~rows.any(axis=1))
    if len(bad):
        first = part.name(int(bad[0]))
        raise InputError(f"{source}: {len(bad)} embeddings are zero or not finite, the first that of {first!r}; remove or recompute them")
    return rows


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
    classes = scores.per_class
    if classes is None:
        return {}
    return {
        "per_class": {
            str(label): {"queries": int(classes.queries[i]), **{name: float(values[i]) for name, values in classes.values.items()}}
            for i, label in enumerate(classes.labels)
        }
    }
