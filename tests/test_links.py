"""Links inside the pages lead somewhere; the site (make docs) shows what the repository shows, and leaves no public name out."""

import re
from pathlib import Path

import pytest

import obdsd

ROOT = Path(__file__).parents[1]
DOCS = sorted(ROOT.glob("docs/*.md"))
PAGES = [*ROOT.glob("*.md"), *DOCS, *ROOT.glob("benchmarks/results/*.md")]


def prose(text: str) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def headings(text: str) -> set[str]:
    """As a browser of the repository names them: small letters, spaces to hyphens, all else left out."""
    titles = re.findall(r"^#+ (.*)$", prose(text), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def run_into(text: str) -> list[str]:
    """Lists and tables that follow a paragraph without a blank line: mkdocs, unlike others, takes them for a part of it."""
    return re.findall(r"^(?![-|#<:\s]|\d\. ).+\n((?:- |1\. |\|).*)", prose(text), flags=re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere_and_lists_stand_apart(page):
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text()):
        file, _, heading = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), link
        assert not heading or heading in headings(target.read_text()), link
    assert page not in DOCS or run_into(page.read_text()) == []


def test_the_reference_leaves_no_public_name_out():
    text = "".join(page.read_text() for page in DOCS if page.name.startswith("reference"))
    shown = set(re.findall(r"^::: obdsd\.(\w+)$", text, flags=re.MULTILINE))
    assert {*obdsd.__all__} - {"__version__", "method"} <= shown  # the names of that room are there one by one
    assert {"objectives", "models", "data", "evaluation", "training", "experiments"} <= shown
