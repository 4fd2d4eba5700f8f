"""A report's content, gathered from finished runs: each is opened with its own data and model, and looked at from all sides."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from obdsd.data import Collection
from obdsd.evaluation.metrics import Progress, metric
from obdsd.experiments.reporting.cost import cost_of
from obdsd.experiments.reporting.items import Shown, choose_items, read_queries
from obdsd.experiments.reporting.measures import curves_of, geometry_of, heatmaps_of, sample_of, taught_batches, teacher_of_last_epoch
from obdsd.experiments.reporting.runs import Finished, open_collection, open_runs
from obdsd.experiments.reporting.search import Projection, check_projection, crops_search, layout, neighbours_of, positives_of
from obdsd.experiments.reporting.views import Rows, Views, known_rows, views_of
from obdsd.experiments.reporting.words import commands_of, facts_of, headline_of, headline_of_runs
from obdsd.models import Embedder
from obdsd.models.devices import choose_device
from obdsd.report.content import Content, Cost, Geometry, Heatmaps, Item, Run
from obdsd.training.assembly import training_part


def gather(
    folders: Sequence[Path],
    *,
    queries: Path | None = None,
    pictures: str | None = None,
    map: Projection = "tsne",
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
    check_projection(map)
    runs, comparison = open_runs(folders)
    collection, where, score = open_collection(runs), choose_device(device), runs[0].options.score
    asked = [] if queries is None else read_queries(queries, collection, score)
    shown = choose_items(collection, score, points, asked, seed)
    models = [Embedder.load(run.folder.path / "model").to(where) for run in runs]
    training = sample_of(collection["train"], seed)
    known = [known_rows(collection, run.folder.rows()) for run in runs]
    views = views_of(models, known, shown, training, pictures, seed, where, show)
    on_map = np.concatenate([shown.numbers(part) for part in shown.parts if (part == "train") == (points == "train")])
    maps = _maps(views.rows, on_map, map, seed, show)
    found = []
    for place, (run, model) in enumerate(zip(runs, models, strict=True)):
        show("batches and steps", place, len(runs))
        inside = _inside(run, model, collection, views.training[place], training.labels, seed, where)
        found.append(_run(run, shown, views, place, maps[place], *inside))
    show("batches and steps", len(runs), len(runs))
    headline, names = headline_of_runs(runs) if comparison is None else headline_of(comparison), shown.names
    described = zip(shown.labels.tolist(), names, views.pictures, strict=True)
    return Content(
        title=f"{', '.join(run.name for run in runs)} on {collection.name}",
        **headline._asdict(),
        facts=facts_of(runs, collection, shown, models[0].preprocessing, map),
        classes=shown.classes,
        items=[Item(label=label, name=name, picture=picture) for label, name, picture in described],
        shown=on_map,
        asking=shown.numbers(shown.asking),
        local_queries=views.queries,
        local_pictures=views.crop_pictures,
        chosen_queries=np.array([names.index(name) for name in asked], dtype=np.int64),
        runs=found,
        commands=commands_of(runs, folders),
    )


def _maps(rows: Sequence[Rows], on_map: NDArray[np.int64], how: Projection, seed: int, show: Progress) -> list[NDArray[np.float32]]:
    """The first run's map, and those of the others from there."""
    show("map", 0, len(rows))
    maps = [layout(rows[0][on_map], how, seed)]
    show("map", 1, len(rows))
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # each on one thread, for the same numbers each time
        for own in pool.map(lambda other: layout(other[on_map], how, seed, maps[0]), rows[1:]):
            maps.append(own)
            show("map", len(maps), len(rows))
    return maps


def _inside(
    run: Finished, model: Embedder, collection: Collection, rows: Rows, labels: NDArray[np.int64], seed: int, device: torch.device
) -> tuple[Geometry, Heatmaps, Cost]:
    """What is seen where the run was trained: the training set's geometry, a batch, and a step."""
    part = training_part(run.options, collection)
    teacher, who = teacher_of_last_epoch(run, model, len(part))
    teacher.to(device)
    batches = taught_batches(run, model, teacher, part, device)
    heatmaps = heatmaps_of(run, batches[0], who, part.class_names)
    return geometry_of(run, rows, labels, batches, seed), heatmaps, cost_of(run, model, teacher, part, device)


def _run(
    run: Finished, shown: Shown, views: Views, place: int, places: NDArray[np.float32], geometry: Geometry, heatmaps: Heatmaps, cost: Cost
) -> Run:
    rows, recalls = views.rows[place], run.recall_of_classes
    neighbours = neighbours_of(shown, rows)
    local, local_recall = crops_search(shown, rows, views.crops[place], views.queries) if len(views.queries) else (None, None)
    scores = run.result["scores"]
    return Run(
        name=run.name,
        seed=run.options.seed,
        folder=str(run.folder.path),
        curves=curves_of(run.metrics),
        map=places,
        neighbours=neighbours,
        local=local,
        local_recall=local_recall,
        positive=positives_of(shown, rows),
        right=shown.labels[neighbours.indices[:, 0]] == shown.labels,
        per_class=[recalls.get(name, float("nan")) for name in shown.classes],
        scores={metric(name).title: scores[name] for name in scores if name.startswith("recall@") or name in ("map@r", "nmi")},
        geometry=geometry,
        heatmaps=heatmaps,
        cost=cost,
        options=dataclasses.asdict(run.options),
        versions=run.folder.versions(),
    )
