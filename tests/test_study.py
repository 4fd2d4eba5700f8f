"""The study's records can be read, and the pages hold their numbers. `make test-study` runs the other tests, in study/tests/."""

import json

import pytest

from study import reading, records, tables, walk
from study.plan import REGIMES, ROWS

FILES = sorted(records.RESULTS.glob(f"*/{records.RUNS}"))


def test_every_record_is_there_and_whole():
    runs = {file.parent.name: records.records(file.parent.name) for file in FILES}
    assert runs.keys() == {*REGIMES, "beginnings", "trials", "variants"}
    assert sum(map(len, runs.values())) >= 2988
    for regime in runs.values():
        assert list(regime) == sorted(regime)
        assert all(0 < reading.recall(record) < 1 for record in regime.values())
        assert all(record["curve"] for name, record in regime.items() if not name.startswith("untrained/"))


def test_names_of_files_are_ascii_and_few():
    names = [str(file.relative_to(records.ROOT)) for file in records.RESULTS.rglob("*")]
    assert all(name.isascii() and not {*" ,"} & {*name} for name in names)
    assert len(names) < 100


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


def test_the_record_of_the_walk_is_of_the_models_that_the_script_measures():
    who = [name.split(", ")[:2] for name in json.loads((records.RESULTS / "walk.json").read_text())]
    assert who == [["features"], *([head, name] for head, (_, rows) in walk.HEADS.items() for name in ("untrained", *rows))]
