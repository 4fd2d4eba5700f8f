"""Runs on the test classes, with the settings that the search chose."""

from __future__ import annotations

from obdsd.experiments.timing import relative_time
from obdsd.files import write_json
from obdsd.options import TrainOptions
from obdsd.training import Trainer
from obdsd.training.build import collection_of
from study.plan import NOISE_ROWS, REGIMES, REPLACED, WALKS, control_of, options_of, rows_of, seeds_of
from study.reading import chosen_of, results_of, times_of
from study.records import RESULTS, add, locked, run_all
from study.search import chosen_options, chosen_point, data_of

TURNS = 60  # steps of each of two rows by which their times are compared


def on_test_classes(regime: str, rows: tuple[str, ...] | None = None, seeds: int = 10, jobs: int = 1) -> None:
    """Train the rows with the chosen settings and score them on the test classes."""
    rows = rows_of(regime) if rows is None else rows
    options = {row: chosen_options(regime, row) for row in rows}
    plan = {
        f"{regime}/test/{row}/seed-{seed}": options[row].replace(seed=seed, reference=row == "ms" and seed == 0)
        for seed in range(seeds)  # seed by seed, so that all rows have the same seeds whenever the work stops
        for row in rows
        if seed in seeds_of(row)
    }
    run_all(plan, jobs)


def noise(regime: str, rows: tuple[str, ...] = NOISE_ROWS, seeds: int = 5, jobs: int = 1) -> None:
    """Train the rows with the chosen settings and more wrong training labels than the regime has."""
    plan = {
        f"{regime}/noise-{share}/{row}/seed-{seed}": chosen_options(regime, row).replace(seed=seed, label_noise=share)
        for seed in range(min(seeds, 5))
        for share in REGIMES[regime].noise
        if share != REGIMES[regime].common.get("label_noise")
        for row in rows
    }
    run_all(plan, jobs)


def equal(regime: str, rows: tuple[str, ...] = tuple(WALKS), seeds: int = 10, jobs: int = 1) -> None:
    """Train controls at the settings of their walk where they chose others: then the walk alone makes the difference."""
    chosen, plan = chosen_of(regime), {}
    for walk in (walk for walk in WALKS if walk in rows and walk in chosen):
        for row in WALKS[walk]:
            point = control_of(REGIMES[regime], row, chosen_point(regime, walk))
            if row in chosen and chosen_point(regime, row) == point:
                print(f"{row} has the settings of {walk} already")
                continue
            options = options_of(REGIMES[regime], row, data_of(regime), {**point, **REGIMES[regime].test})
            plan |= {f"{regime}/equal/{walk}/{row}/seed-{seed}": options.replace(seed=seed) for seed in seeds_of(walk) if seed < seeds}
    run_all(plan, jobs)


def replacement(regime: str, seeds: int = 5, jobs: int = 1) -> None:
    """Draw classes and items of a batch with replacement, as the authors' code does."""
    plan = {
        f"{regime}/replacement/{row}/seed-{seed}": chosen_options(regime, row).replace(seed=seed, replacement=True)
        for seed in range(min(seeds, 5))
        for row in REPLACED
    }
    run_all(plan, jobs)


def untrained(regime: str) -> None:
    """Score heads that were never trained, one for each seed of the test: a row that learned anything is above them."""
    options = options_of(REGIMES[regime], "ms", data_of(regime), {})
    for seed in seeds_of("ms"):
        scores = begun(options.replace(seed=seed)).scoring.final()
        assert scores.per_class is not None
        classes = {"queries": scores.per_class.queries.tolist(), "recall@1": scores.per_class.values["recall@1"].tolist()}
        add(f"{regime}/untrained/seed-{seed}", {"scores": scores.as_dict(), "per_class": classes})


def begun(options: TrainOptions) -> Trainer:
    """A training before its first step."""
    trainer = Trainer(options, collection_of(options))
    trainer.begin(lambda: trainer.model)
    return trainer


def times(regime: str) -> None:
    """Measure how long a step of each tested row takes, relative to one of the plain loss: their steps take turns."""
    plain = chosen_options(regime, "ms")
    tested = [row for row in results_of(regime) if row != "ms"]
    measured = {row: round(relative_time(chosen_options(regime, row), plain, TURNS), 3) for row in tested}
    with locked(regime):  # others may have measured rows that were tested meanwhile
        write_json(RESULTS / regime / "times.json", {**times_of(regime), **measured})
