"""The runs of a report, their names, and their data: one line names every folder that cannot be shown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from obdsd.data import Collection
from obdsd.errors import InputError
from obdsd.experiments.comparison import SAME, Comparison, read_comparison
from obdsd.experiments.tables import ranked
from obdsd.training import RunRecord
from obdsd.training.build import collection_of
from obdsd.training.run_folder import data_record

MOST = 8
"""Rows of a comparison whose runs are shown one by one."""


def open_runs(folders: Sequence[Path]) -> tuple[dict[str, RunRecord], Comparison | None]:
    """The runs in these folders, by names that tell them apart, and the comparison that they come from if it is one.

    Of each comparison the first seed of every row is shown, of many rows the baseline and the best.
    """
    records: list[tuple[str, RunRecord]] = []
    comparisons, faults = [], []
    for folder in folders:
        try:
            if (folder / "comparison.json").exists():
                rows, comparison = read_comparison(folder)
                comparisons.append(comparison)
                best = {line.name for line in ranked(comparison)[:MOST]}
                records += [(name, row[0]) for name, row in rows.items() if name in best]
            else:
                record = RunRecord.read(folder)
                records.append((record.options.preset, record))
        except InputError as fault:
            faults.append(str(fault))
    if faults:
        raise InputError("; ".join(faults))
    if unscored := [str(record.folder) for _, record in records if not record.scores]:
        raise InputError(f"{unscored[0]}: nothing was scored, so a report has nothing to show; hold classes back with test_fraction=0.5")
    (_, first), *others = records
    for _, other in others:
        for name in SAME:
            if name != "ks" and getattr(first.options, name) != getattr(other.options, name):
                raise InputError(
                    f"{first.folder} and {other.folder} differ in {name}; they were scored on different items, report them apart"
                )
    return _told_apart(records), comparisons[0] if len(folders) == 1 and comparisons else None


def _told_apart(records: Sequence[tuple[str, RunRecord]]) -> dict[str, RunRecord]:
    """By row or preset; by the seed too where that is not enough; else by folder."""
    folders = [str(record.folder) for _, record in records]
    by_row = [name for name, _ in records]
    by_seed = [f"{name}, seed {record.options.seed}" for name, record in records]
    for names in (by_row, by_seed, folders):
        if len(set(names)) == len(records):
            return {name: record for name, (_, record) in zip(names, records, strict=True)}
    raise InputError(f"{next(folder for folder in folders if folders.count(folder) > 1)}: is given twice; give each run once")


def open_collection(record: RunRecord) -> Collection:
    """The data of a run, which must be those that it was trained on."""
    collection = collection_of(record.options.replace(data=record.source))
    if record.data != data_record(collection):
        raise InputError(f"data={record.options.data} changed since the run in {record.folder} was trained; restore it")
    return collection
