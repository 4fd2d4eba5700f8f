"""Does it help? Search on held-out classes, then test with fixed settings; every finished run is a file under results/.

python -m study features --cub CUB_200_2011        frozen features of CUB-200-2011 and of the built-in letters, once
python -m study search REGIME [--rows a,b]         settings of each row on two folds of the training classes
python -m study settle REGIME                      write the chosen settings; commit them before the next step
python -m study test REGIME [--rows a,b]           the chosen settings on the test classes
python -m study noise REGIME [--rows a,b]          the same with wrong training labels
python -m study equal REGIME [--rows a,b]          on the test classes, controls at the settings of the walk where they chose others
python -m study replacement REGIME                 on the test classes, batches drawn with replacement, as the authors' code draws them
python -m study untrained REGIME                   the head as it is drawn: what a row must beat to have learned anything
python -m study times REGIME                       what a step of each tested row costs beside one of the plain loss
python -m study walk                               how much of the walk's targets is a flatter teacher, the mean row, the graph
python -m study trials                             the first trials' settings, which nobody had chosen, on the test classes
python -m study variants [--head linear]           what the paper does not have, on held-out classes
python -m study beginnings                         heads that begin with a part of what the projection has, on held-out classes
python -m study curves                             Recall@1 over λ and over ω, on held-out classes
python -m study tables                             all tables and plots of docs/results.md, from results/
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from obdsd import cli
from obdsd.experiments.timing import relative_time
from obdsd.files import write_json
from obdsd.models import Embedder
from obdsd.settings import TrainOptions
from obdsd.training.assembly import collection_of
from obdsd.training.display import Display
from obdsd.training.loop import Training
from obdsd.training.runs import RunFolder
from study.plan import (
    CUB,
    CURVES,
    CURVES_REGIME,
    FOLDS,
    LETTERS,
    NOISE,
    NOISE_ROWS,
    REGIMES,
    REPLACED,
    ROWS,
    SEARCH_SEED,
    WALKS,
    Change,
    beginning,
    control_of,
    curve_points,
    name_of,
    options_of,
    seeds_of,
    turn_of,
)
from study.records import RESULTS, SCRATCH, recorded, run_all

BEHIND = 0.03  # of Recall@1 on the first fold: from there on a setting is given up
TURNS = 60  # steps of each of two rows by which their times are compared


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m study", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("features", *OF_A_REGIME, "walk", "trials", "variants", "beginnings", "curves", "tables"))
    parser.add_argument("regime", nargs="?", choices=REGIMES)
    parser.add_argument("--head", default="linear", choices=("linear", "two-layer"), help="variants: of which head")
    parser.add_argument("--rows", help="rows, as ms,psd (default: all; noise: those that it is about)")
    parser.add_argument("--seeds", type=int, default=10, help="test, noise, equal, replacement: no more seeds than this")
    parser.add_argument("--cub", help="folder CUB_200_2011")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at a time")
    given = parser.parse_args()
    if given.step == "features":
        if given.cub is None:
            parser.error("features needs --cub FOLDER")
        return compute_features(given.cub)
    if given.step == "tables":
        from study.tables import write_all

        return write_all()
    if given.step == "walk":
        from study.walk import write_shares

        return write_shares(chosen_options, given.jobs)
    if given.step == "trials":
        from study.trials import run_trials

        return run_trials(features, given.jobs)
    if given.step == "variants":
        from study.variants import run_variants

        return run_variants(features(), given.head, given.jobs)
    if given.step == "beginnings":
        from study.beginnings import run_beginnings

        return run_beginnings(features, given.jobs)
    if given.step == "curves":
        return curves(given.jobs)
    if given.regime is None:
        parser.error(f"{given.step} needs a regime: {', '.join(REGIMES)}")
    usual = NOISE_ROWS if given.step == "noise" else ROWS
    rows = given.rows.split(",") if given.rows else list(usual)
    if unknown := sorted({*rows} - {*ROWS}):
        parser.error(f"no row called {', '.join(unknown)}; there are {', '.join(ROWS)}")
    OF_A_REGIME[given.step](given.regime, rows, given)


def compute_features(cub: str) -> None:
    """By `tf_efficientnet_lite0` with ImageNet weights from a pip package: birds at 128 px, the middle of 146; letters at 64."""
    for data, size, file in ((f"cub200:{cub}", 128, CUB), ("glyphs", 64, LETTERS)):
        Embedder("tf_efficientnet_lite0", weights="offline", head="none", size=size).save(SCRATCH / "backbone")
        if cli.main(["embed", str(SCRATCH / "backbone"), data, "--out", str(SCRATCH / file), "--batch-size", "64"]):
            raise SystemExit("the features could not be computed")


def data_of(regime: str) -> str:
    return "glyphs" if REGIMES[regime].data == "glyphs" else features(REGIMES[regime].data)


def features(name: str = CUB) -> str:
    if not (SCRATCH / name).exists():
        raise SystemExit(f"{SCRATCH / name} is not there; python -m study features --cub FOLDER makes it")
    return os.path.relpath(SCRATCH / name)


def search(regime: str, rows: list[str], jobs: int) -> None:
    """Turn by turn, each point on both folds, until every row has been through all its turns."""
    while due := {name: options for row in rows for name, options in descend(regime, row)[1].items()}:
        run_all(due, jobs)


def descend(regime: str, row: str) -> tuple[Change, dict[str, TrainOptions]]:
    """How far a row's search is: the best point so far, and the runs that its present turn still lacks.

    A turn goes fold by fold; what is far behind after the first is not asked again."""
    plan, data = REGIMES[regime], data_of(regime)
    point = beginning(plan, row)
    for changes in plan.turns:
        points = turn_of(point, changes, row)
        for folds in range(1, len(FOLDS) + 1):
            runs = dict(on_folds(_named(regime, row, each), options_of(plan, row, data, each))[folds - 1] for each in points)
            lacking = {name: options for name, options in runs.items() if not recorded(name, options)}
            if lacking:
                return point, lacking
            found = [_validation(regime, row, each, folds) for each in points]
            points = [each for each, recall in zip(points, found, strict=True) if recall >= max(found) - BEHIND]
        point = max(points, key=lambda each: _validation(regime, row, each))
    return point, {}


def on_folds(name: str, options: TrainOptions) -> list[tuple[str, TrainOptions]]:
    """A run for each fold of the training classes, by name."""
    shared = replace(options, seed=SEARCH_SEED, score="validation")
    return [(f"{name}/fold-{i}", replace(shared, val_fold=fold)) for i, fold in enumerate(FOLDS)]


def _named(regime: str, row: str, point: Change) -> str:
    return f"{regime}/search/{row}/{name_of(point)}"


def _validation(regime: str, row: str, point: Change, folds: int = len(FOLDS)) -> float:
    """Recall@1 on held-out classes, mean of the first folds."""
    files = [RESULTS / _named(regime, row, point) / f"fold-{fold}.json" for fold in range(folds)]
    return float(np.mean([json.loads(file.read_text())["scores"]["recall"]["1"] for file in files]))


def settle(regime: str) -> None:
    """Write down what the search came to, for every row that has finished it; what was settled of the others stays."""
    before, chosen = settled(regime), {}
    for row in ROWS:
        point, lacking = descend(regime, row)
        if not lacking:
            chosen[row] = {"validation": round(_validation(regime, row, point), 6), "settings": point}
        elif row in before:
            chosen[row] = before[row]
        if row in chosen:
            print(f"{100 * chosen[row]['validation']:6.2f} %  {row:16} {name_of(chosen[row]['settings'])}")
    write_json(RESULTS / regime / "chosen.json", chosen)


def settled(regime: str) -> dict[str, Any]:
    file = RESULTS / regime / "chosen.json"
    return json.loads(file.read_text()) if file.exists() else {}


def chosen_point(regime: str, row: str) -> Change:
    chosen = settled(regime)
    if row not in chosen:
        raise SystemExit(f"{row} has no settings in results/{regime}/chosen.json; search and settle first")
    return chosen[row]["settings"]


def chosen_options(regime: str, row: str) -> TrainOptions:
    return options_of(REGIMES[regime], row, data_of(regime), chosen_point(regime, row))


def test(regime: str, rows: list[str], seeds: int, jobs: int) -> None:
    """Seed by seed, so that all rows have the same seeds whenever the work stops."""
    options = {row: chosen_options(regime, row) for row in rows}
    plan = {
        f"{regime}/test/{row}/seed-{seed}": replace(options[row], seed=seed, reference=row == "ms" and seed == 0)
        for seed in range(seeds)
        for row in rows
        if seed in seeds_of(row)
    }
    run_all(plan, jobs)


def equal(regime: str, walks: list[str], seeds: int, jobs: int) -> None:
    """Controls at the settings that were chosen for the row with the walk, where they chose others: the walk alone makes the difference."""
    chosen, plan = settled(regime), {}
    for walk in (walk for walk in WALKS if walk in walks and walk in chosen):
        for row in WALKS[walk]:
            point = control_of(REGIMES[regime], row, chosen_point(regime, walk))
            if row in chosen and chosen_point(regime, row) == point:
                print(f"{row} has the settings of {walk} already")
                continue
            options = options_of(REGIMES[regime], row, data_of(regime), point)
            plan |= {f"{regime}/equal/{walk}/{row}/seed-{seed}": replace(options, seed=seed) for seed in seeds_of(walk) if seed < seeds}
    run_all(plan, jobs)


def replacement(regime: str, seeds: int, jobs: int) -> None:
    """Batches as the authors' code draws them: classes and items with replacement, the settings as chosen."""
    plan = {
        f"{regime}/replacement/{row}/seed-{seed}": replace(chosen_options(regime, row), seed=seed, replacement=True)
        for seed in range(min(seeds, 5))
        for row in REPLACED
    }
    run_all(plan, jobs)


def untrained(regime: str) -> None:
    """The test classes by heads that were never trained, one for each seed of the test."""
    options = options_of(REGIMES[regime], "ms", data_of(regime), {})
    collection = collection_of(options)
    for seed in seeds_of("ms"):
        training = Training(replace(options, seed=seed), collection, RunFolder(SCRATCH / "untrained"))
        if options.head_init == "projection":
            training.project_head(Display(0, 0))
        scores = training.scoring.final()
        assert scores.per_class is not None
        classes = {"queries": scores.per_class.queries.tolist(), "recall": {"1": scores.per_class.recall[1].tolist()}}
        write_json(RESULTS / regime / "untrained" / f"seed-{seed}.json", {"scores": scores.as_dict(), "per_class": classes})


def times(regime: str) -> None:
    """Steps of each row and of the plain loss take turns."""
    plain = chosen_options(regime, "ms")
    tested = [row for row in ROWS if row != "ms" and (RESULTS / regime / "test" / row).exists()]
    write_json(RESULTS / regime / "times.json", {row: round(relative_time(chosen_options(regime, row), plain, TURNS), 3) for row in tested})


def noise(regime: str, rows: list[str], seeds: int, jobs: int) -> None:
    """More wrong training labels than the regime has, the settings as chosen."""
    plan = {
        f"{regime}/noise-{share}/{row}/seed-{seed}": replace(chosen_options(regime, row), seed=seed, label_noise=share)
        for seed in range(min(seeds, 5))
        for share in NOISE
        if share != REGIMES[regime].common.get("label_noise")
        for row in rows
    }
    run_all(plan, jobs)


def curves(jobs: int) -> None:
    """Recall@1 over λ and over ω: the points that the search has not come by."""
    regime, plan = REGIMES[CURVES_REGIME], {}
    for axis in CURVES:
        for (row, _), point in curve_points(axis).items():
            plan |= dict(on_folds(_named(CURVES_REGIME, row, point), options_of(regime, row, features(), point)))
    run_all(plan, jobs)


OF_A_REGIME: dict[str, Callable[[str, list[str], argparse.Namespace], None]] = {
    "search": lambda regime, rows, given: search(regime, rows, given.jobs),
    "settle": lambda regime, rows, given: settle(regime),
    "test": lambda regime, rows, given: test(regime, rows, given.seeds, given.jobs),
    "noise": lambda regime, rows, given: noise(regime, rows, given.seeds, given.jobs),
    "equal": lambda regime, rows, given: equal(regime, rows, given.seeds, given.jobs),
    "replacement": lambda regime, rows, given: replacement(regime, given.seeds, given.jobs),
    "untrained": lambda regime, rows, given: untrained(regime),
    "times": lambda regime, rows, given: times(regime),
}

if __name__ == "__main__":
    main()
