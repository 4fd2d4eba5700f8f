"""A report's content, gathered from finished runs: each is opened with its own data and model, and looked at from all sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from obdsd.data import Collection
from obdsd.evaluation.metrics import Progress, measured
from obdsd.models import Embedder
from obdsd.models.devices import choose_device
from obdsd.options import as_dict
from obdsd.report.batch import batch_of, last_epoch_of, lessons_of
from obdsd.report.content import Batch, Content, Cost, Geometry, Item, Run
from obdsd.report.cost import cost_of
from obdsd.report.curves import curves_of
from obdsd.report.geometry import geometry_of, sample_of
from obdsd.report.headline import commands_of, facts_of, headline_of_comparison, headline_of_runs
from obdsd.report.items import Shown, choose_items, read_queries
from obdsd.report.map import MapKind, check_map, draw_maps
from obdsd.report.neighbours import crops_search, neighbours_of, positives_of
from obdsd.report.opening import open_collection, open_runs
from obdsd.report.rows import Rows, Views, known_rows, views_of
from obdsd.training import RunRecord
from obdsd.training.build import training_part


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
        pictures: The images that an embeddings file was made of, as a collection of the same names; by default the data's own.
        map: How the map is drawn.
        points: What is on it, the scored classes or the first 20 training classes as in the paper.
        seed: Of the map, of the crops, and of what is left out if there are too many items.
        device: Where the models run.
        show: Told the stage, how much of it is done, and of how much.
    """
    check_map(map)
    opened = open_runs(folders)
    records, names = list(opened.runs.values()), list(opened.runs)
    collection, where, score = open_collection(records), choose_device(device), records[0].options.score
    asked = [] if queries is None else read_queries(queries, collection, score)
    shown = choose_items(collection, score, points, asked, seed)
    models = [record.model().to(where) for record in records]
    training = sample_of(collection["train"], seed)
    known = [known_rows(collection, record.rows()) for record in records]
    views = views_of(models, known, shown, training, pictures, seed, where, show)
    for model in models:
        model.cpu()
    on_map = np.concatenate([shown.numbers(part) for part in shown.parts if (part == "train") == (points == "train")])
    maps = draw_maps([rows[on_map] for rows in views.rows], map, seed, show)
    runs = []
    for place, (name, record) in enumerate(opened.runs.items()):
        show("batches and steps", place, len(records))
        inside = _inside(record, models[place], collection, views.training[place], training.labels, seed, where)
        runs.append(_run(name, record, shown, views, place, maps[place], *inside))
    show("batches and steps", len(records), len(records))
    headline = headline_of_runs(opened.runs) if opened.comparison is None else headline_of_comparison(opened.comparison)
    described = zip(shown.labels.tolist(), shown.names, views.pictures, strict=True)
    return Content(
        title=f"{', '.join(names)} on {collection.name}",
        **headline._asdict(),
        facts=facts_of(records, collection, shown, models[0].preprocessing, map),
        curves=curves_of(records),
        classes=shown.classes,
        items=[Item(label=label, name=name, picture=picture) for label, name, picture in described],
        shown=on_map,
        asking=shown.numbers(shown.asking),
        local_queries=views.queries,
        local_pictures=views.crop_pictures,
        chosen_queries=np.array([shown.names.index(name) for name in asked], dtype=np.int64),
        runs=runs,
        commands=commands_of(records, folders),
    )


def _inside(
    record: RunRecord, model: Embedder, collection: Collection, rows: Rows, labels: NDArray[np.int64], seed: int, device: torch.device
) -> tuple[Geometry, Batch, Cost | None]:
    """What is seen where the run was trained: the training set's geometry, a batch, and a step."""
    part = training_part(record.options, collection)
    last = last_epoch_of(record, model.to(device), collection, device)
    lessons = lessons_of(record, model, part, last, device)
    geometry = geometry_of(rows, labels, lessons, record.options.temperature, seed)
    batch = batch_of(record, lessons, last.who, part.class_names)
    for seen in (model, last.stand_in):
        if seen is not None:
            seen.cpu()  # the memory of a step is then its own
    return geometry, batch, None if last.trainer is None else cost_of(last.trainer)


def _run(
    name: str,
    record: RunRecord,
    shown: Shown,
    views: Views,
    place: int,
    places: NDArray[np.float32],
    geometry: Geometry,
    batch: Batch,
    cost: Cost | None,
) -> Run:
    rows = views.rows[place]
    recalls = dict(zip(record.per_class["labels"], record.per_class["recall@1"], strict=True))
    neighbours = neighbours_of(shown, rows)
    local, local_recall = crops_search(shown, rows, views.crops[place], views.queries) if len(views.queries) else (None, None)
    return Run(
        name=name,
        seed=record.options.seed,
        folder=str(record.folder),
        map=places,
        neighbours=neighbours,
        local=local,
        local_recall=local_recall,
        positive=positives_of(shown, rows),
        right=shown.labels[neighbours.indices[:, 0]] == shown.labels,
        per_class=[recalls.get(name, float("nan")) for name in shown.classes],
        scores=_scores(record.scores),
        geometry=geometry,
        batch=batch,
        cost=cost,
        training_seconds=record.seconds,
        options=as_dict(record.options),
        versions=record.versions,
    )


def _scores(scores: Mapping[str, float | None]) -> dict[str, str]:
    """Every metric of the scored classes; geometry is shown of the training set."""
    shown = [(entry, value) for entry, value in measured(scores) if not entry.on_training_set]
    return {f"{entry.title}, %" if entry.percent else entry.title: entry.text(value) for entry, value in shown}
