"""The first trials of this study, whose settings nobody had chosen: two seeds then, five seeds now, on the test classes."""

from __future__ import annotations

from typing import NamedTuple

from study.plan import CUB, LETTERS, QUIET, TWO_LAYER, Change, Regime, options_of
from study.records import run_all
from study.search import features

SEEDS = 5


class Trial(NamedTuple):
    """What was trained, and the Recall@1 of two seeds: rows with their λ (0 without a teacher)."""

    data: str
    common: Change
    first: list[tuple[str, float, float]]


PLAIN, PSD, WALK, SOFTMAX, MIX = "ms", "psd", "obd-sd", "obd-sd-softmax", "mean-mix"
TRIALS: dict[str, Trial] = {
    "cub": Trial(
        data=CUB,
        common={"epochs": 40, "lr": 1e-4},
        first=[(PLAIN, 0, 30.1), (PSD, 100, 31.0), (PSD, 1000, 33.7), (WALK, 100, 32.0), (SOFTMAX, 100, 31.9), (MIX, 100, 32.2)],
    ),
    "letters": Trial(  # the learning rate was not written down
        data=LETTERS,
        common={"epochs": 60, "lr": 3e-4},
        first=[
            *[(PLAIN, 0, 14.1), (PSD, 100, 14.6), (WALK, 100, 13.7), (SOFTMAX, 100, 13.3)],
            *[(WALK, 1000, 12.3), (SOFTMAX, 1000, 12.4), (MIX, 1000, 12.3)],
        ],
    ),
}


def name_of_trial(name: str, row: str, weight: float) -> str:
    """The folder of a row's records."""
    return f"trials/{name}/{row},weight={weight:g}"


def run_trials(jobs: int = 1) -> None:
    """Repeat the first trials, whose settings nobody had chosen, with five seeds."""
    plan = {}
    for name, trial in TRIALS.items():
        regime = Regime(data=trial.data, common={**QUIET, **TWO_LAYER, **trial.common}, begin={}, turns=())
        for row, weight, _ in trial.first:
            options = options_of(regime, row, features(trial.data), {"weight": weight} if weight else {})
            for seed in range(SEEDS):
                plan[f"{name_of_trial(name, row, weight)}/seed-{seed}"] = options.replace(seed=seed)
    run_all(plan, jobs)
