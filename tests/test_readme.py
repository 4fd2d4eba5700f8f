"""Every Python block of the README and of its pages runs, in order, as a reader would type them; make targets exist."""

import re
from pathlib import Path
from unittest.mock import patch

import pytest

import obdsd
from benchmarks import scaling
from obdsd.evaluation import METRICS

README = Path(__file__).parent.parent / "README.md"
PAGES = [README, *(README.parent / "docs" / f"{page}.md" for page in ("data", "models", "evaluation", "library"))]


@pytest.mark.usefixtures("as_shipped")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_python_block_runs(page, tmp_path, monkeypatch):
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert blocks
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    with patch.dict(METRICS):  # a page may register one
        for block in blocks:
            exec(compile(block, str(page), "exec"), names)


def test_the_library_page_leaves_no_public_name_out():
    page = (README.parent / "docs" / "library.md").read_text()
    missing = [name for name in obdsd.__all__ if name not in ("__version__", "InputError") and not re.search(rf"\b{name}\b", page)]
    assert missing == []


def test_every_make_target_exists():
    makefile = (README.parent / "Makefile").read_text()
    for target in set(re.findall(r"\bmake ([a-z-]+)", README.read_text())):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_the_scaling_table_is_what_its_command_prints():
    page = (Path(__file__).parent.parent / "docs" / "scaling.md").read_text()
    assert f"<!-- scaling -->\n{scaling.table()}\n<!-- end -->" in page
    assert f"about {round(scaling.border(), -3):,} ({round(scaling.border() / scaling.PER_GPU)} GPUs)" in page.replace("\n", " ")
