"""The arena: all systems at equal budget on frozen features, each tuned as much on held-out classes, then tested."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from obdsd import arena
from obdsd.experiments.leaving_out import left_out
from obdsd.experiments.timing import relative_time
from obdsd.experiments.tuning import candidates, with_value_of
from obdsd.files import write_json
from obdsd.options import TrainOptions
from obdsd.presets import resolve_with_idle
from study.plan import CUB_224, LETTERS
from study.reading import Rows, Seeds, by_seed, difference_cells, mean_score, of_folds, over_seeds, recall, times_of
from study.records import RESULTS, SCRATCH, locked, records, run_all
from study.search import features, on_folds

GROUNDS = {"arena-cub224": CUB_224, "arena-letters64": LETTERS}
"""Where the records are, and of which features."""
FOR_ALL: dict[str, Any] = {"evaluate_every": 0}
SEEDS, TURNS = 5, 60
VERDICTS = {"better": "better", "undecided": "not told apart", "worse": "worse", "single": "one seed"}


def run_arena(seeds: int = SEEDS, jobs: int = 1) -> None:
    """Train the arena on frozen features of CUB-200-2011 and of the built-in letters: the search, what it chose, the test, and times."""
    for ground in GROUNDS:
        rows = _rows(ground)
        tried = candidates(rows)
        plan = {}
        for row, values in tried.items():
            for value, options in values.items():
                plan |= dict(on_folds(f"{ground}/search/{row}/{value}", options))
        run_all(plan, jobs)
        chosen = _settle(ground, tried)
        settled = {row: with_value_of(options, tried[row][chosen[row]["chosen"]]) for row, options in rows.items()}
        run_all(
            {
                f"{ground}/test/{row}/seed-{seed}": options.replace(seed=seed, reference=row == arena.ROWS[0] and seed == 0)
                for seed in range(seeds)
                for row, options in settled.items()
            },
            jobs,
        )
        _times(ground, settled)


def _rows(ground: str) -> dict[str, TrainOptions]:
    """The rows that can be trained there; of the others the reasons are written down."""
    data = features(GROUNDS[ground])
    entries = arena.entries(data, FOR_ALL, None)
    rows = {name: resolve_with_idle({"data": data, **entry, **FOR_ALL})[0] for name, entry in entries.items()}
    missing = left_out(rows, rows, SCRATCH / ground / "none", arena.without(None), tune=True)
    (RESULTS / ground).mkdir(parents=True, exist_ok=True)
    write_json(RESULTS / ground / "left-out.json", missing)
    return {name: options for name, options in rows.items() if name not in missing}


def _settle(ground: str, tried: dict[str, dict[str, TrainOptions]]) -> dict[str, Any]:
    """Write what the held-out classes chose of each row: Recall@1 there, mean of the folds, of every value."""
    runs, chosen = records(f"{ground}/search"), {}
    for row, values in tried.items():
        means = {value: float(np.mean([recall(run) for run in of_folds(runs, f"{row}/{value}")])) for value in values}
        chosen[row] = {"chosen": max(means, key=lambda value: means[value]), "validation": {each: round(means[each], 6) for each in means}}
    with locked(ground):
        write_json(RESULTS / ground / "chosen.json", chosen)
    return chosen


def _times(ground: str, settled: dict[str, TrainOptions]) -> None:
    """How long a step of each row takes beside one of the plain loss, unless that is known."""
    (_, plain), *others = settled.items()
    for row, options in others:
        if row not in times_of(ground):
            measured = round(relative_time(options, plain, TURNS), 3)
            with locked(ground):
                write_json(RESULTS / ground / "times.json", {**times_of(ground), row: measured})


def arena_table(ground: str) -> Rows | str:
    """All rows by their gain on the test classes, in groups; with the gain that the search gave on held-out classes."""
    found = {row: by_seed(f"{ground}/test/{row}") for row in arena.ROWS}
    tested = {row: seeds for row, seeds in found.items() if seeds}
    if arena.ROWS[0] not in tested:
        return "*Not trained yet: `python -m study arena`.*"
    return _table(ground, tested)


def _table(ground: str, tested: dict[str, Seeds]) -> Rows:
    chosen, times = (json.loads((RESULTS / ground / name).read_text()) for name in ("chosen.json", "times.json"))
    left = json.loads((RESULTS / ground / "left-out.json").read_text())
    baseline = arena.ROWS[0]
    plain = tested[baseline]
    gains = {row: over_seeds(seeds, plain) for row, seeds in tested.items() if row != baseline}
    order = list(VERDICTS)
    yield ["", "beside ms", "chosen", "by it, held-out", "seeds", "R@1", "MAP@R", "R@1 − ms", "over seeds", "over classes", "time"]
    for row in [baseline, *sorted(gains, key=lambda row: (order.index(gains[row].verdict), -gains[row].mean))]:
        entry, seeds = chosen[row], tested[row]
        published, *_ = entry["validation"].values()
        tuned = f"{100 * (entry['validation'][entry['chosen']] - published):+.1f}"
        scores = [f"{mean_score(seeds, score):.1f}" for score in ("R@1", "MAP@R")]
        verdict, time = ("", "1") if row == baseline else (VERDICTS[gains[row].verdict], f"{times[row]:.2f}" if row in times else "")
        yield [row, verdict, entry["chosen"], tuned, str(len(seeds)), *scores, *difference_cells(seeds, plain), time]
    for row, reason in left.items():
        yield [row, "left out", reason, *[""] * 8]
