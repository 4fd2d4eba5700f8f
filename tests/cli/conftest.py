"""A small model and small data, in the folder in which the commands run; and a finished run."""

import io
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image

from obdsd import cli
from obdsd.models import Embedder
from tests.made_up import write_rows

SMALL = ["--epochs", "2", "--batch-size", "12", "--dim", "5", "--device", "cpu", "--evaluate-every", "0", "--no-report"]
CLASSES = {"train": ("ant", "bee"), "query": ("cat", "dog"), "gallery": ("cat", "dog")}


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """`tiny`, a model for images; `head`, one for rows of 6; `list.csv`, 40 images whose splits and groups are mixed."""
    folder = tmp_path_factory.mktemp("made")
    Embedder("tiny-conv", dim=8, seed=3).save(folder / "tiny")
    Embedder("features", features=6, dim=5).save(folder / "head")
    rng = np.random.default_rng(0)
    rows = [(split, name, i) for split, names in CLASSES.items() for name in names for i in range(8 if split == "train" else 6)]
    lines = ["path,label,split,group"]
    for n, row in enumerate(rng.permutation(len(rows))):
        split, name, i = rows[row]
        tint = {"ant": 40, "bee": 90, "cat": 140, "dog": 190}[name]
        Image.fromarray((tint + rng.integers(-30, 31, (32, 32, 3))).astype(np.uint8)).save(folder / f"{name}-{split}-{i}.png")
        lines.append(f"{name}-{split}-{i}.png,{name},{split},camera {n % 3}")
    (folder / "list.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def obdsd(made, monkeypatch, capsys):
    """Run one command in that folder: its exit code and what it printed."""
    monkeypatch.chdir(made)

    def run(*arguments: object) -> tuple[int, str, str]:
        code = cli.main([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def refused(obdsd):
    """The one line that refuses a command."""

    def run(*arguments: object) -> str:
        code, printed, line = obdsd(*arguments)
        assert (code, printed, line[:7], line.count("\n")) == (2, "", "obdsd: ", 1)
        return line.removeprefix("obdsd: ").removesuffix("\n")

    return run


@pytest.fixture(scope="session")
def rows(tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("data") / "rows.npz", 20, 6, 12)


class Trained(NamedTuple):
    """A finished run: the command that made it, its folder, and what it printed."""

    words: list[str]
    folder: Path
    printed: str
    progress: str


@pytest.fixture(scope="session")
def trained(rows, tmp_path_factory):
    """On classes that are split otherwise than usual."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    words = ["train", rows, "--preset", "ms+obd-sd", "--out", str(folder), "--resume", "--seed", "3", "--weight", "3", *SMALL]
    words += ["--split-seed", "7", "--test-fraction", "0.4"]
    with redirect_stdout(io.StringIO()) as printed, redirect_stderr(io.StringIO()) as progress:
        assert cli.main(words) == 0
    return Trained(words, folder, printed.getvalue(), progress.getvalue())
