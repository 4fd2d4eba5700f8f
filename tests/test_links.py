"""Every link inside the pages leads to a file, and to a heading of it, that exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/results/*.md")]


def headings(page: Path) -> set[str]:
    """As a browser of the repository names them: small letters, spaces to hyphens, all else left out."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^#+ (.*)$", prose, flags=re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text()):
        file, _, heading = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), link
        assert not heading or heading in headings(target), link


def test_a_heading_is_found_by_its_name(tmp_path):
    (tmp_path / "page.md").write_text("# Is it, *really*?\n```bash\n# no heading\n```\n## Two-layer head (1,280 → 128)\n")
    assert headings(tmp_path / "page.md") == {"is-it-really", "two-layer-head-1280--128"}
