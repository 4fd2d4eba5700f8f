"""The study's records can be read, their numbers follow from each other, and the pages hold them.

`make test-study` runs the other tests, in study/tests/.
"""

import csv
import json
import math
from dataclasses import fields

import numpy as np
import pytest

from benchmarks import harness
from obdsd.experiments import tables as comparison_tables
from obdsd.experiments.comparison import Line
from obdsd.experiments.statistics import Interval
from obdsd.files import read_lines
from study import arena, numbers, reading, records, tables, walk
from study.plan import REGIMES, ROWS, TITLES

FILES = sorted(records.RESULTS.glob(f"*/{records.RUNS}"))


def test_every_record_is_there_and_whole():
    runs = {file.parent.name: records.records(file.parent.name) for file in FILES}
    assert runs.keys() <= {*REGIMES, *arena.GROUNDS, "beginnings", "trials", "variants"}
    assert {*TITLES, "glyphs", "beginnings", "trials", "variants"} <= runs.keys()
    assert sum(map(len, runs.values())) >= 2988
    for regime in runs.values():
        assert list(regime) == sorted(regime)
        assert all(0 < reading.recall(record) < 1 for record in regime.values())
        assert all(record["curve"] for name, record in regime.items() if not name.startswith("untrained/"))


def test_names_of_files_are_ascii_and_few():
    names = [str(file.relative_to(records.ROOT)) for file in records.RESULTS.rglob("*")]
    assert all(name.isascii() and not {*" ,"} & {*name} for name in names)
    assert len(names) < 200  # not a file a run


def test_rows_of_the_records_are_those_of_the_plan():
    for regime in REGIMES:
        assert {name.split("/")[0] for name in records.records(f"{regime}/test")} <= {*ROWS}


@pytest.mark.parametrize(
    "table", ["headline:regimes", "noise:glyphs-noise", "beginnings:both", "variants:linear", "reproduction:manifolds"]
)
def test_a_table_of_a_page_is_made_from_the_records(table):
    block = f"<!-- table {table} -->\n<!-- end -->"
    pages = [page.read_text() for page in tables.PAGES]
    assert sum(tables.filled(block) in page for page in pages) == 1


def test_the_numbers_in_the_sentences_of_the_results_are_those_of_the_records():
    text = (records.ROOT / "docs" / "results.md").read_text()
    assert numbers.filled(text) == text
    assert numbers.unmarked(text) == []


def test_the_record_of_the_walk_is_of_the_models_that_the_script_measures():
    who = [name.split(", ")[:2] for name in json.loads((records.RESULTS / "walk.json").read_text())]
    assert who == [["features"], *([head, name] for head, (_, rows) in walk.HEADS.items() for name in ("untrained", *rows))]


def interval(entry):
    return entry and Interval(*(math.nan if entry[name] is None else entry[name] for name in Interval._fields))


def line_of(entry):
    """A line of comparison.json as `obdsd.experiments` has it."""
    means, differences = ({name: interval(each) for name, each in (entry[side] or {}).items()} for side in ("means", "differences"))
    return Line(
        **{**entry, "means": means, "differences": differences or None, "over_classes": interval(entry["over_classes"]), "folders": []}
    )


@pytest.mark.parametrize("file", sorted(records.RESULTS.glob("*/comparison.json")), ids=lambda file: file.parent.name)
def test_the_tables_of_a_comparison_follow_from_its_numbers(file):
    rows = [comparison_tables.cells(line_of(entry)) for entry in json.loads(file.read_text())["lines"]]
    with file.with_suffix(".csv").open(newline="") as table:
        assert list(csv.reader(table))[1:] == rows
    assert (
        comparison_tables.markdown_table([[], *rows]).splitlines()[2:]
        == file.with_suffix(".md").read_text().splitlines()[2 : 2 + len(rows)]
    )


def test_the_numbers_of_a_record_follow_from_each_other():
    """All runs: Recall@1 is that of the classes, weighted by their queries; density is a ratio; the last epoch is that of the curve."""
    runs = [run for file in FILES for run in records.records(file.parent.name).values()]
    for run in [*runs, *read_lines(records.RESULTS / "reproduction" / "results.jsonl")]:
        queries, recalls, scores = run["per_class"]["queries"], run["per_class"]["recall@1"], run["scores"]
        assert sum(queries) == scores["queries"]
        assert np.average(recalls, weights=queries) == pytest.approx(scores["recall@1"], abs=2e-6)
        for space in (scores, run.get("train") or {}):
            if space.get("density") is not None:
                assert space["intra"] / space["inter"] == pytest.approx(space["density"], rel=2e-5)
        last = (run.get("curve") or [{}])[-1]
        for part in ("train", "validation"):
            if part in last and last["epoch"] == run["epoch"]:
                assert last[part] == pytest.approx(run[part])


@pytest.mark.parametrize("file", sorted(harness.RESULTS.glob("*.json")), ids=lambda file: file.stem)
def test_the_tables_of_a_benchmark_follow_from_its_measurements(file):
    content = json.loads(file.read_text())
    known = [field.name for field in fields(harness.Measurement)]
    measured = [{"memory_goal": None, **{name: each[name] for name in each if name in known}} for each in content.get("measurements", [])]
    for line in harness.table([harness.Measurement(**each) for each in measured])[2:]:
        assert line in file.with_suffix(".md").read_text().splitlines()
    page = (records.ROOT / "docs" / "models.md").read_text()
    assert all(f"{each['recall@1']:.2f} %" in page for each in content.get("results", []))
