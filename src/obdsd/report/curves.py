"""Curves over the epochs: the parts of the loss, and every metric that a training measures on its way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from obdsd.evaluation.metrics import METRICS
from obdsd.report.content import Curve
from obdsd.training import RunRecord


class Source(NamedTuple):
    """A curve's title and sentence, and where its value is in a line of metrics.jsonl."""

    title: str
    sentence: str
    keys: tuple[str, str]


OF_THE_STEP = (
    Source(
        "Base loss",
        "What training makes small. Lower is better, but only the scores tell how well unseen classes are found.",
        ("loss", "base"),
    ),
    Source(
        "Distillation loss",
        "How far the student still is from the teacher's targets, with its weight in the loss. Lower is closer.",
        ("loss", "distillation"),
    ),
    Source(
        "Share of the distillation in the gradient",
        "How much of the gradient comes from the teacher. Near 0 it changes nothing, near 1 it decides alone.",
        ("distillation", "gradient_share"),
    ),
)


def sources() -> Iterator[Source]:
    """Of all curves, in the order of the page. The metrics bring theirs."""
    yield from OF_THE_STEP
    scores = [shown for shown in METRICS.values() if shown.compared and not shown.on_training_set]
    for part, where in (("validation", "held-out classes"), ("test", "test classes (nothing is chosen by them)")):
        yield from (Source(f"{shown.title}, {where}", shown.sentence, (part, shown.name)) for shown in scores)
    yield from (Source(shown.title, shown.sentence, ("train", shown.name)) for shown in METRICS.values() if shown.on_training_set)


def curves_of(records: Sequence[RunRecord]) -> list[Curve]:
    """Each curve that a run has."""
    curves = [
        Curve(title=source.title, sentence=source.sentence, lines=[_points(record.metrics, source.keys) for record in records])
        for source in sources()
    ]
    return [curve for curve in curves if any(curve.lines)]


def _points(metrics: Sequence[Mapping[str, Any]], keys: tuple[str, str]) -> list[tuple[int, float]]:
    """(epoch counted from 1, value) where there is one."""
    group, name = keys
    values = [(int(line["epoch"]) + 1, line.get(group, {}).get(name)) for line in metrics]
    return [(epoch, float(value)) for epoch, value in values if value is not None]
