"""The runs of a report, their names, and their data: one line names every folder that cannot be shown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from obdsd.data import Collection
from obdsd.errors import InputError
from obdsd.experiments.comparison import SAME, Comparison, read_comparison
from obdsd.training import RunRecord
from obdsd.training.build import collection_of
from obdsd.training.run_folder import data_record


class Opened(NamedTuple):
    """The runs that are shown, by names that tell them apart, and the comparison that they come from if it is one."""

    runs: dict[str, RunRecord]
    comparison: Comparison | None


def open_runs(folders: Sequence[Path]) -> Opened:
    """The runs in these folders; of each comparison the first seed of every row."""
    records: list[tuple[str, RunRecord]] = []
    comparisons, faults = [], []
    for folder in folders:
        try:
            if (folder / "comparison.json").exists():
                rows, comparison = read_comparison(folder)
                comparisons.append(comparison)
                records += [(name, row[0]) for name, row in rows.items()]
            else:
                record = RunRecord.read(folder)
                records.append((record.options.preset, record))
        except InputError as fault:
            faults.append(str(fault))
    if faults:
        raise InputError("; ".join(faults))
    _check_same_items([record for _, record in records])
    return Opened(_told_apart(records), comparisons[0] if len(folders) == 1 and comparisons else None)


def open_collection(records: Sequence[RunRecord]) -> Collection:
    """The data of all these runs, which must be those that they were trained on."""
    first = records[0]
    collection = collection_of(first.options)
    if first.data != data_record(collection):
        raise InputError(f"data={first.options.data} changed since the run in {first.folder} was trained; restore it")
    return collection


def _check_same_items(records: Sequence[RunRecord]) -> None:
    first, *others = records
    for other in others:
        for name in SAME:
            if name != "ks" and getattr(first.options, name) != getattr(other.options, name):
                raise InputError(
                    f"{first.folder} and {other.folder} differ in {name}; they were scored on different items, report them apart"
                )


def _told_apart(records: Sequence[tuple[str, RunRecord]]) -> dict[str, RunRecord]:
    """By row or preset; by the seed too where that is not enough; else by folder."""
    for name_of in (
        lambda name, record: name,
        lambda name, record: f"{name}, seed {record.options.seed}",
        lambda name, record: str(record.folder),
    ):
        named = {name_of(name, record): record for name, record in records}
        if len(named) == len(records):
            return named
    folders = [record.folder for _, record in records]
    raise InputError(f"{next(folder for folder in folders if folders.count(folder) > 1)}: is given twice; give each run once")
