import numpy as np
import pytest
from PIL import Image

from obdsd.data import open_data
from obdsd.data.check import PartSummary, check


@pytest.fixture
def photos(tmp_path):
    random = np.random.default_rng(0)
    for split, classes in (("train", "abc"), ("test", "de")):
        for c in classes:
            for i in range(3 if c != "c" else 1):
                (tmp_path / split / c).mkdir(parents=True, exist_ok=True)
                Image.fromarray(random.integers(0, 256, (40, 40, 3), dtype=np.uint8)).save(tmp_path / split / c / f"{i}.png")
    return tmp_path


def test_a_good_collection_has_no_findings(photos):
    findings = check(open_data(f"folder:{photos}"))
    assert (findings.unreadable, findings.crossing) == ([], [])
    assert findings.parts == [PartSummary("train", 3, 7, 1), PartSummary("test", 2, 6, 0)]


def test_damage_and_copies_across_the_line_are_named(photos):
    (photos / "train/a/0.png").write_bytes((photos / "train/a/0.png").read_bytes()[:900])
    with Image.open(photos / "train/b/1.png") as image:  # the same pixels in another file format
        image.save(photos / "test/d/copy.bmp")
    findings = check(open_data(f"folder:{photos}"))
    assert len(findings.unreadable) == 1
    assert "train/a/0.png: cannot be read as an image" in findings.unreadable[0]
    assert findings.crossing == [("train/train/b/1.png", "test/test/d/copy.bmp")]
    assert findings.parts == [PartSummary("train", 3, 7, 1), PartSummary("test", 2, 7, 0)]


def test_copies_inside_training_are_no_matter(photos):
    (photos / "train/a/again.png").write_bytes((photos / "train/a/1.png").read_bytes())
    assert not check(open_data(f"folder:{photos}")).crossing


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
