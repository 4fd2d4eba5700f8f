"""`obdsd data check` as a user runs it, on trees with everything that can be wrong."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import obdsd
from obdsd.data import open_data
from obdsd.data.check import PartSummary, check


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(obdsd.__file__).parent.parent)}
    command = [sys.executable, "-m", "obdsd", "data", "check", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


@pytest.fixture
def photos(tmp_path):
    random = np.random.default_rng(0)
    for split, classes in (("train", "abc"), ("test", "de")):
        for c in classes:
            for i in range(3 if c != "c" else 1):
                (tmp_path / split / c).mkdir(parents=True, exist_ok=True)
                Image.fromarray(random.integers(0, 256, (40, 40, 3), dtype=np.uint8)).save(tmp_path / split / c / f"{i}.png")
    return tmp_path


def test_a_good_collection_passes(photos):
    result = run(f"folder:{photos}")
    assert (result.returncode, result.stderr) == (0, "")
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[1:3] == [["train", "3", "7", "1"], ["test", "2", "6", "0"]]
    assert result.stdout.endswith("no problem found\n")


def test_damage_and_copies_across_the_line_are_named(photos):
    (photos / "train/a/0.png").write_bytes((photos / "train/a/0.png").read_bytes()[:900])
    with Image.open(photos / "train/b/1.png") as image:  # the same pixels in another file format
        image.save(photos / "test/d/copy.bmp")
    findings = check(open_data(f"folder:{photos}"))
    assert len(findings.unreadable) == 1
    assert "train/a/0.png: cannot be read as an image" in findings.unreadable[0]
    assert findings.crossing == [("train/train/b/1.png", "test/test/d/copy.bmp")]
    assert findings.parts == [PartSummary("train", 3, 7, 1), PartSummary("test", 2, 7, 0)]
    result = run(f"folder:{photos}")
    assert result.returncode == 2
    assert "unreadable: " in result.stdout
    assert "same content in training and test: train/train/b/1.png = test/test/d/copy.bmp" in result.stdout
    assert result.stderr == f"obdsd: folder:{photos}: training on it would be wrong; mend the 2 problems listed\n"


def test_copies_inside_training_are_no_matter(photos):
    (photos / "train/a/again.png").write_bytes((photos / "train/a/1.png").read_bytes())
    assert check(open_data(f"folder:{photos}")).fit


def test_embeddings_are_checked_too(tmp_path):
    rows = np.arange(24, dtype=np.float32).reshape(12, 2)
    rows[11] = rows[0]
    split = ["train"] * 6 + ["test"] * 6
    np.savez(tmp_path / "x.npz", x=rows, y=np.repeat(np.arange(6), 2), split=split)
    assert check(open_data(str(tmp_path / "x.npz"))).crossing == [("train/row 0", "test/row 11")]


def test_progress_counts_every_item(photos):
    counted = []
    check(open_data(f"folder:{photos}"), counted.append)
    assert sum(counted) == 13


def test_an_incomplete_benchmark_is_named_with_all_else(photos):
    for c in (1, 2, 101, 102):
        (photos / "cub" / f"{c:03}.bird").mkdir(parents=True)
        for i in range(2):
            Image.new("RGB", (8, 8), (c, 100 * i, 0)).save(photos / "cub" / f"{c:03}.bird" / f"{i}.png")
        Image.new("RGB", (8, 8), (9, 9, 9)).save(photos / "cub" / f"{c:03}.bird" / "2.png")
    result = run(f"cub200:{photos / 'cub'}")
    assert result.returncode == 2
    assert "incomplete: cub200" in result.stdout
    assert "same content in training and test: " in result.stdout
    result = run("cub200:/nowhere/at/all")
    assert (result.returncode, result.stdout) == (2, "")
