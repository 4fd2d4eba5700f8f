"""Settings chosen on held-out training classes: every candidate on the same folds and seeds, the test classes unread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from obdsd.experiments.runs import carry_out
from obdsd.options import TrainOptions
from obdsd.terminal import Count
from obdsd.training import RunRecord

FOLDS, SEARCH_SEED = ("0/3", "1/3"), 100  # the seeds of a test begin at 0


def search(
    candidates: Mapping[str, TrainOptions],
    folds: Sequence[str],
    seeds: Sequence[int],
    out: Path,
    *,
    jobs: int = 1,
    show: bool = True,
    keep_going: bool = False,
    count: Count | None = None,
) -> dict[str, list[float]]:
    """Train each candidate on each fold (`0/3`: the first of three parts of the training classes is held out) with each seed.

    Returns each candidate's Recall@1 on the held-out classes, the best candidate first. Runs are kept in `out` and not repeated; of what
    fails, and of `count`, `carry_out` tells.
    """
    plan = {
        (name, fold, seed): on_fold(options, fold, seed).replace(out=str(out / name / f"fold-{fold.replace('/', 'of')}-seed-{seed}"))
        for seed in seeds
        for fold in folds
        for name, options in candidates.items()
    }
    carry_out(plan, jobs, show, keep_going=keep_going, count=count)
    recalls: dict[str, list[float]] = {name: [] for name in candidates}
    for (name, *_), options in plan.items():
        assert options.out is not None
        recalls[name].append(RunRecord.read(options.out).scores["recall@1"] or 0.0)
    return dict(sorted(recalls.items(), key=lambda each: -np.mean(each[1])))


def on_fold(options: TrainOptions, fold: str, seed: int) -> TrainOptions:
    """A training that never reads the test classes: a part of the training classes is held out and scored."""
    return options.replace(seed=seed, val_fold=fold, score="validation")
