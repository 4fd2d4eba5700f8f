"""The guide, as a reader would follow it: its blocks in order, its commands in a shell."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import obdsd
from obdsd.presets import preset

GUIDE = Path(__file__).parent.parent / "docs" / "guide.md"


@pytest.mark.usefixtures("as_shipped")
def test_every_block_and_every_command_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```(python|bash)\n(.*?)^```", GUIDE.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert {kind for kind, _ in blocks} == {"python", "bash"}
    names: dict[str, object] = {}
    environment = {**os.environ, "PYTHONPATH": str(Path(obdsd.__file__).parent.parent)}
    for kind, block in blocks:
        if kind == "python":
            exec(compile(block, str(GUIDE), "exec"), names)
            continue
        for command in block.splitlines():
            words = shlex.split(command)
            assert words[0] == "obdsd"
            result = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, env=environment, check=False)
            assert result.returncode == 0, f"{command}\n{result.stderr}"
    assert (tmp_path / "runs" / "first" / "result.json").exists()
    assert (tmp_path / "compared" / "comparison.md").exists()
    assert (tmp_path / "scores.json").exists()


def test_the_table_of_defaults_is_that_of_the_presets():
    rows = re.findall(r"^\| (.+?) \| (\d+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|", GUIDE.read_text(), flags=re.MULTILINE)
    assert len(rows) == 5
    for names, *numbers in rows:
        for kind in re.findall(r"`(.+?)`", names) or ["x.npz"]:
            found = preset("ms+obd-sd-softmax", kind + "x" * kind.endswith(":"))
            walk = {"walk_temperature": 1.0, **found.targets.settings}
            assert [found.epochs, found.weight, walk["omega"], walk["walk_temperature"]] == [float(number) for number in numbers], kind
