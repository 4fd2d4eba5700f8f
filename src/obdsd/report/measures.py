"""The training of each run in numbers: curves over its epochs, and the embedding space of its training set at the end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from obdsd.data import Part
from obdsd.evaluation.geometry import singular_values
from obdsd.evaluation.metrics import METRICS
from obdsd.evaluation.pairs import cosine_histograms, gradient_shares
from obdsd.experiments.tables import title_of
from obdsd.report.content import Curve, Geometry, PairShares
from obdsd.report.last_epoch import Lesson
from obdsd.training import RunRecord

SAMPLE = 2_000  # training items whose geometry is shown
BINS = 40
OF_THE_STEP = {  # by its place in a line of metrics.jsonl: a curve's title and sentence
    ("loss", "base"): (
        "Base loss",
        "What training makes small. Lower is better, but only the scores tell how well unseen classes are found.",
    ),
    ("loss", "distillation"): (
        "Distillation loss",
        "How far the student still is from the teacher's targets, with its weight in the loss. Lower is closer.",
    ),
    ("distillation", "gradient_share"): (
        "Share of the distillation in the gradient",
        "How much of the gradient comes from the teacher. Near 0 it changes nothing, near 1 it decides alone.",
    ),
}


def curves_of(records: Sequence[RunRecord]) -> list[Curve]:
    """The parts of the loss, and every metric that a training measures on its way: each curve that a run has."""
    sources, taught = dict(OF_THE_STEP), [record.options.distils for record in records]
    if not any(taught):
        sources["loss", "base"] = ("Loss", sources["loss", "base"][1])
    scores = [metric for metric in METRICS.values() if metric.compared and not metric.on_training_set]
    for part, where in (("validation", "held-out classes"), ("test", "test classes (nothing is chosen by them)")):
        sources |= {(part, metric.name): (f"{metric.title}, {where}", metric.sentence) for metric in scores}
    sources |= {("train", metric.name): (title_of(metric), metric.sentence) for metric in METRICS.values() if metric.on_training_set}
    curves = []
    for (group, name), (title, sentence) in sources.items():
        about_teaching = "distillation" in (group, name)  # where nobody teaches it is a row of zeros
        measured = [record.metrics if own or not about_teaching else [] for own, record in zip(taught, records, strict=True)]
        values = [[(int(line["epoch"]) + 1, line.get(group, {}).get(name)) for line in lines] for lines in measured]
        lines = [[(epoch, float(value)) for epoch, value in own if value is not None] for own in values]
        curves.append(Curve(title=title, sentence=sentence, lines=lines))
    return [curve for curve in curves if any(curve.lines)]


def sample_of(part: Part, seed: int, most: int = SAMPLE) -> Part:
    """Some items of each class by seed; of a set of many classes two of each and not all classes."""
    if len(part) <= most:
        return part
    generator = np.random.default_rng(seed)
    classes = len(part.class_names)
    quota = max(2, most // classes)
    order = generator.permutation(len(part))
    by_class = order[np.argsort(part.labels[order], kind="stable")]
    labels = part.labels[by_class]
    place = np.arange(len(by_class)) - np.searchsorted(labels, labels)  # within its class
    kept = np.isin(labels, generator.permutation(classes)[: most // quota])
    return part.take(np.sort(by_class[kept & (place < quota)]))


def geometry_of(rows: NDArray[np.float32], labels: NDArray[np.int64], lessons: Sequence[Lesson], temperature: float, seed: int) -> Geometry:
    """Of training items; the gradient's shares are those of the distillation in real batches, None where nobody taught."""
    edges = np.linspace(-1, 1, BINS + 1)
    centres = (edges[:-1] + edges[1:]) / 2
    spectrum = singular_values(rows)
    same, different = cosine_histograms(rows, labels, edges, seed)
    taught = [
        gradient_shares(lesson.student, lesson.targets, lesson.labels, edges, temperature)
        for lesson in lessons
        if lesson.targets is not None
    ]
    return Geometry(
        spectrum=(spectrum / spectrum.sum()).tolist(),
        distances=_pairs((1 - centres)[::-1], same[::-1], different[::-1]),
        gradient=_pairs(centres, *np.mean(taught, axis=0)) if taught else None,
    )


def _pairs(*arrays: NDArray[np.float64]) -> PairShares:
    centres, same, different = (values.tolist() for values in arrays)
    return PairShares(centres=centres, same=same, different=different)
