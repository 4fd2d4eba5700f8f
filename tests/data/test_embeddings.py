import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from obdsd.data.embeddings import Vectors, embeddings, parts_as_given, read_vectors, write_vectors
from obdsd.errors import InputError
from tests.fuzzing import fuzz, only_refuses

X, Y = np.arange(24, dtype=np.float32).reshape(12, 2), np.repeat(["a", "b", "c", "d", "e", "f"], 2)


def test_embeddings_from_every_kind_of_file(tmp_path):
    np.savez(tmp_path / "x.npz", embeddings=X, labels=Y)
    np.savez(tmp_path / "y.npz", x=X.astype(np.float16), y=Y)
    np.save(tmp_path / "z.npy", X.astype(np.float64))
    np.save(tmp_path / "z.labels.npy", Y)
    pa.parquet.write_table(pa.table({"vector": X.tolist(), "label": Y, "path": [f"{i}.jpg" for i in range(12)]}), tmp_path / "p.parquet")
    for name in ("x.npz", "y.npz", "z.npy", "p.parquet"):
        data = embeddings(tmp_path / name, seed=3)
        assert data.kind == "embeddings"
        assert len(data["train"].class_names) == 3
        for part in data.parts.values():
            assert (part.matrix() == X[part.positions]).all()
            assert (part.classes == Y[part.positions]).all()
    assert data["train"].name(0).endswith(".jpg")
    assert embeddings(tmp_path / "x.npz")["train"].name(0).startswith("row ")


def test_embeddings_with_their_own_split(tmp_path):
    split = np.array(["train"] * 6 + ["query", "gallery"] * 3)
    np.savez(tmp_path / "x.npz", features=X, labels=np.repeat(np.arange(6.0), 2), split=split, group=np.arange(12) % 2)
    data = embeddings(tmp_path / "x.npz")
    assert data["query"].class_names == ("3", "4", "5")
    assert data["gallery"].groups.tolist() == [1, 1, 1]


@pytest.mark.parametrize("suffix", ["npz", "parquet"])
def test_what_is_written_is_read_again(tmp_path, suffix):
    splits, names = np.repeat(["query", "gallery"], 6), np.array([f"{i}.jpg" for i in range(12)])
    for vectors in (Vectors(X, Y), Vectors(X, Y, splits, np.arange(12) % 3, names)):
        write_vectors(tmp_path / f"x.{suffix}", vectors)
        for written, read in zip(vectors, read_vectors(tmp_path / f"x.{suffix}"), strict=True):
            np.testing.assert_array_equal(written, read)


def test_a_file_that_is_only_evaluated_need_not_train(tmp_path):
    np.savez(tmp_path / "x.npz", x=X[:3], y=Y[:3])
    parts = parts_as_given(tmp_path / "x.npz")
    assert list(parts) == ["test"]
    assert (parts["test"].matrix() == X[:3]).all()
    np.savez(tmp_path / "y.npz", x=X[:3], y=Y[:3], split=["query", "gallery", "gallery"])
    parts = parts_as_given(tmp_path / "y.npz")
    assert (list(parts), parts["gallery"].classes.tolist()) == (["query", "gallery"], ["a", "b"])


def bad_npz(**arrays):
    def write(folder):
        np.savez(folder / "x.npz", **arrays)
        return folder / "x.npz"

    return write


def parquet(*vectors, label=("a", "b")):
    def write(folder):
        pa.parquet.write_table(pa.table({"vector": list(vectors), "label": label}), folder / "x.parquet")
        return folder / "x.parquet"

    return write


def raw(name, content, labels=None):
    def write(folder):
        (folder / name).write_bytes(content)
        if labels is not None:
            np.save(folder / "x.labels.npy", labels)
        return folder / name

    return write


def content_of(save, *arrays, **named):
    save(file := io.BytesIO(), *arrays, **named)
    return file.getvalue()


class Pickled:
    pass


EMBEDDINGS = [
    (bad_npz(embeddings=np.where(X == 5, np.nan, X), labels=Y), "1 vectors have NaN or infinite entries, the first in row 2"),
    (bad_npz(embeddings=X, labels=Y[:5]), r"labels has shape \(5,\) and type <U1 for 12 vectors; give one text or number"),
    (bad_npz(embeddings=X[0], labels=Y), r"vectors have shape \(2,\) and type float32; expected numbers of shape \(items, dim\)"),
    (bad_npz(embeddings=X.astype(str), labels=Y), "expected numbers of shape"),
    (bad_npz(embeddings=X * (np.arange(12) != 7)[:, None], labels=Y), "1 vectors hold only zeros, the first in row 7; remove or recompute"),
    (bad_npz(embeddings=X), "has none of labels, label, targets, y; it has 'embeddings'"),
    (bad_npz(labels=Y), "has none of embeddings"),
    (bad_npz(embeddings=X, labels=np.linspace(0, 1, 12)), "labels are fractions, NaN or too large; give whole numbers or names"),
    (bad_npz(embeddings=X, labels=np.full(12, 1e300)), "labels are fractions, NaN or too large"),
    (bad_npz(embeddings=X, labels=np.zeros(12, [("a", int), ("b", "U3")])), r"labels has shape \(12,\) and type \[\('a', '<i8'\)"),
    (bad_npz(embeddings=X, labels=Y, group=np.zeros(12, complex)), r"group has shape \(12,\) and type complex128 for 12 vectors"),
    (bad_npz(embeddings=X, labels=np.array(["\ud800"] * 12)), r"labels holds what is no text \(.*surrogates.*\); write it as UTF-8"),
    (bad_npz(embeddings=X, labels=np.full(12, 2**31, np.uint32).view("U1")), "labels holds what is no text"),
    (bad_npz(embeddings=X, labels=np.array([b"\xe4"] * 12)), "labels holds what is no text"),
    (bad_npz(embeddings=np.array([Pickled()] * 12), labels=Y), r"holds Python objects, or no arrays at all; save names with labels.as"),
    (raw("x.npy", content_of(np.save, X)), "has no labels beside it; save them as x.labels.npy"),
    (raw("x.npy", content_of(np.savez, embeddings=X, labels=Y), labels=Y), "is not what its suffix says"),
    (raw("x.npz", b"PK\x03\x04 broken"), "cannot be read"),
    (raw("x.txt", b""), "is no embeddings file; expected .npz, .npy, .parquet"),
    (parquet([1.0], [1.0, 2.0]), r"column 'vector' must hold one vector a row, all of one length; it has lengths \[1, 2\]"),
    (parquet([1.0], None), "column 'vector' has 1 empty cells; fill or drop them"),
    (parquet(["a"], ["b"]), "column 'vector' holds something other than numbers"),
    (parquet([1.0], [2.0], label=[["a"], ["b"]]), "column 'label' holds list<.*>; give one text or number a row"),
    (lambda folder: folder / "gone.npz", "no such file"),
]


@pytest.mark.parametrize(("write", "message"), EMBEDDINGS, ids=[message[:30] for _, message in EMBEDDINGS])
def test_bad_embeddings_are_refused_in_one_line(tmp_path, write, message):
    with pytest.raises(InputError, match=message) as refusal:
        embeddings(write(tmp_path))
    assert "\n" not in str(refusal.value)


@fuzz
@given(st.data(), st.sampled_from(["x.npz", "x.npy", "x.parquet"]))
def test_damaged_embeddings(tmp_path, data, name):
    whole = {"x.npz": content_of(np.savez, embeddings=X, labels=Y), "x.npy": content_of(np.save, X)}
    np.save(tmp_path / "labels.npy", Y)
    pa.parquet.write_table(pa.table({"vector": X.tolist(), "label": Y}), tmp_path / "whole.parquet")
    content = bytearray(whole.get(name) or (tmp_path / "whole.parquet").read_bytes())
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    (tmp_path / name).write_bytes(content[: cut if data.draw(st.booleans()) else len(content)])
    assert only_refuses(embeddings, tmp_path / name)
