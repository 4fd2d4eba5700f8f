"""Every kind of oracle number is read by some test: one that none reads would look like a check and be none."""

import re
from pathlib import Path

TESTS = Path(__file__).parent
PLACES = {"setting": ["cub", "cars", "sop"], "name": ["ms", "margin", "rmargin"], "k": ["1", "2", "4", "8", "10"], "first": ["1", "2", "3"]}
PLACES["key"] = ["intra", "inter", "intra_over_inter"]


def test_every_oracle_key_is_read(reference):
    read = set()
    for file in TESTS.rglob("test_*.py"):
        for template in re.findall(r'reference\[f?"([^"]+)"\]', file.read_text()):
            names = {re.sub(r"^(\{case\}|case\d|metrics\d)/", "", template)}
            for place, values in PLACES.items():
                names = {name.replace(f"{{{place}}}", value) for name in names for value in values}
            read |= names
    assert {key.split("/", 1)[1] for key in reference} - read == set()
