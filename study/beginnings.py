"""Why a head that begins as the projection does better: heads that share one property or another with it, on held-out classes."""

from __future__ import annotations

from obdsd.presets import preset
from study.parts import BEGINNINGS
from study.plan import CUB, LETTERS, PROJECTED, QUIET, SEARCH_SEED
from study.records import run_all
from study.search import features, on_folds

SEEDS = range(SEARCH_SEED, SEARCH_SEED + 2)
DATA = {"cub": (CUB, 5), "letters": (LETTERS, 40)}  # epochs at 5e-4: what the search chose for the plain loss with either beginning


def run_beginnings(jobs: int = 1) -> None:
    """Train heads that begin in different ways with the plain loss, on held-out classes."""
    plan = {}
    for data, (file, epochs) in DATA.items():
        options = preset("ms", features(file), **QUIET, **PROJECTED, epochs=epochs, lr=5e-4)
        for name in BEGINNINGS:
            begun = options.replace(system=f"beginning({name!r})")
            for seed in SEEDS:
                plan |= dict(on_folds(f"beginnings/{data}/{name}/seed-{seed}", begun, seed))
    run_all(plan, jobs)
