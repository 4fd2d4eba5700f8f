"""The site (make docs) shows what the repository's own pages show, and its reference leaves no public name out."""

import re
from pathlib import Path

import pytest

import obdsd

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(DOCS.glob("*.md"))


def test_the_reference_leaves_no_public_name_out():
    text = "".join(page.read_text() for page in DOCS.glob("reference*.md"))
    shown = set(re.findall(r"^::: obdsd\.(\w+)$", text, flags=re.MULTILINE))
    assert {*obdsd.__all__} - {"__version__"} <= shown
    assert {"objectives", "models", "data", "evaluation", "training", "experiments"} <= shown


def run_into(text: str) -> list[str]:
    """Lists and tables that follow a paragraph without a blank line: mkdocs, unlike others, takes them for a part of it."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"^(?![-|#<:\s]|\d\. ).+\n((?:- |1\. |\|).*)", prose, flags=re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lists_and_tables_stand_apart(page):
    assert run_into(page.read_text()) == []


def test_a_list_without_a_blank_line_is_seen():
    assert run_into("A paragraph:\n- one\n- two\n\nAnother:\n\n| a |\n|---|\n") == ["- one"]
