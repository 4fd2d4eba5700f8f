"""`obdsd data check`, on trees with everything that can be wrong."""

import numpy as np
import pytest
from PIL import Image

from obdsd import cli


@pytest.fixture
def photos(tmp_path):
    random = np.random.default_rng(0)
    for folder in ("train/a", "train/b", "test/c", "test/d"):
        (tmp_path / folder).mkdir(parents=True)
        for i in range(2):
            Image.fromarray(random.integers(0, 256, (40, 40, 3), dtype=np.uint8)).save(tmp_path / folder / f"{i}.png")
    return tmp_path


def test_a_good_collection_passes(photos, capsys):
    assert cli.main(["data", "check", f"folder:{photos}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[1:3]] == [["train", "2", "4", "0"], ["test", "2", "4", "0"]]
    assert lines[-1] == "no problem found"


def test_damage_and_copies_across_the_line_are_named(photos, capsys):
    (photos / "train/a/0.png").write_bytes((photos / "train/a/0.png").read_bytes()[:900])
    with Image.open(photos / "train/b/1.png") as image:  # the same pixels in another file format
        image.save(photos / "test/d/copy.bmp")
    assert cli.main(["data", "check", f"folder:{photos}"]) == 2
    printed = capsys.readouterr()
    assert "unreadable: " in printed.out
    assert "same content in training and test: train/train/b/1.png = test/test/d/copy.bmp" in printed.out
    assert printed.err == f"obdsd: folder:{photos}: training on it would be wrong; mend the 2 problems listed\n"


def test_an_incomplete_benchmark_is_named_with_all_else(tmp_path, capsys):
    for c in (1, 2, 101, 102):
        (tmp_path / f"{c:03}.bird").mkdir()
        for i in range(2):
            Image.new("RGB", (8, 8), (c, 100 * i, 0)).save(tmp_path / f"{c:03}.bird" / f"{i}.png")
        Image.new("RGB", (8, 8), (9, 9, 9)).save(tmp_path / f"{c:03}.bird" / "2.png")
    assert cli.main(["data", "check", f"cub200:{tmp_path}"]) == 2
    printed = capsys.readouterr().out
    assert "incomplete: cub200" in printed
    assert "same content in training and test: " in printed
    assert cli.main(["data", "check", "cub200:/nowhere/at/all"]) == 2
    assert capsys.readouterr().out == ""
