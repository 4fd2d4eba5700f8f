"""Small trainings, made-up records, and the cells of a table."""

import json

from obdsd.presets import preset
from study import records


def interrupt(*_):
    raise KeyboardInterrupt


def small(rows, name="ms+psd", **changes):
    """A training of a second."""
    usual = {"epochs": 4, "batch_size": 8, "dim": 4, "evaluate_every": 0, "reference": False, "device": "cpu"}
    return preset(name, rows, **{**usual, **changes})


def write(name, recall):
    """Record a run that reached this Recall@1."""
    per_class = {"queries": [10], "recall@1": [recall]}
    scores = {"recall@1": recall, "map@r": recall / 10}
    records.add(name, {"scores": scores, "per_class": per_class, "train": {"spectral-decay": recall / 2}})


def write_rows_of(folder, recalls):
    """Record runs of a stage of a regime: for each row the Recall@1 of seeds 0, 1, …"""
    for row, values in recalls.items():
        for seed, recall in enumerate(values):
            write(f"{folder}/{row}/seed-{seed}", recall)


def write_chosen(places, regime, settings, validation=None):
    """Write `chosen.json` with these settings by row."""
    chosen = {row: {"validation": (validation or {}).get(row, 0.5), "settings": point} for row, point in settings.items()}
    (places / "results" / regime / "chosen.json").write_text(json.dumps(chosen))


def cells_of(table):
    """The rows of a table below its header."""
    return [*table][1:]
