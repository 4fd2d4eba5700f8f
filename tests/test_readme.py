"""Every Python block of the README runs, in order, as one reader would type them; its commands exist."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", README.read_text(), flags=re.DOTALL | re.MULTILINE)


@pytest.mark.usefixtures("as_shipped")
def test_every_python_block_runs(capsys):
    assert BLOCKS
    names: dict[str, object] = {}
    for block in BLOCKS:
        exec(compile(block, str(README), "exec"), names)


def test_every_make_target_exists():
    makefile = (README.parent / "Makefile").read_text()
    for target in set(re.findall(r"\bmake ([a-z-]+)", README.read_text())):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
