"""Several settings, several seeds, one table: every run once, finished ones not repeated, interrupted ones continued."""

from __future__ import annotations

import dataclasses
import itertools
import json
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from obdsd.errors import InputError, Terminated
from obdsd.evaluation import metrics
from obdsd.evaluation.metrics import Metric
from obdsd.experiments.statistics import Interval, class_interval, t_interval
from obdsd.files import read_mapping
from obdsd.settings import TrainOptions
from obdsd.training import train
from obdsd.training.assembly import collection_of
from obdsd.training.run import data_record
from obdsd.training.runs import OF_THE_COMMAND, OF_THE_MACHINE
from obdsd.training.stopping import Stop

SAME = ("data", "split_seed", "test_fraction", "val_fraction", "val_fold", "score", "ks", "allow_incomplete")
"""Options that all rows share: they say what is scored."""


def _value(result: Mapping[str, Any], of: Metric) -> float:
    """A metric's value in a result: that of the training set where it is measured there, as in the paper."""
    value = result["train" if of.on_training_set else "scores"].get(of.name)
    return float("nan") if value is None else value


METRICS: dict[str, Callable[[Mapping[str, Any]], float]] = {
    entry.name: partial(_value, of=entry) for entry in metrics.METRICS.values() if entry.compared
}
"""Read from a result."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One row of the table. Differences are to the baseline, paired by seed; the baseline itself has none."""

    name: str
    means: dict[str, Interval]
    differences: dict[str, Interval] | None
    over_classes: Interval | None  # recall@1, bootstrap over test classes
    time_ratio: float
    folders: list[Path]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What the runs came to; the first line is the baseline."""

    lines: list[Line]
    seeds: list[int]
    data: str
    epochs: str
    scored: str  # test or validation classes
    reference: dict[str, float]  # recall@1 of the untrained features, where there are any


def compare(rows: Mapping[str, TrainOptions], seeds: Sequence[int], out: Path, *, jobs: int = 1, show: bool = True) -> Comparison:
    """Train each row with each seed, in `out/ROW/seed-N`, and compare all rows with the first.

    Whatever is finished there already, with the same options, is read and not repeated; what was interrupted goes on.
    """
    plan = {
        (name, seed): replace(options, seed=seed, out=str(out / name / f"seed-{seed}")) for seed in seeds for name, options in rows.items()
    }
    _check_comparable(rows)
    carry_out(plan, jobs, show)
    return summarise(rows, seeds, out)


def _check_comparable(rows: Mapping[str, TrainOptions]) -> None:
    """Rows must be scored on the same classes, and differ in something."""
    (baseline, first), *others = rows.items()
    for name, options in others:
        for field in SAME:
            if getattr(options, field) != getattr(first, field):
                raise InputError(f"rows {baseline} and {name} differ in {field}; they would be scored on different classes, make it equal")
    named = {name: replace(options, preset=TrainOptions.preset) for name, options in rows.items()}
    for (one, options), (other, others_options) in itertools.combinations(named.items(), 2):
        if options == others_options:
            raise InputError(f"rows {one} and {other} have the same settings; there is nothing to compare")


def carry_out(
    plan: Mapping[tuple[Any, ...], TrainOptions], jobs: int, show: bool, then: Callable[[tuple[Any, ...]], None] | None = None
) -> None:
    """Every run of a plan, `jobs` at a time; finished ones are not repeated, interrupted ones go on. `then` is told of each that ends."""
    due = {key: todo for key, options in plan.items() if (todo := _left_to_do(options)) is not None}
    for number, key in enumerate(_in_turn(due, show) if jobs == 1 else _side_by_side(due, jobs), start=1):
        _say(show, f"finished {number} of {len(due)}: {', '.join(map(str, key))}")
        if then is not None:
            then(key)


def _left_to_do(options: TrainOptions) -> TrainOptions | None:
    """The options to run with: anew, resumed, or None if the run is there."""
    assert options.out is not None
    folder = Path(options.out)
    if not (folder / "config.yaml").exists():
        return options
    before = {**dataclasses.asdict(TrainOptions(options.data)), **read_mapping(folder / "config.yaml")}  # it may be older than an option
    for name, value in dataclasses.asdict(options).items():
        if name not in (*OF_THE_MACHINE, *OF_THE_COMMAND) and before[name] != value:
            raise InputError(f"{folder} holds a run with {name}={before[name]}, not {value}; choose another out or remove it")
    if read_mapping(folder / "run.json").get("data") != data_record(collection_of(options)):
        raise InputError(f"{folder} holds a run on other data than {options.data} holds now; choose another out or remove it")
    return None if (folder / "result.json").exists() else replace(options, resume=True)


def _in_turn(due: Mapping[tuple[Any, ...], TrainOptions], show: bool) -> Iterator[tuple[Any, ...]]:
    for number, (key, options) in enumerate(due.items(), start=1):
        _say(show, f"run {number} of {len(due)}: {', '.join(map(str, key))}")
        train(options, show=show)
        yield key


def _side_by_side(due: Mapping[tuple[Any, ...], TrainOptions], jobs: int) -> Iterator[tuple[Any, ...]]:
    """Each run in a process of a pool, with its share of the cores."""
    threads = max(1, (os.cpu_count() or 1) // jobs)
    with Stop(), ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _begin_worker, (threads,)) as pool:
        under_way = {pool.submit(_train_quietly, options): key for key, options in due.items()}
        try:
            for future in as_completed(under_way):
                future.result()
                yield under_way[future]
        except BrokenProcessPool:
            raise Terminated("the process of a run was ended from outside; the same command goes on with what is left") from None
        except (KeyboardInterrupt, Terminated, InputError):  # one fault ends them all, now and not when the others are through
            for worker in multiprocessing.active_children():
                worker.terminate()  # each finishes its step and keeps its state
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def _begin_worker(threads: int) -> None:
    """A share of the cores; and when the comparison is gone, killed without a word, its trainings go too."""
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the comparison, which tells its workers
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(parent: int) -> None:
    connection.wait([parent])
    os.kill(os.getpid(), signal.SIGTERM)


def _train_quietly(options: TrainOptions) -> None:
    try:
        train(options, show=False)
    except InputError as fault:
        raise InputError(f"{options.out}: {fault}") from None
    except (KeyboardInterrupt, Terminated):
        os._exit(Terminated.CODE)  # its state is kept, and it must not take another run


def _say(show: bool, text: str) -> None:
    if show:
        print(text, file=sys.stderr, flush=True)


def summarise(rows: Mapping[str, TrainOptions], seeds: Sequence[int], out: Path) -> Comparison:
    """The comparison of finished runs."""
    results = {name: [read_result(out / name / f"seed-{seed}") for seed in seeds] for name in rows}
    baseline = next(iter(rows))
    values = {
        name: {metric: np.array([of(result) for result in found]) for metric, of in METRICS.items()} for name, found in results.items()
    }
    seconds = {name: np.array([result["seconds"] for result in found]) for name, found in results.items()}
    lines = []
    for name in rows:
        differences, over_classes = None, None
        if name != baseline:
            differences = {metric: t_interval(values[name][metric] - values[baseline][metric]) for metric in METRICS}
            over_classes = class_interval(*class_differences(results[name], results[baseline]))
        lines.append(
            Line(
                name=name,
                means={metric: t_interval(values[name][metric]) for metric in METRICS},
                differences=differences,
                over_classes=over_classes,
                time_ratio=float(np.median(seconds[name] / seconds[baseline])),
                folders=[out / name / f"seed-{seed}" for seed in seeds],
            )
        )
    first = results[baseline][0]
    reference = {name: scores["recall@1"] for name, scores in (first["reference"] or {}).items()}
    chosen = sorted({result["chosen_by"] for found in results.values() for result in found})
    options = rows[baseline]
    epochs = ", ".join(chosen)
    return Comparison(lines=lines, seeds=list(seeds), data=options.data, epochs=epochs, scored=options.score, reference=reference)


def read_result(folder: Path) -> dict[str, Any]:
    """What a finished run came to, with its classes."""
    return {**json.loads((folder / "result.json").read_text()), "per_class": json.loads((folder / "per_class.json").read_text())}


def class_differences(
    ours: Sequence[Mapping[str, Any]], theirs: Sequence[Mapping[str, Any]]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Each class's mean over seeds of the difference of its recall, and its number of queries."""
    recalls = [np.array([result["per_class"]["recall@1"] for result in side]) for side in (ours, theirs)]
    return (recalls[0] - recalls[1]).mean(axis=0), np.array(ours[0]["per_class"]["queries"])
