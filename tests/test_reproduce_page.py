"""docs/reproduce.md says where every system lives: the files, rows, tests and presets that it names are there."""

import re
from pathlib import Path

from obdsd.catalogue import SYSTEMS, TARGETS, TEACHERS
from obdsd.experiments.recipes import TABLES

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reproduce.md"


def systems():
    """The cells of the table of systems, a list a row."""
    text = PAGE.read_text().split("## Every system")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    assert rows[0][0] == "system of the paper"
    return rows[1:]


def test_what_the_page_names_is_there():
    assert len(systems()) >= 20
    for system, _, code, rows, tests in systems():
        for path in re.findall(r"`([\w/.]+)`", code):
            assert (ROOT / "src" / "obdsd" / path).exists(), f"{system}: {path}"
        first = re.findall(r"`([\w/.]+)`", tests)[0]
        for path in re.findall(r"`([\w/.]+)`", tests):
            places = [ROOT / "tests" / path, (ROOT / "tests" / first).parent / path]
            assert any(place.exists() for place in places), f"{system}: {path}"
        table, _, names = rows.partition(": ")
        for name in table.split(", "):
            assert name in TABLES, f"{system}: {name}"
        known = {row.name for row in TABLES[table.split(", ")[0]].rows("cub200")}
        assert set(filter(None, names.split(", "))) <= known, system


def test_no_part_and_no_table_are_missing_from_the_page():
    listed = " ".join(cell for row in systems() for cell in row)
    not_the_papers = {"none", "frozen", "features", "embeddings", "classes", "balanced", "affine", "standard", "class-mates", "soft-labels"}
    not_the_papers |= {"kernel", "global-kernel"}
    tables = (TEACHERS, TARGETS, SYSTEMS)
    built_in = {name for table in tables for name in table.names if table.find(name).__module__.startswith("obdsd.")}
    for name in (built_in | {*TABLES}) - not_the_papers:
        assert name in listed, name
