"""`obdsd export`: a file that any program can use, and only if its rows are those of the model."""

import re
import sys

import numpy as np
import onnxruntime
import pyarrow.parquet
import pytest
from PIL import Image

from obdsd.models import inference
from obdsd.search import Index

HERE = ("--workers", 0)


@pytest.fixture
def exported(obdsd, tmp_path):
    """Export with these words: what was printed, and the file."""

    def run(*words):
        code, printed, told = obdsd("export", *words, "--out", tmp_path / "x.onnx")
        assert (code, told) == (0, "")
        return printed, tmp_path / "x.onnx"

    return run


def rows_of(file, inputs):
    session = onnxruntime.InferenceSession(file)
    (rows,) = session.run(None, {session.get_inputs()[0].name: inputs})
    return rows


def test_a_file_from_pixels_makes_the_rows_of_embed(obdsd, exported, made, tmp_path):
    printed, file = exported("tiny", "manifest:list.csv", "--with-preprocessing", "--part", "query", *HERE)
    first, second = printed.splitlines()
    assert first == (
        "compared on 12 of 12 items of the query part of manifest:list.csv: least cosine 1.0000000; "
        "the 10 nearest of each in the same order: 12 of 12"
    )
    assert re.fullmatch(rf"{file}: \d+\.\d MB, from uint8 pixels \(batch, 32, 32, 3\) to unit rows of length 8", second)
    assert obdsd("embed", "tiny", "manifest:list.csv", "--out", tmp_path / "rows.parquet", "--device", "cpu", *HERE)[0] == 0
    table = pyarrow.parquet.read_table(tmp_path / "rows.parquet").to_pydict()
    pixels = np.stack([np.asarray(Image.open(made / name)) for name in table["names"]])
    (column,) = (name for name in table if isinstance(table[name][0], list))
    np.testing.assert_allclose(rows_of(file, pixels), table[column], rtol=0, atol=1e-5)


def test_without_data_letters_are_compared_spread_evenly(exported):
    printed, _ = exported("tiny", "--items", 30)
    assert printed.startswith("compared on 30 of 4,480 items of built-in letters: least cosine 1.0000000; ")
    assert ", from numbers (batch, 3, 32, 32) to unit rows of length 8\n" in printed


def test_a_head_is_compared_on_made_up_rows_or_on_a_file(exported, rows):
    printed, file = exported("head", "--items", 20)
    assert printed.startswith("compared on 20 of 20 items of made-up rows: ")
    assert printed.endswith(", from rows (batch, 6) to unit rows of length 5\n")
    assert rows_of(file, np.ones((3, 6), dtype=np.float32)).shape == (3, 5)


def test_the_index_of_a_file_and_of_other_files(obdsd, refused, exported, tmp_path):
    _, file = exported("tiny")
    words = ("index", "tiny", "manifest:list.csv", "--out", tmp_path / "x.index", *HERE)
    obdsd("export", "head", "--out", tmp_path / "head.onnx")
    line = refused(*words, "--engine", tmp_path / "head.onnx")
    assert line.startswith(f"{tmp_path / 'head.onnx'}: is of another model (features, 5 numbers a row, ")
    assert not (tmp_path / "x.index").exists()
    assert obdsd(*words, "--engine", file)[0] == 0
    assert len(Index.open(tmp_path / "x.index").items) == 40


def test_other_rows_leave_no_file(refused, made, tmp_path, monkeypatch):
    def changed(model, before=inference.for_inference):
        made_still = before(model)
        made_still.head.bias.data += 0.5
        return made_still

    monkeypatch.setattr(inference, "for_inference", changed)
    line = refused("export", "tiny", "--out", tmp_path / "x.onnx")
    assert re.match(rf"{tmp_path}/x.onnx: its rows are not those of torch, the least cosine is 0\.\d+ and must be 0.99999; ", line)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_leaves_no_file(refused, tmp_path):
    assert refused("export", "head", "--out", tmp_path / "x.onnx").startswith(f"{tmp_path}/x.onnx: cannot be written (No space left")
    assert list(tmp_path.iterdir()) == []


def test_missing_packages_are_named_with_their_extra(refused, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.delitem(sys.modules, "obdsd.models.onnx_engine", raising=False)
    assert refused("export", "head", "--out", tmp_path / "x.onnx") == (
        'onnxruntime is not installed; pip install "obdsd[export]" installs it'
    )


REFUSED = [
    (["tiny"], "--out must be given: obdsd export MODEL [DATA] --out TEXT [options]"),
    (["tiny", "--out", "x.pt"], "--out 'x.pt' must end in .onnx; rename it"),
    (["tiny", "--out", "list.csv/x.onnx"], "list.csv/x.onnx: cannot be written ("),
    (["tiny", "--out", "x.onnx", "--items", "0"], "--items 0 must be 1 or more"),
    (["tiny", "--out", "x.onnx", "--part", "test"], "--part test is for DATA, which is not given; give it, or leave part out"),
    (["head", "--out", "x.onnx", "--with-preprocessing"], "--with-preprocessing is for images, backbone=features takes rows; leave it out"),
    (["tiny", "manifest:list.csv", "--out", "x.onnx", "--part", "val"], "list.csv: there is no part 'val'; it has train, query, gallery"),
    (["head", "manifest:list.csv", "--out", "x.onnx"], "manifest:list.csv: holds images, but MODEL head is made for embeddings"),
    (["tyni", "--out", "x.onnx"], "MODEL 'tyni' does not exist"),
]


@pytest.mark.parametrize(("words", "line"), REFUSED, ids=[line[:40] for _, line in REFUSED])
def test_mistakes_are_named_before_any_work(refused, made, words, line):
    before = sorted(made.rglob("*"))
    assert refused("export", *words).startswith(line)
    assert sorted(made.rglob("*")) == before
