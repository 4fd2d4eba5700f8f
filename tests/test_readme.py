"""Every Python block of the README and of its pages runs, in order, as a reader would type them; the guide's commands run, too."""

import os
import re
import shlex
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import pytest

import obdsd
from benchmarks import scaling
from obdsd import cli
from obdsd.catalogue import TABLES
from obdsd.evaluation import METRICS
from obdsd.presets import preset

README = Path(__file__).parents[1] / "README.md"
DOCS = README.parent / "docs"
GUIDE = DOCS / "guide.md"
SEARCH, MODELS = DOCS / "search.md", DOCS / "models.md"
PAGES = [README, GUIDE, SEARCH, MODELS, *(DOCS / f"{page}.md" for page in ("data", "evaluation", "library"))]


@pytest.mark.usefixtures("as_shipped")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kinds = "python|bash" if page in (GUIDE, SEARCH, MODELS) else "python"
    blocks = re.findall(rf"^```({kinds})\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert {kind for kind, _ in blocks} == {*kinds.split("|")}
    names: dict[str, object] = {}
    with ExitStack() as registered:  # by a page: other tests must not meet it
        for names_of_parts in (METRICS, *(table._homes for table in TABLES.values())):
            registered.enter_context(patch.dict(names_of_parts))
        for kind, block in blocks:
            if kind == "python":
                exec(compile(block, str(page), "exec"), names)
            elif page == GUIDE:
                run_commands(block)
            else:  # in this process, which has imported everything
                assert all(cli.main(shlex.split(command)[1:]) == 0 for command in block.splitlines())
    if page == GUIDE:
        assert all((tmp_path / made).exists() for made in ("runs/first/result.json", "compared/comparison.md", "scores.json"))


def run_commands(block: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(obdsd.__file__).parents[1])}
    for command in block.splitlines():
        words = shlex.split(command)
        assert words[0] == "obdsd"
        result = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, env=environment, check=False)
        assert result.returncode == 0, f"{command}\n{result.stderr}"


def test_the_guides_table_of_defaults_is_that_of_the_presets():
    rows = re.findall(r"^\| (.+?) \| (\d+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|", GUIDE.read_text(), flags=re.MULTILINE)
    assert len(rows) == 5
    for names, *numbers in rows:
        for kind in re.findall(r"`(.+?)`", names) or ["x.npz"]:
            found = preset("ms+obd-sd-softmax", kind + "x" * kind.endswith(":"))
            walk = {"walk_temperature": 1.0, **found.targets.settings}
            assert [found.epochs, found.weight, walk["omega"], walk["walk_temperature"]] == [float(number) for number in numbers], kind


def test_the_library_page_leaves_no_public_name_out():
    page = (DOCS / "library.md").read_text()
    missing = [name for name in obdsd.__all__ if name not in ("__version__", "InputError") and not re.search(rf"\b{name}\b", page)]
    assert missing == []


def test_every_make_target_exists():
    makefile = (README.parent / "Makefile").read_text()
    for target in set(re.findall(r"\bmake ([a-z-]+)", README.read_text())):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_the_scaling_table_is_what_its_command_prints():
    page = (DOCS / "scaling.md").read_text()
    assert f"<!-- scaling -->\n{scaling.table()}\n<!-- end -->" in page
    assert f"about {round(scaling.border(), -3):,} ({round(scaling.border() / scaling.PER_GPU)} GPUs)" in page.replace("\n", " ")
