"""Every Python block of docs/models.md runs, in order, but those that need the network."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)


@pytest.mark.usefixtures("as_shipped")
def test_every_python_block_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert len(BLOCKS) == 5
    names: dict[str, object] = {}
    for block in BLOCKS:
        exec(compile(block, str(PAGE), "exec"), names)
    assert "mean=(127.0, 127.0, 127.0)" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "my-model").iterdir()) == ["model.json", "model.safetensors"]
