"""A file of embeddings as a teacher: whose row is whose, and what is refused."""

import numpy as np
import pytest
import torch

from obdsd.data.collection import collect
from obdsd.data.embeddings import Vectors, write_vectors
from obdsd.data.items import Rows
from obdsd.data.teachers import embeddings
from obdsd.provenance import TrainedOn
from tests.refusing import refused

NAMES = [f"{c}/{i}.jpg" for c in "abc" for i in range(3)]
PART = collect("photos", Rows(np.zeros((9, 2), np.float32), np.array(NAMES)), list("aaabbbccc"), ["train"] * 6 + ["test"] * 3)["train"]
ROWS = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)


@pytest.mark.parametrize("name", ["z.npz", "z.parquet", "z.pt"])
def test_each_item_has_the_unit_row_of_its_name(tmp_path, name):
    """In whatever order, beside rows of other items, and whatever their lengths; an item without a row is not known."""
    order = [7, 3, 0, 8, 1, 5]
    lengths = np.float32([1, 1e30, 1e-36, 1, 0.5, 7])[:, None]
    if name == "z.pt":
        torch.save({"path": [NAMES[place] for place in order], "features": torch.from_numpy(ROWS[order] * lengths)}, tmp_path / name)
    else:
        write_vectors(tmp_path / name, Vectors(ROWS[order] * lengths, names=np.array(NAMES)[order]))
    teacher = embeddings(PART, str(tmp_path / name))
    batch = teacher(None, torch.tensor([5, 4, 3, 2, 1, 0]))
    assert batch.known.tolist() == [True, False, True, False, True, True]
    own = ROWS[[5, 3, 1, 0]].astype(np.float64)
    expected = own / np.sqrt((own**2).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(batch.embeddings[batch.known], expected, rtol=1e-5)
    assert teacher.remarks == [f"2 of the 6 items that train have no row in {tmp_path / name} and are not taught: a/2.jpg, b/1.jpg"]
    assert (teacher.steady, teacher.knows_proxies, teacher.trained_on) == (True, False, None)


def test_a_file_that_has_all_items_knows_them_all_and_says_what_made_it(tmp_path):
    seen = TrainedOn(data="x", split_seed=3, test_fraction=0.5, parts={"train": "f"}, classes={"train": "a b"}, items={"train": "c"})
    for name in ("z.npz", "z.parquet"):
        write_vectors(tmp_path / name, Vectors(ROWS, names=np.array(NAMES), trained_on=seen))
        teacher = embeddings(PART, str(tmp_path / name))
        assert (teacher(None, torch.arange(6)).known, [*teacher.remarks], teacher.trained_on) == (None, [], seen)


@pytest.mark.parametrize("written", ["", "[]", "3", "null", '{"data": "x"}', "[" * 100_000])
def test_what_does_not_say_what_made_it_is_as_good_as_silent(tmp_path, written):
    np.savez(tmp_path / "z.npz", x=ROWS, names=NAMES, obdsd_trained_on=written)
    assert embeddings(PART, str(tmp_path / "z.npz")).trained_on is None


def spoilt(value):
    rows = ROWS.copy()
    rows[[0, 4, 8]] = value  # the last one does not train
    return rows


FEW = "of the 6 items that train, and a teacher needs 2 or more; its names are such as"
DIRECTION = "2 rows hold NaN or infinity, or only zeros (a/0.jpg, b/1.jpg); without such rows their items are not taught, leave them out"
BAD = [
    ({"x": ROWS}, "z.npz: has no column names, path, paths, "),
    ({"x": ROWS, "names": [*NAMES[:8], "a/0.jpg"]}, "z.npz: holds 'a/0.jpg' 2 times; keep one row an item"),
    ({"x": ROWS, "names": [f"/x/{name}" for name in NAMES]}, f"z.npz: has rows of 0 {FEW} '/x/a/0.jpg', the items' such as 'a/0.jpg'"),
    ({"x": ROWS[5:], "names": NAMES[5:]}, f"z.npz: has rows of 1 {FEW} 'b/2.jpg', the items' such as 'a/0.jpg'"),
    ({"x": spoilt(0.0), "names": NAMES}, DIRECTION),
    ({"x": spoilt(np.nan), "names": NAMES}, DIRECTION),
    ({"x": spoilt(np.inf), "names": NAMES}, DIRECTION),
    ({"y": ROWS, "names": NAMES}, "z.npz: has no column embeddings, embedding, features, "),
    ({}, "z.npz: no such file; check the path"),
]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def opened(arrays):
    if arrays:
        np.savez("z.npz", **arrays)
    embeddings(PART, "z.npz")


test_what_cannot_teach_is_refused_in_one_line = refused(BAD, opened)
