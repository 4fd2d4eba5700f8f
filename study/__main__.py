"""Does it help? Search on held-out classes, then test with fixed settings; every finished run is a file under results/.

python -m study features --cub CUB_200_2011        frozen features of CUB-200-2011, once
python -m study search REGIME [--rows a,b]         settings of each row on two folds of the training classes
python -m study settle REGIME                      write the chosen settings; commit them before the next step
python -m study test REGIME [--rows a,b]           the chosen settings on the test classes
python -m study variants [--head linear]           what the paper does not have, on held-out classes
python -m study curves                             Recall@1 over λ and over ω, on held-out classes
python -m study tables                             all tables and plots of docs/results.md, from results/
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import replace

import numpy as np

from obdsd import cli
from obdsd.files import write_json
from obdsd.models import Embedder
from obdsd.settings import TrainOptions
from study.plan import FOLDS, NOISE, NOISE_ROWS, REGIMES, ROWS, SEARCH_SEED, candidates, curve_points, seeds_of
from study.records import RESULTS, SCRATCH, run_all, settings_of

FEATURES = SCRATCH / "cub128.npz"
KEPT = 4  # candidates of a row that the second fold sees


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m study", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("features", "search", "settle", "test", "noise", "variants", "curves", "tables"))
    parser.add_argument("regime", nargs="?", choices=REGIMES)
    parser.add_argument("--head", default="linear", choices=("linear", "two-layer"), help="variants: of which head")
    parser.add_argument("--rows", default=",".join(ROWS), help="rows, as ms,psd")
    parser.add_argument("--seeds", type=int, default=10, help="test: no more seeds than this")
    parser.add_argument("--cub", help="folder CUB_200_2011")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at a time")
    given = parser.parse_args()
    if given.step == "features":
        return compute_features(given.cub)
    if given.step == "tables":
        from study.tables import write_all

        return write_all()
    if given.step == "variants":
        from study.variants import run_variants

        return run_variants(features(), given.head, given.jobs)
    if given.step == "curves":
        points = curve_points(features())
        return run_all({f"curves/{name}/fold-{i}": _held_out(options, i) for name, options in points.items() for i in (0, 1)}, given.jobs)
    if given.regime is None:
        parser.error(f"{given.step} needs a regime: {', '.join(REGIMES)}")
    rows = given.rows.split(",")
    if given.step == "search":
        search(given.regime, rows, given.jobs)
    elif given.step == "settle":
        settle(given.regime)
    elif given.step == "test":
        test(given.regime, rows, given.seeds, given.jobs)
    else:
        noise(given.regime, given.seeds, given.jobs)


def compute_features(cub: str) -> None:
    """`tf_efficientnet_lite0` with ImageNet weights from a pip package: the middle 128 of images whose shorter side is 144."""
    Embedder("tf_efficientnet_lite0", weights="offline", head="none", size=128).save(SCRATCH / "backbone")
    if cli.main(["embed", str(SCRATCH / "backbone"), f"cub200:{cub}", "--out", str(FEATURES), "--batch-size", "64"]):
        raise SystemExit("the features could not be computed")


def data_of(regime: str) -> str:
    return features() if REGIMES[regime].features else "glyphs"


def features() -> str:
    if not FEATURES.exists():
        raise SystemExit(f"{FEATURES} is not there; python -m study features --cub FOLDER makes it")
    return os.path.relpath(FEATURES)


def search(regime: str, rows: list[str], jobs: int) -> None:
    """All candidates of each row on the first fold, the best few of each on the second."""
    tried = {row: candidates(REGIMES[regime], row, data_of(regime)) for row in rows}
    run_all({_named(regime, row, name, 0): _held_out(options, 0) for row in rows for name, options in tried[row].items()}, jobs)
    second = {}
    for row in rows:
        best = sorted(tried[row], key=lambda name: -_validation(regime, row, name, 0))[:KEPT]
        second |= {_named(regime, row, name, 1): _held_out(tried[row][name], 1) for name in best}
    run_all(second, jobs)


def _named(regime: str, row: str, name: str, fold: int) -> str:
    return f"{regime}/search/{row}/{name}/fold-{fold}"


def _held_out(options: TrainOptions, fold: int) -> TrainOptions:
    return replace(options, seed=SEARCH_SEED, val_fold=FOLDS[fold], score="validation")


def _validation(regime: str, row: str, name: str, fold: int) -> float:
    return json.loads((RESULTS / f"{_named(regime, row, name, fold)}.json").read_text())["scores"]["recall"]["1"]


def settle(regime: str) -> None:
    """The best mean over both folds of each row, among the candidates that saw both."""
    chosen = {}
    for row in ROWS:
        tried = candidates(REGIMES[regime], row, data_of(regime))
        both = {name: [_validation(regime, row, name, fold) for fold in (0, 1)] for name in tried if _saw_both(regime, row, name)}
        if both:
            name = max(both, key=lambda name: float(np.mean(both[name])))
            chosen[row] = {"validation": round(float(np.mean(both[name])), 6), "name": name, "settings": settings_of(tried[name])}
            print(f"{100 * chosen[row]['validation']:6.2f} %  {row:16} {name}")
    write_json(RESULTS / regime / "chosen.json", chosen)


def _saw_both(regime: str, row: str, name: str) -> bool:
    return all((RESULTS / f"{_named(regime, row, name, fold)}.json").exists() for fold in (0, 1))


def chosen_options(regime: str, row: str) -> TrainOptions:
    chosen = json.loads((RESULTS / regime / "chosen.json").read_text())
    if row not in chosen:
        raise SystemExit(f"{row} has no settings in results/{regime}/chosen.json; search and settle first")
    return candidates(REGIMES[regime], row, data_of(regime))[chosen[row]["name"]]


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


def noise(regime: str, seeds: int, jobs: int) -> None:
    """Wrong training labels, the settings as chosen on clean ones."""
    plan = {
        f"{regime}/noise-{share}/{row}/seed-{seed}": replace(chosen_options(regime, row), seed=seed, label_noise=share)
        for seed in range(min(seeds, 5))
        for share in NOISE
        for row in NOISE_ROWS
    }
    run_all(plan, jobs)


if __name__ == "__main__":
    main()
