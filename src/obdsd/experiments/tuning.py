"""Each row's main setting, chosen on held-out training classes by the same small search for all rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from obdsd.arena import candidates_of, main_of
from obdsd.convert import fits
from obdsd.errors import InputError
from obdsd.experiments.search import FOLDS, SEARCH_SEED, search
from obdsd.files import read_mapping, write_json
from obdsd.options import TrainOptions
from obdsd.terminal import Count

CHOSEN = "chosen.json"
SEARCH = "search"  # the folder of the search's runs


def candidates(rows: Mapping[str, TrainOptions]) -> dict[str, dict[str, TrainOptions]]:
    """What is compared for each row: a few values of its main setting, all with as little beside the training as there can be."""
    found = {}
    for name, options in rows.items():
        try:
            quiet = options.replace(reference=False, test_every=0, rerank="none")
            found[name] = candidates_of(quiet)
        except InputError as fault:
            raise InputError(f"row {name}: {fault}") from fault
    return found


def runs_of(tried: Mapping[str, Mapping[str, TrainOptions]]) -> int:
    """How many runs the search takes."""
    return sum(map(len, tried.values())) * len(FOLDS)


Recalls = Mapping[str, Sequence[float]]  # by ROW/VALUE, the Recall@1 of its runs on held-out classes


def tune(rows: Mapping[str, TrainOptions], out: Path, *, jobs: int, show: bool, keep_going: bool, count: Count) -> dict[str, TrainOptions]:
    """The rows with the value of their main setting that did best on the held-out classes; `chosen.json` in `out` tells of all."""

    def recalls_of(plan: Mapping[str, TrainOptions]) -> Recalls:
        return search(plan, FOLDS, [SEARCH_SEED], out / SEARCH, jobs=jobs, show=show, keep_going=keep_going, count=count)

    settled, chosen = settle(rows, recalls_of)
    write_json(out / CHOSEN, chosen)
    return settled


def settle(
    rows: Mapping[str, TrainOptions], recalls_of: Callable[[Mapping[str, TrainOptions]], Recalls]
) -> tuple[dict[str, TrainOptions], dict[str, Any]]:
    """The rows with their main setting chosen, and what each value came to.

    The baseline's is chosen first. If that is the learning rate, rows that have the baseline's go on from the one that was chosen: else
    a baseline at a good rate would stand beside others at a bad one.
    """
    baseline, *others = rows
    settled, chosen = dict(rows), {}
    for names in ([baseline], others):
        for name in names:
            if rows[name].lr == rows[baseline].lr:
                settled[name] = rows[name].replace(lr=settled[baseline].lr)
        tried = candidates({name: settled[name] for name in names})
        recalls = recalls_of({f"{name}/{value}": options for name, values in tried.items() for value, options in values.items()})
        for name, values in tried.items():
            best = max(values, key=lambda value: np.mean(recalls[f"{name}/{value}"]))
            settled[name] = with_value_of(settled[name], values[best])
            chosen[name] = {"chosen": best, "validation": {value: recalls[f"{name}/{value}"] for value in values}}
    return settled, chosen


def with_value_of(options: TrainOptions, best: TrainOptions) -> TrainOptions:
    """A row with the main setting of another."""
    kind = main_of(options)[0].partition(".")[0]
    return options.replace(**{kind: getattr(best, kind)})


def read_chosen(out: Path) -> dict[str, str]:
    """What the search in a folder chose for each row, as `weight=10`; nothing where there was none."""
    found: Any = read_mapping(out / CHOSEN) if (out / CHOSEN).exists() else {}
    if not fits(found, Mapping[str, Mapping[str, Any]]) or not all(isinstance(each.get("chosen"), str) for each in found.values()):
        raise InputError(f"{out / CHOSEN}: holds other things than chosen settings; remove it, and the same obdsd compare writes it anew")
    return {name: each["chosen"] for name, each in found.items()}
