"""Finished runs as a report reads them: what is on the disk, checked, and one line for a folder that holds no such run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from obdsd.data import Collection
from obdsd.errors import InputError
from obdsd.experiments.comparison import SAME, Comparison, read_result, summarise
from obdsd.files import read_mapping
from obdsd.settings import TrainOptions
from obdsd.training.assembly import collection_of
from obdsd.training.run import data_record
from obdsd.training.runs import RunFolder

REMEDY = "give the folder of a finished obdsd train or obdsd compare"


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A run that is complete; `name` is what a reader calls it."""

    name: str
    folder: RunFolder
    options: TrainOptions
    result: Mapping[str, Any]  # result.json, with per_class.json as "per_class"
    metrics: Sequence[Mapping[str, Any]]  # a line an epoch

    @property
    def last_epoch(self) -> int:
        """Counted from 0; training may have stopped before the last one that was asked for."""
        return int(self.metrics[-1]["epoch"]) if self.metrics else self.options.epochs - 1

    @property
    def recall_of_classes(self) -> dict[str, float]:
        """Recall@1 of each scored class by its name."""
        found = self.result["per_class"]
        return dict(zip(found["labels"], found["recall@1"], strict=True))


def open_runs(folders: Sequence[Path]) -> tuple[list[Finished], Comparison | None]:
    """The runs in these folders; of a comparison alone its first seed of each row, and what the comparison came to."""
    _refuse_unusable(folders)
    if len(folders) == 1 and (folders[0] / "comparison.json").exists():
        return _compared(folders[0])
    runs = [run for folder in folders for run in (_compared(folder)[0] if (folder / "comparison.json").exists() else [_opened(folder)])]
    if len(runs) > 1:
        _check_same_items(runs)
    return _named(runs), None


def open_collection(runs: Sequence[Finished]) -> Collection:
    """The data of all these runs, which must be those that they were trained on."""
    first = runs[0]
    collection = collection_of(first.options)
    if read_mapping(first.folder.path / "run.json").get("data") != data_record(collection):
        raise InputError(f"data={first.options.data} changed since the run in {first.folder.path} was trained; restore it")
    return collection


def _refuse_unusable(folders: Sequence[Path]) -> None:
    """Name every folder that cannot be shown, and why."""
    faults = [f"{folder}: {fault}" for folder in folders if (fault := _fault(folder))]
    if faults:
        raise InputError("; ".join(faults))


def _fault(folder: Path) -> str | None:
    if not folder.is_dir():
        return f"no such folder, {REMEDY}"
    if (folder / "comparison.json").exists():
        return None
    if not (folder / "config.yaml").exists():
        if any(folder.glob("*/seed-*/config.yaml")):
            return "the comparison is not finished (no comparison.json), the same obdsd compare goes on with it"
        return f"holds no run (no config.yaml), {REMEDY}"
    if (folder / "result.json").exists():
        return None
    if (folder / "failure.json").exists():
        return f"its training failed ({read_mapping(folder / 'failure.json').get('fault')}), train it anew"
    return "its training is not finished (no result.json), go on with it by obdsd train --resume"


def _opened(folder: Path, name: str = "") -> Finished:
    config = read_mapping(folder / "config.yaml")
    unknown = sorted(config.keys() - {field.name for field in fields(TrainOptions)})
    if unknown or "data" not in config:
        raise InputError(f"{folder}: config.yaml is of another version of obdsd (option {[*unknown, 'data'][0]}); use that version")
    try:
        result = read_result(folder)
        scored = result["scores"]["recall@1"], result["per_class"]["recall@1"], result["train"]
    except (OSError, json.JSONDecodeError, KeyError) as damage:
        raise InputError(f"{folder}: its result cannot be read ({' '.join(str(damage).split())[:120]}); restore it") from damage
    assert scored
    run = RunFolder(folder, writes=False)
    return Finished(name=name, folder=run, options=TrainOptions(**config), result=result, metrics=run.metrics())


def _compared(out: Path) -> tuple[list[Finished], Comparison]:
    record = read_mapping(out / "comparison.json")
    try:
        names, seeds = [line["name"] for line in record["lines"]], record["seeds"]
    except (KeyError, TypeError) as damage:
        raise InputError(f"{out / 'comparison.json'}: is no comparison of obdsd; {REMEDY}") from damage
    places = {name: [out / name / f"seed-{seed}" for seed in seeds] for name in names}
    _refuse_unusable([place for row in places.values() for place in row])
    runs = [_opened(row[0], name) for name, row in places.items()]
    return runs, summarise({run.name: run.options for run in runs}, seeds, out)


def _check_same_items(runs: Sequence[Finished]) -> None:
    first, *others = runs
    for other in others:
        for name in SAME:
            if name != "ks" and getattr(first.options, name) != getattr(other.options, name):
                raise InputError(
                    f"{first.folder.path} and {other.folder.path} differ in {name}; they were scored on different items, report them apart"
                )


def _named(runs: Sequence[Finished]) -> list[Finished]:
    """By row or preset; with the seed where that is not enough, else by folder."""
    for name_of in (
        lambda run: run.name or run.options.preset,
        lambda run: f"{run.name or run.options.preset}, seed {run.options.seed}",
        lambda run: str(run.folder.path),
    ):
        names = [name_of(run) for run in runs]
        if Counter(names).most_common(1)[0][1] == 1:
            break
    return [replace(run, name=name) for run, name in zip(runs, names, strict=True)]
