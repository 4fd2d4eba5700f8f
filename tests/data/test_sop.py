import pytest

from obdsd.data import sop as module
from obdsd.data.benchmarks import Count
from obdsd.data.sop import sop
from tests.data.trees import refused, split_of, touch, write

EBAY = {
    "train": {"1": ["bike/a_0.JPG", "bike/a_1.JPG"], "2": ["sofa/b_0.JPG"], "3": ["sofa/c_0.JPG", "sofa/c_1.JPG"]},
    "test": {"4": ["bike/d_0.JPG", "bike/d_1.JPG"]},
}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Counts of the tree below, so that it is complete."""
    monkeypatch.setattr(module, "COUNTS", {"train": Count(3, 5), "test": Count(1, 2)})


def ebay(root, folder="", skip=()):
    for part, classes in EBAY.items():
        lines = [f"7 {label} 1 {path}" for label, paths in classes.items() for path in paths]
        write(root / folder / f"Ebay_{part}.txt", "image_id class_id super_class_id path", *lines)
        touch(root, *(path for paths in classes.values() for path in paths if path not in skip))


@pytest.mark.parametrize("folder", ["", "Info_Files"])
@pytest.mark.parametrize("parent", ["", "Stanford_Online_Products"])
def test_lists_in_either_place(tmp_path, parent, folder):
    ebay(tmp_path / parent, folder)
    assert split_of(sop(tmp_path)) == EBAY


def test_missing_files(tmp_path):
    ebay(tmp_path, skip=["sofa/b_0.JPG", "bike/d_0.JPG"])
    counts = ("train has 2 classes and 4 images, expected 3 and 5", "test has 1 classes and 1 images, expected 1 and 2")
    with refused(*counts, "1 classes have no files: 2", "2 listed files are missing: sofa/b_0.JPG, bike/d_0.JPG"):
        sop(tmp_path)
    expected = {"train": {"1": EBAY["train"]["1"], "3": EBAY["train"]["3"]}, "test": {"4": ["bike/d_1.JPG"]}}
    assert split_of(sop(tmp_path, allow_incomplete=True)) == expected
