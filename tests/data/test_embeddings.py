import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from obdsd.data import Photos, open_data
from obdsd.data.check import check_trainable
from obdsd.data.embeddings import Vectors, embeddings, read_vectors, write_vectors
from obdsd.errors import InputError
from tests.fuzzing import fuzz, only_refuses

X, Y = np.arange(24, dtype=np.float32).reshape(12, 2), np.repeat(["a", "b", "c", "d", "e", "f"], 2)

NAMES = [f"{i}.jpg" for i in range(12)]


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


def test_embeddings_from_tensors(tmp_path):
    numbers = torch.repeat_interleave(torch.arange(6), 2)
    torch.save(
        {"features": torch.from_numpy(X).double().requires_grad_(), "targets": numbers.short(), "filenames": NAMES}, tmp_path / "a.pt"
    )
    torch.save(torch.from_numpy(X).bfloat16(), tmp_path / "b.pt")
    torch.save(numbers, tmp_path / "b.labels.pt")
    torch.save({"X": torch.from_numpy(X), "Label": Y.tolist(), "weights": Pickled}, tmp_path / "refused.pt")
    torch.save({"X": torch.from_numpy(X).T.contiguous().T, "Label": Y.tolist(), "unused": [[1]]}, tmp_path / "c.pt")
    save_file({"embeddings": torch.from_numpy(X).half(), "labels": numbers.to(torch.uint8)}, tmp_path / "d.safetensors")
    for name in ("a.pt", "b.pt", "c.pt", "d.safetensors"):
        data = open_data(str(tmp_path / name), seed=3)
        assert data.kind == "embeddings"
        for part in data.parts.values():
            assert (part.matrix() == X[part.positions]).all()
            assert (part.classes == (Y if name == "c.pt" else numbers.numpy().astype(str))[part.positions]).all()
    assert open_data(str(tmp_path / "a.pt"), test_fraction=1)["test"].name(3) == "3.jpg"
    with pytest.raises(InputError, match="cannot be read as tensors without executing code"):
        open_data(str(tmp_path / "refused.pt"))


@pytest.mark.parametrize("form", ["{}", "f{}", "emb_{}", "v2_{:03}", "dim-{}"])
@pytest.mark.parametrize("first", [0, 1])
def test_a_column_for_each_dimension(tmp_path, form, first):
    """In any order of the columns, beside other numbers."""
    rows = np.random.default_rng(0).normal(size=(12, 15)).astype(np.float32)
    columns = {form.format(i + first): rows[:, i].astype([np.float32, np.float64][i % 2]) for i in np.random.default_rng(1).permutation(15)}
    pa.parquet.write_table(
        pa.table({"box_0": Y, **columns, "box_1": Y, "Class": Y, "id": np.arange(12)}), tmp_path / "x.parquet", row_group_size=5
    )
    vectors = read_vectors(tmp_path / "x.parquet")
    assert (vectors.matrix == rows).all()
    assert (vectors.labels == Y).all()


def test_an_empty_cell_of_a_wide_table_is_nan_and_may_be_dropped(tmp_path):
    columns = {"f0": [1.0, None, 3.0, 1.0], "f1": [1.0, 2.0, 3.0, float("nan")]}
    pa.parquet.write_table(pa.table({**columns, "label": list("abab"), "file": list("wxyz")}), tmp_path / "x.parquet")
    with pytest.raises(InputError, match="2 of 4 vectors hold NaN or infinity, or only zeros: x, z; recompute or remove them, or leave"):
        open_data(str(tmp_path / "x.parquet"), test_fraction=1)
    left = open_data(str(tmp_path / "x.parquet"), test_fraction=1, drop_nan=True)
    assert left["test"].matrix().tolist() == [[1, 1], [3, 3]]
    assert left.left_out == {"test": ["x", "z"]}
    assert left["test"].class_names == ("a",)


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
    for photos in (Photos("folder:/data/photos"), Photos("manifest:/data/é.csv", "/photos")):
        write_vectors(tmp_path / f"x.{suffix}", Vectors(X, photos=photos))
        assert read_vectors(tmp_path / f"x.{suffix}").photos == photos
        assert read_vectors(tmp_path / f"x.{suffix}").labels is None


@pytest.mark.parametrize("written", ["", "[]", "3", '["a"]', '[1, "b"]', '["a", 1]', "null", "[" * 100_000])
def test_what_is_no_place_of_photos_is_none(tmp_path, written):
    np.savez(tmp_path / "x.npz", x=X, y=Y, obdsd_photos=written)
    assert read_vectors(tmp_path / "x.npz").photos is None
    pa.parquet.write_table(pa.table({"x": X.tolist()}).replace_schema_metadata({"obdsd_photos": written}), tmp_path / "x.parquet")
    assert read_vectors(tmp_path / "x.parquet").photos is None


def test_a_file_that_is_only_evaluated_need_not_train(tmp_path):
    np.savez(tmp_path / "x.npz", x=X[:3], y=Y[:3])
    parts = embeddings(tmp_path / "x.npz", test_fraction=1).parts
    assert list(parts) == ["test"]
    assert (parts["test"].matrix() == X[:3]).all()
    np.savez(tmp_path / "y.npz", x=X[:3], y=Y[:3], split=["query", "gallery", "gallery"])
    parts = embeddings(tmp_path / "y.npz").parts
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


def wide(columns):
    def write(folder):
        pa.parquet.write_table(pa.table({**columns, "label": ["a", "b"]}), folder / "x.parquet")
        return folder / "x.parquet"

    return write


def pt(content):
    def write(folder):
        torch.save(content, folder / "x.pt")
        return folder / "x.pt"

    return write


EMBEDDINGS = [
    (
        bad_npz(embeddings=np.where(X == 5, np.nan, X), labels=Y),
        "1 of 12 vectors hold NaN or infinity, or only zeros: row 2; recompute or remove them, or leave them out with --drop-nan",
    ),
    (bad_npz(embeddings=X, labels=Y[:5]), r"labels has shape \(5,\) and type <U1 for 12 vectors; give one text or number"),
    (bad_npz(embeddings=X[0], labels=Y), r"vectors have shape \(2,\) and type float32; expected numbers of shape \(items, dim\)"),
    (bad_npz(embeddings=X.astype(str), labels=Y), "expected numbers of shape"),
    (bad_npz(embeddings=X * (np.arange(12) != 7)[:, None], labels=Y), "1 of 12 vectors hold NaN or infinity, or only zeros: row 7"),
    (bad_npz(embeddings=X), "training needs labels, but it has no column label, .* or y; it has 'embeddings'"),
    (bad_npz(labels=Y), "has no column embeddings, embedding, features, vectors, vector or x; it has 'labels'"),
    (bad_npz(embeddings=X, features=X, labels=Y), r"has 2 columns that could be the embeddings \('embeddings', 'features'\)"),
    (bad_npz(embeddings=X, y=Y, labels=Y), r"has 2 columns that could be the label \('y', 'labels'\)"),
    (bad_npz(embeddings=X, labels=np.linspace(0, 1, 12)), "labels are fractions, NaN or too large; give whole numbers or names"),
    (bad_npz(embeddings=X, labels=np.full(12, 1e300)), "labels are fractions, NaN or too large"),
    (bad_npz(embeddings=X, labels=np.zeros(12, [("a", int), ("b", "U3")])), r"labels has shape \(12,\) and type \[\('a', '<i8'\)"),
    (bad_npz(embeddings=X, labels=Y, group=np.zeros(12, complex)), r"group has shape \(12,\) and type complex128 for 12 vectors"),
    (bad_npz(embeddings=X, labels=np.array(["\ud800"] * 12)), r"labels holds what is no text \(.*surrogates.*\); write it as UTF-8"),
    (bad_npz(embeddings=X, labels=np.full(12, 2**31, np.uint32).view("U1")), "labels holds what is no text"),
    (bad_npz(embeddings=X, labels=np.array([b"\xe4"] * 12)), "labels holds what is no text"),
    (bad_npz(embeddings=np.array([Pickled()] * 12), labels=Y), r"holds Python objects, or no arrays at all; save names with labels.as"),
    (raw("x.npy", content_of(np.save, X)), "training needs labels, but it has no labels beside it; save them as x.labels.npy"),
    (raw("x.npy", content_of(np.savez, embeddings=X, labels=Y), labels=Y), "is not what its suffix says"),
    (raw("x.npz", b"PK\x03\x04 broken"), "cannot be read"),
    (raw("x.txt", b""), "is no embeddings file; expected .npz, .npy, .parquet, .pt, .safetensors"),
    (parquet([1.0], [1.0, 2.0]), r"column 'vector' must hold one vector a row, all of one length; it has lengths \[1, 2\]"),
    (parquet([1.0], None), "column 'vector' has 1 empty cells; fill or drop them"),
    (parquet(["a"], ["b"]), "column 'vector' holds something other than numbers"),
    (parquet([1.0], [2.0], label=[["a"], ["b"]]), "column 'label' holds list<.*>; give one text or number a row"),
    (wide({f"f{i}": [1.0, 2.0] for i in (0, 1, 3)}), "columns 'f0' to 'f3' lack number 2; give one for each dimension"),
    (wide({f"f{i}": [1.0, 2.0] for i in (2, 3)}), "columns 'f2' to 'f3' lack number 1"),
    (
        wide({f"{c}{i}": [1.0, 2.0] for c in "ab" for i in (0, 1)}),
        "columns from 'a0' and from 'b0' on could both be the vectors; rename or",
    ),
    (wide({f"f{i}": ["x", "y"] for i in (0, 1)}), "columns 'f0' to 'f1' hold something other than numbers"),
    (wide({"f0": [1.0, 2.0]}), "has no column embeddings"),
    (lambda folder: folder / "gone.npz", "no such file"),
    (lambda folder: folder / "gone.pt", "no such file"),
    (pt(torch.ones(12, 2)), "training needs labels, but it has no labels beside it; save them as x.labels.pt"),
    (pt({"x": torch.ones(12, 2)}), "training needs labels, but it has no column label, .* or y; it has 'x'; rename"),
    (pt({"labels": torch.ones(12)}), "has no column embeddings, .*; it has 'labels'"),
    (pt({"x": torch.ones(12, 2), "y": torch.arange(11)}), r"labels has shape \(11,\) and type int64 for 12 vectors"),
    (pt({"x": torch.ones(12, 2), "y": torch.linspace(0, 1, 12)}), "labels are fractions, NaN or too large"),
    (pt({"x": torch.ones(12, 2), "y": [["a"]] * 12}), r"y is no dense tensor of real numbers \(list\); save it as one"),
    (pt({"x": torch.ones(12, 2, device="meta"), "y": torch.arange(12)}), "x is no dense tensor of real numbers"),
    (pt({"x": torch.ones(12, 2, dtype=torch.complex64), "y": torch.arange(12)}), "x is no dense tensor of real numbers"),
    (pt({"x": torch.ones(1, 1).expand(10**6, 10**4), "y": torch.arange(12)}), r"bytes would take 40.0 GB of memory"),
    (pt({"x": torch.ones(12, 2), "y": ["a" * 10**6] * 10**5}), r"bytes would take 400.0 GB of memory"),
    (pt([torch.ones(12, 2)]), "embeddings is no dense tensor of real numbers"),
    (pt({"x": Pickled(), "y": torch.arange(12)}), "cannot be read as tensors without executing code"),
    (raw("x.pt", b"PK\x03\x04 broken"), "is no file of torch.save, or one of a torch before 1.6; save it again"),
    (raw("x.safetensors", b"broken"), "cannot be read as tensors without executing code"),
]


@pytest.mark.parametrize(("write", "message"), EMBEDDINGS, ids=[message[:30] for _, message in EMBEDDINGS])
def test_bad_embeddings_are_refused_in_one_line(tmp_path, write, message):
    with pytest.raises(InputError, match=message) as refusal:
        check_trainable(open_data(f"embeddings:{write(tmp_path)}"))
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
