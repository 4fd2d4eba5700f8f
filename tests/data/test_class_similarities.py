"""A file of similarities between classes as a teacher: whose class is whose row, and what is refused."""

import csv
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch

from obdsd.data.class_similarities import classes
from obdsd.data.collection import collect
from obdsd.data.items import Rows
from obdsd.data.teachers import OtherRows
from tests.refusing import refused

NAMES = ["wren", "gull, herring", "owl", "tern"]  # the last one does not train
LABELS = ["owl", "wren", "owl", "gull, herring", "wren", "gull, herring", "tern", "tern"]
PART = collect("birds", Rows(np.zeros((8, 2), np.float32), np.arange(8).astype(str)), LABELS, ["train"] * 6 + ["test"] * 2)["train"]
VECTORS = np.random.default_rng(0).normal(size=(4, 7))
VECTORS /= np.linalg.norm(VECTORS, axis=1, keepdims=True)
Q = VECTORS @ VECTORS.T
ITEMS = np.array([NAMES.index(name) for name in LABELS[:6]])


def write(path, names=NAMES, similarity=Q, corner="", column=None):
    """A table as pandas writes it, or arrays."""
    if path.suffix == ".npz":
        np.savez(path, names=np.array(names), similarity=similarity)
    elif path.suffix == ".parquet":
        columns = {name: similarity[:, place] for place, name in enumerate(names)}
        pyarrow.parquet.write_table(pyarrow.table({**columns, column or "__index_level_0__": names}), path)
    else:
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([[corner, *names], *([name, *row] for name, row in zip(names, similarity.tolist(), strict=True))])


@pytest.mark.parametrize("name", ["q.npz", "q.csv", "q.parquet"])
@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 1, 0, 2]])
def test_items_are_as_alike_as_their_classes(tmp_path, name, order):
    path = tmp_path / name
    write(path, [NAMES[place] for place in order], Q[np.ix_(order, order)])
    teacher = classes(PART, str(path))
    batch = teacher(None, torch.tensor([5, 0, 3, 1]))
    expected = Q[np.ix_(ITEMS[[5, 0, 3, 1]], ITEMS[[5, 0, 3, 1]])]
    np.testing.assert_allclose(batch.embeddings @ batch.embeddings.T, expected, atol=1e-6)
    assert (batch.known, teacher.steady, teacher.knows_proxies, [*teacher.remarks]) == (None, True, False, [])
    assert teacher.dim == teacher.table.shape[1] == 3
    rows, known = teacher.all_rows(lambda model: None)
    assert known is None
    np.testing.assert_allclose(rows @ rows.T, Q[np.ix_(ITEMS, ITEMS)], atol=1e-6)


@pytest.mark.parametrize("corner", ["", "class", "Class name", "index", "anything"])
def test_the_column_of_names_may_be_called_as_one_likes(tmp_path, corner):
    write(tmp_path / "q.csv", corner=corner)
    assert classes(PART, str(tmp_path / "q.csv")).table.shape == (3, 3)


def test_similarities_of_no_rows_are_brought_near_to_some_and_told(tmp_path):
    """Each is like the other two by 0.9, but for one pair: no three directions are so."""
    odd = np.eye(4)
    odd[0, 1] = odd[1, 0] = odd[0, 2] = odd[2, 0] = 0.9
    odd[1, 2] = odd[2, 1] = 0.2
    write(tmp_path / "q.npz", similarity=odd)
    teacher = classes(PART, str(tmp_path / "q.npz"))
    np.testing.assert_allclose(torch.linalg.vector_norm(teacher.table, dim=1), 1, rtol=1e-6)
    off = float((teacher.table @ teacher.table.T - torch.from_numpy(odd[np.ix_([1, 2, 0], [1, 2, 0])])).abs().max())
    assert 0.01 < off < 0.3
    (told,) = teacher.remarks
    assert told == f"{tmp_path}/q.npz: no rows have these similarities as cosines; those that teach differ by up to {off:.2g}"
    write(tmp_path / "rounded.npz", similarity=Q.round(4))
    assert not classes(PART, str(tmp_path / "rounded.npz")).remarks


def test_a_run_goes_on_with_the_similarities_that_it_began_with_or_not_at_all(tmp_path):
    write(tmp_path / "q.npz")
    first = classes(PART, str(tmp_path / "q.npz"))
    state = first.state_dict()
    assert [*state] == ["_extra_state"]
    classes(PART, str(tmp_path / "q.npz")).load_state_dict(state)
    write(tmp_path / "q.csv")
    classes(PART, str(tmp_path / "q.csv")).load_state_dict(state)  # the same numbers
    write(tmp_path / "q.npz", similarity=VECTORS[:, :3] @ VECTORS[:, :3].T * (1 - np.eye(4)) + np.eye(4))
    with pytest.raises(OtherRows, match=r"q\.npz: its rows are not those that taught when the run began; restore it, or begin a new run"):
        classes(PART, str(tmp_path / "q.npz")).load_state_dict(state)


def changed(one, other, value, both=True):
    other_q = Q.copy()
    other_q[one, other] = value
    if both:
        other_q[other, one] = value
    return other_q


BAD = [
    (("q.npz", NAMES[1:], Q[1:, 1:]), "q.npz: has no similarities of 1 of the 3 classes that train (wren); its classes are such as 'gull"),
    (("q.csv", ["a", "b"], Q[:2, :2]), "q.csv: has no similarities of 3 of the 3 classes that train (gull, herring, owl, wren); its"),
    (("q.npz", ["wren", *NAMES[:3]], Q), "q.npz: has the class 'wren' 2 times; keep it once"),
    (("q.csv", ["wren", *NAMES[:3]], Q), "q.csv: has 2 columns 'wren'; keep one"),
    (("q.npz", NAMES, Q[:, :3]), "q.npz: has similarities of shape (4, 3) for 4 classes; give each pair of classes one"),
    (("q.npz", NAMES, Q > 0), "q.npz: has names of shape (4,) and similarities of type bool; expected a list of names and numbers"),
    (("q.npz", NAMES, changed(0, 2, np.nan)), "q.npz: the similarity of 'owl' and 'wren' is nan, which is no number; give one for"),
    (("q.npz", NAMES, changed(0, 2, 0.99, both=False)), "q.npz: the similarity of 'owl' and 'wren' is"),
    (("q.npz", NAMES, changed(0, 1, 3.0)), "q.npz: the similarity of 'gull, herring' and 'wren' is 3; give cosines, from -1 to 1"),
    (("q.npz", NAMES, changed(2, 2, 0.5)), "q.npz: the similarity of 'owl' and 'owl' is 0.5; a class is like itself by 1"),
    (("q.txt", NAMES, Q), "q.txt: is no table of similarities; expected .npz, .csv, .parquet"),
    (None, "q.npz: no such file; check the path"),
]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def opened(written):
    if written is not None:
        name, names, similarity = written
        write(Path(name), names, similarity)
    classes(PART, written[0] if written else "q.npz")


test_what_cannot_teach_is_refused_in_one_line = refused(BAD, opened)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,wren,owl\nwren,1,x\nowl,0,1\n", r"q\.csv: column 'owl' holds something other than numbers; fill it with similarities"),
        ("name,wren\nwren,1\nowl,0\n", r"q\.csv: has a row but no column for owl; give each class both, by one name"),
        ("name,wren\n", r"q\.csv: has similarities of shape \(0, 0\) for 0 classes; give each pair of classes one"),
        ("", r"q\.csv: cannot be read as a table"),
    ],
)
def test_tables_that_are_none(tmp_path, text, message):
    (tmp_path / "q.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        classes(PART, "q.csv")


def test_arrays_that_are_not_there(tmp_path):
    np.savez(tmp_path / "q.npz", names=NAMES, other=Q)
    with pytest.raises(ValueError, match=r"q\.npz: has no array 'similarity'; save it with numpy\.savez\(file, names=…, similarity=…\)"):
        classes(PART, "q.npz")
