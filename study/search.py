"""The search of each row's settings on held-out classes, and the settings that it chose."""

from __future__ import annotations

import os

import numpy as np

from obdsd.files import write_json
from obdsd.options import TrainOptions
from study import plan
from study.reading import chosen_of, recall
from study.records import RESULTS, SCRATCH, locked, recorded, records, run_all

BEHIND = 0.03  # a setting that is so much behind in Recall@1 on the first fold is given up


def data_of(regime: str) -> str:
    """What the regime is trained on, as the option `data` wants it."""
    data = plan.REGIMES[regime].data
    return data if data == "glyphs" else photos() if data == plan.PHOTOS else features(data)


def photos() -> str:
    """CUB's photos."""
    folder = SCRATCH / plan.PHOTOS
    if not folder.exists():
        raise SystemExit(f"{folder} does not exist; link it to the folder {plan.PHOTOS}: ln -s FOLDER {folder}")
    return f"cub200:{os.path.relpath(folder)}"


def features(name: str = plan.CUB) -> str:
    """A file of frozen features."""
    if not (SCRATCH / name).exists():
        raise SystemExit(f"{SCRATCH / name} does not exist; make it with `python -m study features --cub FOLDER`")
    return os.path.relpath(SCRATCH / name)


def search(regime: str, rows: tuple[str, ...] | None = None, jobs: int = 1) -> None:
    """Search the settings of each row on one or two folds of the training classes."""
    while due := {
        name: options for row in (plan.rows_of(regime) if rows is None else rows) for name, options in descend(regime, row)[1].items()
    }:
        run_all(due, jobs)


def descend(regime: str, row: str) -> tuple[plan.Change, dict[str, TrainOptions]]:
    """The best point so far of a row's search, and the runs that the present turn still needs.

    A turn keeps its best point. It goes fold by fold; points that are far behind on the first fold are given up."""
    own, data = plan.REGIMES[regime], data_of(regime)
    point = plan.beginning(own, row)
    for changes in own.turns:
        points = plan.turn_of(point, changes, row)
        for folds in range(1, len(own.folds) + 1):
            runs = dict(on_folds(_named(regime, row, each), plan.options_of(own, row, data, each))[folds - 1] for each in points)
            due = {name: options for name, options in runs.items() if not recorded(name, options)}
            if due:
                return point, due
            recalls = [_validation(regime, row, each, folds) for each in points]
            points = [each for each, found in zip(points, recalls, strict=True) if found >= max(recalls) - BEHIND]
        point = max(points, key=lambda each: _validation(regime, row, each))
    return point, {}


def on_folds(name: str, options: TrainOptions, seed: int = plan.SEARCH_SEED) -> list[tuple[str, TrainOptions]]:
    """Name and options of a run for each fold of the training classes."""
    return [(f"{name}/fold-{i}", options.replace(seed=seed, score="validation", val_fold=fold)) for i, fold in enumerate(plan.FOLDS)]


def _named(regime: str, row: str, point: plan.Change) -> str:
    return f"{regime}/search/{row}/{plan.name_of(point)}"


def _validation(regime: str, row: str, point: plan.Change, folds: int | None = None) -> float:
    """Recall@1 on held-out classes, mean of the first folds, or of all."""
    runs = records(_named(regime, row, point))
    return float(np.mean([recall(runs[f"fold-{fold}"]) for fold in range(folds or len(plan.REGIMES[regime].folds))]))


def settle(regime: str) -> None:
    """Write the settings that the search chose. Commit them before the test. Rows with an unfinished search keep theirs."""
    with locked(regime):
        before, chosen = chosen_of(regime), {}
        for row in plan.rows_of(regime):
            point, due = descend(regime, row)
            if not due:
                chosen[row] = {"validation": round(_validation(regime, row, point), 6), "settings": point}
            elif row in before:
                chosen[row] = before[row]
            if row in chosen:
                print(f"{100 * chosen[row]['validation']:6.2f} %  {row:16} {plan.name_of(chosen[row]['settings'])}")
        write_json(RESULTS / regime / "chosen.json", chosen)


def chosen_point(regime: str, row: str) -> plan.Change:
    chosen = chosen_of(regime)
    if row not in chosen:
        raise SystemExit(f"results/{regime}/chosen.json has no settings for {row}; search and settle first")
    return chosen[row]["settings"]


def chosen_options(regime: str, row: str) -> TrainOptions:
    """How a row is trained on the test classes."""
    return plan.options_of(plan.REGIMES[regime], row, data_of(regime), {**chosen_point(regime, row), **plan.REGIMES[regime].test})


def curves(jobs: int = 1) -> None:
    """Train the points of Recall@1 over λ and over ω, on held-out classes, that the search has not tried."""
    due = {}
    for axis in plan.CURVES:
        for (row, _), point in plan.curve_points(axis).items():
            options = plan.options_of(plan.REGIMES[plan.CURVES_REGIME], row, features(), point)
            due |= dict(on_folds(_named(plan.CURVES_REGIME, row, point), options))
    run_all(due, jobs)
