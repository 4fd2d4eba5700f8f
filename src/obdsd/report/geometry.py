"""The embedding space of a run's training set: directions in use, distances, and which pairs the distillation pulls on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from obdsd.data import Part
from obdsd.evaluation.geometry import singular_values
from obdsd.evaluation.pairs import Shares, cosine_histograms, gradient_shares
from obdsd.report.batch import Lesson
from obdsd.report.content import Geometry, Histogram

SAMPLE = 2_000  # training items whose geometry is shown
BINS = 40


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
    """Of training items; the gradient's shares are those of the distillation in real batches."""
    edges = np.linspace(-1, 1, BINS + 1)
    values = singular_values(rows)
    cosines = cosine_histograms(rows, labels, edges, seed)
    intra, inter = (Histogram(edges=(1 - edges[::-1]).tolist(), shares=side[::-1].tolist()) for side in cosines)
    gradient = _gradient(lessons, temperature, edges)
    return Geometry(spectrum=(values / values.sum()).tolist(), intra=intra, inter=inter, gradient=gradient)


def _gradient(lessons: Sequence[Lesson], temperature: float, edges: NDArray[np.float64]) -> dict[str, list[float]]:
    """The mean over the batches; nothing where nobody taught."""
    shares = [
        gradient_shares(lesson.student, lesson.targets, lesson.labels, edges, temperature)
        for lesson in lessons
        if lesson.targets is not None
    ]
    if not shares:
        return {}
    mean = Shares(*(np.mean(side, axis=0) for side in zip(*shares, strict=True)))
    return {
        "cosine": ((edges[:-1] + edges[1:]) / 2).tolist(),
        "positive": mean.positive.tolist(),
        "negative": mean.negative.tolist(),
    }
