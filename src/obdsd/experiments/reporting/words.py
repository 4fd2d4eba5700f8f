"""What stands at the top of a report: the result in words and as a table, on what data, and how to repeat it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from obdsd.data import Collection
from obdsd.experiments.comparison import METRICS, Comparison, class_differences
from obdsd.experiments.reporting.items import TRAINING_CLASSES, Shown
from obdsd.experiments.reporting.runs import Finished
from obdsd.experiments.statistics import class_interval
from obdsd.experiments.tables import HEADER, caption, cells, ends, number, plain_words
from obdsd.options import Preprocessing


class Headline(NamedTuple):
    words: list[str]
    header: list[str]
    rows: list[list[str]]
    caption: str


def headline_of(comparison: Comparison) -> Headline:
    """A comparison's own table, caption and words; what the differences are comes first."""
    baseline, *others = plain_words(comparison).splitlines()
    return Headline([*others, baseline], HEADER, [cells(line) for line in comparison.lines], caption(comparison))


def headline_of_runs(runs: Sequence[Finished]) -> Headline:
    """Single runs beside the first of them; a run each tells no interval over seeds."""
    baseline, *others = runs
    recall = {run.name: METRICS["recall@1"](run.result) for run in runs}
    words = []
    rows = [[baseline.name, *_means(baseline), *(["", ""] if others else []), str(baseline.options.seed), _minutes(baseline)]]
    for run in others:
        gain = 100 * (recall[run.name] - recall[baseline.name])
        over_classes = ends(class_interval(*class_differences([run.result], [baseline.result])))
        rows.append([run.name, *_means(run), f"{gain:+.2f}", over_classes, str(run.options.seed), _minutes(run)])
        words.append(
            f"{run.name}: {100 * recall[run.name]:.1f} %, {gain:+.1f} points to {baseline.name} with a single run each: no interval over "
            "seeds, no conclusion."
        )
    words.append(f"{baseline.name}: for {100 * recall[baseline.name]:.1f} % of the queries the nearest other item is of their class.")
    for name, scores in (baseline.result.get("reference") or {}).items():
        words.append(f"{name}, untrained: {100 * scores['recall@1']:.1f} %.")
    header = ["", *METRICS, *(["recall@1, difference", "over classes"] if others else []), "seed", "minutes"]
    paired = " Differences are to the first run, their interval by bootstrap over classes (95 %)." if others else ""
    told = (
        f"{baseline.options.data}, {baseline.options.score} classes; recall, MAP@R and NMI in percent; density and spectral decay of the "
        f"training set by its true labels.{paired}"
    )
    return Headline(words, header, rows, told)


def _means(run: Finished) -> list[str]:
    return [number(metric, of(run.result)) for metric, of in METRICS.items()]


def _minutes(run: Finished) -> str:
    return f"{run.result['seconds'] / 60:.1f}"


def facts_of(
    runs: Sequence[Finished], collection: Collection, shown: Shown, preprocessing: Preprocessing | None, how: str
) -> dict[str, str]:
    """What a reader must know of the data and of what the page shows of them."""
    options, things = runs[0].options, "images" if preprocessing else "embeddings"
    scored = {name: collection[name] for name in shown.parts if name != "train"}
    train = collection["train"]
    facts = {
        "data": options.data,
        "trained on": f"{len(train.class_names):,} classes, {len(train):,} {things}",
        "scored on": f"{len(next(iter(scored.values())).class_names):,} other classes, "
        + " and ".join(f"{len(part):,} {things} ({name})" for name, part in scored.items()),
        "resolution": f"{preprocessing.size} × {preprocessing.size} pixels" if preprocessing else f"vectors of length {len(train[0][0])}",
        "epoch": ", ".join(
            dict.fromkeys(f"{run.result['chosen_by']} (epoch {run.result['epoch'] + 1} of {run.options.epochs})" for run in runs)
        ),
        "model": ", ".join(dict.fromkeys(run.options.backbone for run in runs)),
    }
    if shown.left_out:
        facts["shown"] = (
            f"{sum(len(shown.parts[name]) for name in scored):,} of the scored items, whole classes drawn by a seed; neighbours are "
            "searched among these, while scores are of all"
        )
    what = f"the first {TRAINING_CLASSES} training classes" if "train" in shown.parts else "the scored classes"
    together = "; each starts from the first run's, so that places can be compared" if len(runs) > 1 else ""
    return {**facts, "map": f"{'t-SNE' if how == 'tsne' else 'UMAP'} of {what}{together}"}


def commands_of(runs: Sequence[Finished], folders: Sequence[Path]) -> list[str]:
    """What repeats each run shown, and this page."""
    again = [
        shlex.join(["obdsd", "train", "--config", str(run.folder.path / "config.yaml"), "--out", f"{run.folder.path}-again"])
        for run in runs
    ]
    return [*again, shlex.join(["obdsd", "report", *map(str, folders)])]
