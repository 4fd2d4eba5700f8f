"""`obdsd evaluate`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obdsd.cli.info import versions
from obdsd.cli.progress import stages
from obdsd.data.collection import Part
from obdsd.data.embeddings import Rows, parts_as_given
from obdsd.data.vectors import SUFFIXES
from obdsd.errors import InputError
from obdsd.evaluation import Points, Scores, evaluate, metric
from obdsd.files import check_place, write_json
from obdsd.options import EvaluateOptions

OF_MODELS = ("batch_size", "workers", "device", "split_seed", "test_fraction", "allow_incomplete")
"""Options that mean nothing for an embeddings file alone."""


def run(options: EvaluateOptions) -> None:
    out = None if options.out is None else Path(options.out).expanduser()
    if out is not None:
        check_place(out)
    source = options.data or options.model
    parts, embed = _open_file(options) if options.data is None else _open_model(options.data, options)
    chosen = _choose(source, parts, options.part)
    _check(source, chosen, options.depths)
    gallery, *query = (Points(_usable(source, part, embed(part)), _class_of(part), part.groups) for part in chosen.values())
    with stages() as progress:
        scores = evaluate(
            gallery.embeddings,
            gallery.labels,
            options.depths,
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
        record = {"scores": scores.as_dict(), "options": asdict(options), "data": data, "versions": versions()}
        write_json(out, record | _by_class(scores))


Parts = Mapping[str, Part]
Embed = Callable[[Part], NDArray[np.float32]]


def _open_file(options: EvaluateOptions) -> tuple[Parts, Embed]:
    """The rows of an embeddings file as they are."""
    path = Path(options.model.removeprefix("embeddings:")).expanduser()
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"data must be given with model={options.model!r}; only an embeddings file ({', '.join(SUFFIXES)}) stands alone")
    for name in OF_MODELS:
        if getattr(options, name) != getattr(EvaluateOptions, name):
            raise InputError(f"{name}={getattr(options, name)} is for a model and its data; leave it out for an embeddings file alone")

    def rows(part: Part) -> NDArray[np.float32]:
        assert isinstance(part.items, Rows)
        return part.items.matrix[part.positions]

    return parts_as_given(path), rows


def _open_model(data: str, options: EvaluateOptions) -> tuple[Parts, Embed]:
    from obdsd.cli.embedding import embed_part, open_both  # timm takes seconds that an embeddings file alone is spared

    embedder, collection = open_both(data, options)
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
    return sorted({str(name) for part in chosen.values() for name in np.unique(_class_of(part))})


def _class_of(part: Part) -> NDArray[Any]:
    """The class of each item by name: each part numbers its own."""
    return np.asarray(part.class_names)[part.labels]


def _usable(source: str, part: Part, rows: NDArray[np.float32]) -> NDArray[np.float32]:
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1) | ~rows.any(axis=1))
    if len(bad):
        first = part.name(int(bad[0]))
        raise InputError(f"{source}: {len(bad)} embeddings are zero or not finite, the first that of {first!r}; remove or recompute them")
    return rows


def _table(scores: Scores) -> list[str]:
    """A line a score; shares in percent."""
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
    return {
        "per_class": {
            str(label): {
                "queries": int(found.queries[i]),
                **{name: float(values[i]) for name, values in found.values.items()},
            }
            for i, label in enumerate(found.labels)
        }
    }
