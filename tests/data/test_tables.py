import gzip
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from obdsd.data import tables
from obdsd.data.embeddings import embeddings
from obdsd.data.footers import row_groups
from obdsd.data.manifests import manifest
from obdsd.data.tables import cells, read_table
from obdsd.errors import InputError
from tests.data.trees import refused

LONG = "x" * 200_000


def everything(names):
    return names


def test_csv_cells_stay_text_and_parquet_keeps_its_types(tmp_path):
    (tmp_path / "x.csv").write_text('path,label\n"a\nb.png",007\n,1e3\n')
    assert read_table(tmp_path / "x.csv", everything).to_pydict() == {"path": ["a\nb.png", ""], "label": ["007", "1e3"]}
    pa.parquet.write_table(pa.table({"label": [7], "name": ["a"]}), tmp_path / "x.PARQUET")
    table = read_table(tmp_path / "x.PARQUET", everything)
    assert {name: cells(tmp_path, name, table[name]) for name in table.column_names} == {"label": [7], "name": ["a"]}


@pytest.mark.parametrize(("name", "content"), [("latin.csv", b"path,label\n\xe4.png,x\n"), ("cut.parquet", b"PAR1 and no more")])
def test_what_is_no_table_is_refused(tmp_path, name, content):
    with refused(f"{name}: no such file"):
        read_table(tmp_path / name, everything)
    (tmp_path / name).write_bytes(content)
    with refused(f"{name}: cannot be read as a table (", "); expected UTF-8 CSV or Parquet"):
        read_table(tmp_path / name, everything)


def test_text_that_is_none_is_refused(tmp_path):
    raw = pa.array([b"\xff", b"a"]).view(pa.string())
    pa.parquet.write_table(pa.table({"path": raw, "label": ["a", "b"]}), tmp_path / "x.parquet")
    with refused("x.parquet: column 'path' cannot be read (", "); write it anew"):
        manifest(tmp_path / "x.parquet")


def npz(path, **arrays):
    np.savez_compressed(path, **arrays)


def rows_of(**columns):
    return lambda path: pa.parquet.write_table(pa.table(columns), path, compression="zstd")


def zipped(path):
    path.write_bytes(gzip.compress(b"path,label\n" + b"a.png,x\n" * 500_000))


ROWS = 40_000
BOMBS = {  # each takes over 2 MB in memory and less than 1/100 of that on the disk
    "long-texts.parquet": rows_of(path=["a.png"] * 100, label=pa.DictionaryArray.from_arrays(np.zeros(100, np.int32), [LONG])),
    "many-rows.parquet": rows_of(path=["a.png"] * ROWS, label=["x"] * ROWS),
    "vectors.parquet": rows_of(embeddings=[[1.0] * 500] * 2000, labels=[1] * 2000),
    "vectors.npz": lambda path: npz(path, embeddings=np.ones((2000, 500), np.float32), labels=np.arange(2000) % 9),
    "labels.npz": lambda path: npz(path, embeddings=np.eye(9, 2, dtype=np.float32) + 1, labels=np.array([LONG] * 9)),
    "rows.csv.gz": zipped,
    "one-long.parquet": rows_of(path=["a.png"] * 40, label=[LONG] + ["x"] * 39),
    "one-long.csv": lambda path: path.write_text("path,label\n" + "a.png,x\n" * 40 + f"a.png,{LONG}\n"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_that_fills_the_memory_is_refused_before_it_does(tmp_path, monkeypatch, name):
    BOMBS[name](tmp_path / name)
    read = embeddings if name.startswith("vectors") or name.endswith("npz") else manifest
    monkeypatch.setattr(tables, "SMALL", 2**20)
    with refused(f"{name}: ", " bytes would take 0.0", " GB of memory; if that is meant, save it uncompressed"):
        read(tmp_path / name)


@pytest.mark.parametrize("suffix", ["npz", "parquet", "csv"])
def test_what_is_not_used_is_not_read(tmp_path, suffix):
    """Each file's column `extra` is spoilt; whoever reads it fails."""
    path, labels = tmp_path / f"x.{suffix}", np.repeat(np.arange(6), 2)
    if suffix == "csv":
        rows = "".join(f"{i}.png,{label},{LONG}\n" for i, label in enumerate(labels))
        path.write_text(f"path,label,extra\n{rows}")
        assert read_table(path, lambda names: names[:2]).nbytes < 1000
    elif suffix == "npz":
        np.savez(path, embeddings=np.arange(1, 25).reshape(12, 2), labels=labels)
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("extra.npy", b"no array")
        assert len(embeddings(path)["train"]) == 6
    else:
        table = {"embeddings": [[1.0, i] for i in range(12)], "labels": labels, "extra": ["spoil me"] * 12}
        pa.parquet.write_table(pa.table(table), path, compression="none", use_dictionary=False)
        path.write_bytes(path.read_bytes().replace(b"\x08\0\0\0spoil me", b"\xff\xff\xff\xffspoil me"))
        with pytest.raises(InputError, match="cannot be read as a table"):
            read_table(path, everything)
        assert len(embeddings(path)["train"]) == 6


def test_a_file_of_honest_size_is_read_whatever_it_takes(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "SMALL", 100)
    np.savez(tmp_path / "x.npz", embeddings=np.ones((2000, 50)), labels=np.arange(2000) // 2)
    pa.parquet.write_table(pa.table({"path": [f"{i}.png" for i in range(900)], "label": list(range(900))}), tmp_path / "x.parquet")
    assert len(embeddings(tmp_path / "x.npz")["train"]) == 1000
    table = read_table(tmp_path / "x.parquet", everything)
    assert cells(tmp_path / "x.parquet", "path", table["path"])[-1] == "899.png"


@pytest.mark.parametrize("how", [{}, {"compression": "none", "use_dictionary": False}, {"row_group_size": 7}, {"version": "1.0"}])
def test_what_a_footer_says_is_what_pyarrow_says(tmp_path, how):
    columns = {
        "vector": [[1.0, i] for i in range(40)],
        "label": [f"{i}é" for i in range(40)],
        "none": [None, 2.5] * 20,
        "flag": [True, False] * 20,
    }
    pa.parquet.write_table(pa.table(columns).replace_schema_metadata({"note": LONG}), tmp_path / "x.parquet", **how)
    metadata = pa.parquet.read_metadata(tmp_path / "x.parquet")
    groups = [[metadata.row_group(g).column(c) for c in range(metadata.num_columns)] for g in range(metadata.num_row_groups)]
    assert row_groups(tmp_path / "x.parquet") == [[(c.num_values, c.total_uncompressed_size) for c in group] for group in groups]


def test_a_footer_that_says_something_else_is_damaged(tmp_path):
    """Field 4, the row groups, as a list of one number."""
    footer = bytes([0x49, 0x15, 0x02, 0x00])
    (tmp_path / "x.parquet").write_bytes(footer + len(footer).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(OSError, match="its footer is damaged"):
        row_groups(tmp_path / "x.parquet")
