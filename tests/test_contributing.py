"""CONTRIBUTING.md names places that exist, every room, and a way to add every kind of part."""

import re
from pathlib import Path

from obdsd.catalogue import TABLES

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()


def test_places_exist():
    places = re.findall(r"`((?:src|tests|docs|benchmarks|study)/[\w/.-]*|\w+\.(?:py|txt|md))`", PAGE)
    assert len(places) > 30
    for place in places:
        assert "NAME" in place or (ROOT / place).exists() or (ROOT / "src/obdsd" / place).exists(), place


def test_names_in_files_are_there():
    for name, file in (
        ("COMMANDS", "src/obdsd/cli/__init__.py"),
        ("TABLES", "src/obdsd/experiments/recipes.py"),
        ("EXPECTED", "tests/experiments/rows_by_hand.py"),
        ("_SAMPLERS", "src/obdsd/objectives/samplers.py"),
    ):
        assert f"`{name}`" in PAGE
        assert re.search(rf"^{name}\b", (ROOT / file).read_text(), flags=re.MULTILINE)


def test_every_room_and_every_make_target_is_there():
    rooms = [path.name for path in (ROOT / "src/obdsd").iterdir() if (path / "__init__.py").exists()]
    assert [room for room in rooms if f"| `src/obdsd/{room}` |" not in PAGE] == []
    targets = re.findall(r"^make ([\w-]+)", PAGE, flags=re.MULTILINE)
    assert targets
    assert [target for target in targets if not re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)] == []


def test_every_kind_of_part_has_a_row():
    rows = {
        "loss": "a base loss",
        "teacher": "a teacher",
        "targets": "targets",
        "matching": "a matching",
        "system": "a system",
        "data": "a data set",
        "rerank": "a re-ranker",
    }
    assert rows.keys() == TABLES.keys()
    for row in (*rows.values(), "a metric"):
        assert f"\n| {row} |" in PAGE
