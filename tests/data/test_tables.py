"""Folders, manifests and embedding files: what people have, and what they get wrong."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from obdsd.data import open_data
from obdsd.data.embeddings import embeddings
from obdsd.data.folders import folder
from obdsd.data.manifests import manifest
from obdsd.errors import InputError


def save(path, colour=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), (colour, 0, 0)).save(path)


def names(part):
    return [part.name(i) for i in range(len(part))]


def test_a_folder_is_split_by_class(tmp_path):
    for c in "abcdef":
        for i in range(3):
            save(tmp_path / c / f"{i}.png", i)
    (tmp_path / "a" / "notes.txt").write_text("no image")
    photos = folder(tmp_path, seed=1)
    assert photos["train"].class_names != folder(tmp_path, seed=2)["train"].class_names
    assert sorted(photos["train"].class_names + photos["test"].class_names) == list("abcdef")
    assert sorted(names(photos["train"]) + names(photos["test"])) == [f"{c}/{i}.png" for c in "abcdef" for i in range(3)]
    image, label, index = photos["test"][2]
    assert image.getpixel((0, 0)) == (2, 0, 0)
    assert photos["test"].name(index) == f"{photos['test'].class_names[label]}/2.png"


def test_a_given_split_is_taken_as_it_is(tmp_path):
    for split, classes in (("train", "ab"), ("test", "cd")):
        for c in classes:
            for i in range(2):
                save(tmp_path / split / c / f"{i}.jpg")
    photos = open_data(f"folder:{tmp_path}")
    assert photos["train"].class_names == ("a", "b")
    assert names(photos["test"]) == [f"test/{c}/{i}.jpg" for c in "cd" for i in range(2)]
    save(tmp_path / "test" / "a" / "0.jpg")
    with pytest.raises(InputError, match=r"train and test share 1 classes \(a\)"):
        folder(tmp_path)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_manifest_with_everything(tmp_path, suffix):
    columns = {
        "path": ["img/1.png", "img/2.png", "img/3.png", "img/4.png", "img/5.png", "img/6.png"],
        "label": ["7", "7", "8", "8", "9", "9"],
        "split": ["train", "train", "train", "train", "", ""],
        "is_query": ["", "", "", "", "true", "False"],
        "is_gallery": ["0", "0", "0", "0", "0", "1"],
        "x1": ["1", "", "", "", "", ""],
        "y1": ["2", "", "", "", "", ""],
        "x2": ["5", "", "", "", "", ""],
        "y2": ["7.0", "", "", "", "", ""],
        "group": ["cam1", "cam2", "cam1", "cam2", "cam1", "cam1"],
    }
    for i in range(1, 7):
        save(tmp_path / "img" / f"{i}.png", i)
    table = pa.table(columns)
    path = tmp_path / f"list.{suffix}"
    pa.csv.write_csv(table, path) if suffix == "csv" else pa.parquet.write_table(table, path)
    listed = open_data(f"manifest:{path}")
    assert list(listed.parts) == ["train", "query", "gallery"]
    assert listed["train"][0][0].size == (4, 5)
    assert listed["train"][1][0].size == (8, 8)
    assert listed["train"].groups.tolist() == [0, 1, 0, 1]
    assert listed["query"].class_names == listed["gallery"].class_names == ("9",)
    assert names(listed["gallery"]) == ["img/6.png"]


def test_a_manifest_without_a_split_is_split_by_class(tmp_path):
    rows = "\n".join(f"{c}{i}.png,{c},so so" for c in "abcdef" for i in range(2))
    (tmp_path / "list.csv").write_text(f"path,label,comment\n{rows}\n")
    listed = manifest(tmp_path / "list.csv")
    assert len(listed["train"].class_names) == len(listed["test"].class_names) == 3


MANIFESTS = [
    ("path,name\na.png,x\n", "has no column 'label'; it has 'path', 'name'"),
    ("path,label\n,x\n", "row 1 has no path; fill it or remove the row"),
    ("path,label\na.png,x\nb.png,\n", "row 2 has no label"),
    ("path,label\n../a.png,x\n", "row 1: path='../a.png' leaves the manifest's folder; use paths below it"),
    ("path,label\n/etc/a.png,x\n", "path='/etc/a.png' leaves the manifest's folder"),
    ("path,label\nx/../../a.png,x\n", "leaves the manifest's folder"),
    ("path,label\n", "holds no items"),
    ("", "cannot be read as a table"),
    ("path,label,split\na.png,x,trian\n", "split='trian' is unknown"),
    ("path,label,x1\na.png,x,3\n", "has x1 but not all of x1, y1, x2, y2; give all four or none"),
    ("path,label,x1,y1,x2,y2\na.png,x,3,3,2,9\n", r"row 1: box=\(3, 3, 2, 9\) must have 0 <= x1 < x2"),
    ("path,label,x1,y1,x2,y2\na.png,x,3,3,b,9\n", "row 1: box=.* must be four numbers"),
    ("path,label,is_query\na.png,x,maybe\n", "row 1: is_query='maybe' must be true or false"),
    ("path,label,is_query,is_gallery\na.png,x,1,1\n", "row 1 is both query and gallery"),
    ("path,label\n" + "a.png,x\n" * 5, "fewer than 2 to train on"),
]


@pytest.mark.parametrize(("text", "message"), MANIFESTS, ids=[message[:30] for _, message in MANIFESTS])
def test_bad_manifests_are_refused_in_one_line(tmp_path, text, message):
    (tmp_path / "list.csv").write_text(text)
    with pytest.raises(InputError, match=message) as refusal:
        manifest(tmp_path / "list.csv")
    assert "\n" not in str(refusal.value)


def test_other_bad_files_are_refused(tmp_path):
    (tmp_path / "latin.csv").write_bytes("path,label\nä.png,x\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"cannot be read as a table .*; expected UTF-8 CSV or Parquet"):
        manifest(tmp_path / "latin.csv")
    (tmp_path / "cut.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match="cannot be read as a table"):
        manifest(tmp_path / "cut.parquet")
    with pytest.raises(InputError, match=r"gone\.csv: no such file"):
        manifest(tmp_path / "gone.csv")
    with pytest.raises(InputError, match="gone: no such folder"):
        folder(tmp_path / "gone")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"no class folder with images; expected .*/<class>/<image>"):
        folder(tmp_path / "empty")


X, Y = np.arange(24, dtype=np.float32).reshape(12, 2), np.repeat(["a", "b", "c", "d", "e", "f"], 2)


def test_embeddings_from_every_kind_of_file(tmp_path):
    np.savez(tmp_path / "x.npz", embeddings=X, labels=Y)
    np.savez(tmp_path / "y.npz", x=X.astype(np.float16), y=Y)
    np.save(tmp_path / "z.npy", X.astype(np.float64))
    np.save(tmp_path / "z.labels.npy", Y)
    pa.parquet.write_table(pa.table({"vector": X.tolist(), "label": Y, "path": [f"{i}.jpg" for i in range(12)]}), tmp_path / "p.parquet")
    for name in ("x.npz", "y.npz", "z.npy", "p.parquet"):
        data = open_data(str(tmp_path / name), seed=3)
        assert data.kind == "embeddings"
        assert len(data["train"].class_names) == 3
        for part in data.parts.values():
            for i in range(len(part)):
                row, label, _ = part[i]
                position = part.positions[i]
                assert row.tolist() == X[position].tolist()
                assert part.class_names[label] == Y[position]
    assert data["train"].name(0).endswith(".jpg")
    assert open_data(f"embeddings:{tmp_path / 'x.npz'}")["train"].name(0).startswith("row ")


def test_embeddings_with_their_own_split(tmp_path):
    split = np.array(["train"] * 6 + ["query", "gallery"] * 3)
    np.savez(tmp_path / "x.npz", features=X, labels=np.repeat(np.arange(6.0), 2), split=split, group=np.arange(12) % 2)
    data = embeddings(tmp_path / "x.npz")
    assert data["query"].class_names == ("3", "4", "5")
    assert data["gallery"].groups.tolist() == [1, 1, 1]


def bad_npz(**arrays):
    def write(folder):
        np.savez(folder / "x.npz", **arrays)
        return folder / "x.npz"

    return write


def raw(name, content):
    def write(folder):
        (folder / name).write_bytes(content)
        return folder / name

    return write


def npy_without_labels(folder):
    np.save(folder / "x.npy", X)
    return folder / "x.npy"


def ragged(folder):
    pa.parquet.write_table(pa.table({"vector": [[1.0], [1.0, 2.0]], "label": ["a", "b"]}), folder / "x.parquet")
    return folder / "x.parquet"


def with_nulls(folder):
    pa.parquet.write_table(pa.table({"vector": [[1.0], None], "label": ["a", "b"]}), folder / "x.parquet")
    return folder / "x.parquet"


def with_text(folder):
    pa.parquet.write_table(pa.table({"vector": [["a"], ["b"]], "label": ["a", "b"]}), folder / "x.parquet")
    return folder / "x.parquet"


class Pickled:
    pass


EMBEDDINGS = [
    (bad_npz(embeddings=np.where(X == 5, np.nan, X), labels=Y), "1 vectors have NaN or infinite entries, the first in row 2"),
    (bad_npz(embeddings=X, labels=Y[:5]), r"labels has shape \(5,\) for 12 vectors; give one for each"),
    (bad_npz(embeddings=X[0], labels=Y), r"vectors have shape \(2,\) and type float32; expected numbers of shape \(items, dim\)"),
    (bad_npz(embeddings=X.astype(str), labels=Y), "expected numbers of shape"),
    (bad_npz(embeddings=X * (np.arange(12) != 7)[:, None], labels=Y), "1 vectors hold only zeros, the first in row 7; remove or recompute"),
    (bad_npz(embeddings=X), "has none of labels, label, targets, y; it has 'embeddings'"),
    (bad_npz(labels=Y), "has none of embeddings"),
    (bad_npz(embeddings=X, labels=np.linspace(0, 1, 12)), "labels are fractions or NaN; give whole numbers or names"),
    (
        bad_npz(embeddings=np.array([Pickled()] * 12), labels=Y),
        r"holds Python objects, or no arrays at all; save names with labels.astype\(str\)",
    ),
    (npy_without_labels, "has no labels beside it; save them as x.labels.npy"),
    (raw("x.npz", b"PK\x03\x04 broken"), "cannot be read"),
    (raw("x.npy", b"\x93NUMPY broken"), "has no labels beside it"),
    (raw("x.txt", b""), "is no embeddings file; expected .npz, .npy, .parquet"),
    (ragged, r"column 'vector' must hold one vector a row, all of one length; it has lengths \[1, 2\]"),
    (with_nulls, "column 'vector' has 1 empty cells; fill or drop them"),
    (with_text, "column 'vector' holds something other than numbers"),
    (lambda folder: folder / "gone.npz", "no such file"),
]


@pytest.mark.parametrize(("write", "message"), EMBEDDINGS, ids=[message[:30] for _, message in EMBEDDINGS])
def test_bad_embeddings_are_refused_in_one_line(tmp_path, write, message):
    with pytest.raises(InputError, match=message) as refusal:
        embeddings(write(tmp_path))
    assert "\n" not in str(refusal.value)


def test_an_npz_under_another_name_is_refused(tmp_path):
    np.savez(tmp_path / "x.npz", embeddings=X, labels=Y)
    (tmp_path / "x.npz").rename(tmp_path / "x.npy")
    np.save(tmp_path / "x.labels.npy", Y)
    with pytest.raises(InputError, match="is not what its suffix says"):
        embeddings(tmp_path / "x.npy")


SOURCES = [
    ("cub:x", "did you mean cub200:PATH?"),
    ("glyph", "did you mean glyphs?"),
    ("folder", "did you mean folder:PATH?"),
    (".", "did you mean folder:.?"),
    ("zzz:x", "names are cub200, cars196, sop, inshop, folder, manifest, embeddings, glyphs"),
]


@pytest.mark.parametrize(("source", "message"), SOURCES)
def test_an_unknown_source_is_refused_with_what_was_meant(source, message):
    with pytest.raises(InputError, match="must be NAME:PATH, glyphs, or an embeddings file") as refusal:
        open_data(source)
    assert str(refusal.value).endswith(message)


def only_refuses(read, path):
    """A reader may read or refuse in one line; nothing else may come out."""
    try:
        read(path)
    except InputError as refusal:
        return "\n" not in str(refusal)
    return True


cells = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)
fuzz = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


@fuzz
@given(
    st.lists(st.lists(cells, min_size=1, max_size=5), max_size=6),
    st.sampled_from(["path,label", "path,label,split", "path,label,x1,y1,x2,y2"]),
)
def test_fuzzed_manifests(tmp_path, rows, header):
    (tmp_path / "list.csv").write_text("\n".join([header, *(",".join(row) for row in rows)]), encoding="utf-8")
    assert only_refuses(manifest, tmp_path / "list.csv")


@fuzz
@given(st.binary(max_size=300), st.sampled_from(["x.csv", "x.parquet"]))
def test_fuzzed_bytes_as_manifests(tmp_path, content, name):
    (tmp_path / name).write_bytes(content)
    assert only_refuses(manifest, tmp_path / name)


@fuzz
@given(st.data(), st.sampled_from(["x.npz", "x.npy", "x.parquet"]))
def test_damaged_embeddings(tmp_path, data, name):
    if not (tmp_path / "whole").exists():
        (tmp_path / "whole").mkdir()
        np.savez(tmp_path / "whole" / "x.npz", embeddings=X, labels=Y)
        np.save(tmp_path / "whole" / "x.npy", X)
        np.save(tmp_path / "labels.npy", Y)
        pa.parquet.write_table(pa.table({"vector": X.tolist(), "label": Y}), tmp_path / "whole" / "x.parquet")
    content = bytearray((tmp_path / "whole" / name).read_bytes())
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    (tmp_path / name).write_bytes(content[: cut if data.draw(st.booleans()) else len(content)])
    assert only_refuses(embeddings, tmp_path / name)
