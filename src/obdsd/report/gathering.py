"""A report's content, gathered from finished runs: each is opened with its own data and model, and looked at from all sides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from obdsd.counting import Progress
from obdsd.data import short_name
from obdsd.evaluation.metrics import measured
from obdsd.models.devices import choose_device
from obdsd.options import as_dict, why_idle
from obdsd.report.content import Content, Cost, Run
from obdsd.report.cost import Steps, cost_of
from obdsd.report.headline import commands_of, facts_of, headline_of_comparison, headline_of_runs
from obdsd.report.items import Shown, choose_items, crops_search, neighbours_of, positives_of, read_queries
from obdsd.report.last_epoch import last_epoch_of
from obdsd.report.map import MapKind, check_map, draw_maps
from obdsd.report.measures import curves_of, geometry_of, sample_of
from obdsd.report.opening import open_collection, open_runs
from obdsd.report.views import Views, views_of
from obdsd.training import RunRecord


def gather(
    folders: Sequence[Path],
    *,
    queries: Path | None = None,
    pictures: str | None = None,
    map: MapKind = "tsne",
    points: Literal["test", "train"] = "test",
    seed: int = 0,
    device: str = "auto",
    show: Progress = lambda stage, done, total: None,
) -> Content:
    """What a report shows of finished runs, or of a comparison: the first seed of each row, and its own table.

    Args:
        folders: Run folders, or one comparison's. The first run is the baseline of the others.
        queries: A text file of item names, one a line, that the reader wants to see.
        pictures: The images that an embeddings file was made of, as a collection of the same names; by default the data's own, or those
            that the file remembers.
        map: How the map is drawn.
        points: What is on it, the scored classes or the first 20 training classes as in the paper.
        seed: Of the map, of the crops, and of what is left out if there are too many items.
        device: Where the models run.
        show: Told the stage, how much of it is done, and of how much.
    """
    check_map(map)
    show("reading the data", 0, 1)
    opened, comparison = open_runs(folders)
    records = list(opened.values())
    collection, where, score = open_collection(records[0]), choose_device(device), records[0].options.score
    asked = [] if queries is None else read_queries(queries, collection, score)
    shown = choose_items(collection, score, points, asked, seed)
    models = [record.model().to(where) for record in records]
    training = sample_of(collection["train"], seed)
    kept = [record.rows() for record in records]
    show("reading the data", 1, 1)
    views = views_of(models, kept, collection, shown, training, pictures, seed, where, show)
    for model in models:
        model.cpu()
    on_map = np.concatenate([shown.numbers(part) for part in shown.parts if (part == "train") == (points == "train")])
    maps = draw_maps([rows[on_map] for rows in views.rows], map, seed, show)
    runs: list[Run] = []
    first: Steps | None = None
    first_seconds = 0.0
    for place, (name, record) in enumerate(opened.items()):
        show("batches and steps", place, len(records))
        lessons, batch, trainer = last_epoch_of(record, models[place], collection, where)
        cost: Cost | None = None
        if trainer is not None:
            steps = Steps(trainer, first.held if first else 0)
            cost = cost_of(steps, first, first_seconds)
            first, first_seconds = (first, first_seconds) if first else (steps, cost.seconds)
        geometry = geometry_of(views.training[place], training.labels, lessons, record.options.temperature, seed)
        runs.append(_run(name, record, shown, views, place, map=maps[place], geometry=geometry, batch=batch, cost=cost))
    show("batches and steps", len(records), len(records))
    headline = headline_of_runs(opened) if comparison is None else headline_of_comparison(comparison)
    rows = len(opened) if comparison is None else len(comparison.lines)
    facts = facts_of(records, collection, shown, models[0].preprocessing, map) | ({"pictures": views.lent} if views.lent else {})
    names = ", ".join(opened)
    if rows > len(opened):
        names, (first_row, *_) = f"{rows} rows", opened
        facts["runs below"] = f"{first_row} and the {len(opened) - 1} best of the other {rows - 1} rows; obdsd report RUN RUN shows others"
    return Content(
        title=f"{names} on {short_name(collection.name)}",
        **headline._asdict(),
        facts=facts,
        curves=curves_of(records),
        classes=shown.classes,
        labels=shown.labels,
        names=shown.names,
        pictures=views.pictures,
        shown=on_map,
        asking=shown.numbers(shown.asking),
        local_queries=views.queries,
        local_pictures=views.crop_pictures,
        chosen_queries=np.array([shown.names.index(name) for name in asked], dtype=np.int64),
        runs=runs,
        commands=commands_of(records, folders),
    )


def _run(name: str, record: RunRecord, shown: Shown, views: Views, place: int, **inside: Any) -> Run:
    """The run at a place among all, with what its model finds and its record tells; `inside` holds the fields of its training."""
    rows = views.rows[place]
    positive, local, local_recall = positives_of(shown, rows), None, None
    if len(views.queries):
        local, local_recall = crops_search(shown, rows, views.crops[place], views.queries, positive)
    recalls = dict(zip(record.per_class["labels"], record.per_class["recall@1"], strict=True))
    scores = [(metric, value) for metric, value in measured(record.scores) if not metric.on_training_set]
    return Run(
        name=name,
        seed=record.options.seed,
        folder=str(record.folder),
        neighbours=neighbours_of(shown, rows),
        positive=positive,
        local=local,
        local_recall=local_recall,
        per_class=[recalls.get(name, float("nan")) for name in shown.classes],
        scores={f"{metric.title}, %" if metric.percent else metric.title: metric.text(value) for metric, value in scores},
        training_seconds=record.seconds,
        taught=record.options.distils,
        options={option: value for option, value in as_dict(record.options).items() if not why_idle(record.options, option)},
        versions=record.versions,
        **inside,
    )
