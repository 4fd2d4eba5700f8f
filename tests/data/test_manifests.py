import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from obdsd.data.manifests import manifest, read_table
from obdsd.errors import InputError
from tests.data.trees import picture
from tests.fuzzing import fuzz, only_refuses


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_manifest_with_everything(tmp_path, suffix):
    columns = {
        "path": [f"img/{i}.png" for i in range(1, 7)],
        "label": list("778899"),
        "split": ["train"] * 4 + [""] * 2,
        "is_query": [*[""] * 4, "true", "False"],
        "is_gallery": list("000001"),
        **{corner: [value, *[""] * 5] for corner, value in (("x1", "1"), ("y1", "2"), ("x2", "5"), ("y2", "7.0"))},
        "group": ["cam1", "cam2", "cam1", "cam2", "cam1", "cam1"],
    }
    (tmp_path / "img").mkdir()
    for name in columns["path"]:
        picture(size=(8, 8)).save(tmp_path / name)
    table = pa.table(columns)
    path = tmp_path / f"list.{suffix}"
    pa.csv.write_csv(table, path) if suffix == "csv" else pa.parquet.write_table(table, path)
    listed = manifest(path)
    assert list(listed.parts) == ["train", "query", "gallery"]
    assert [listed["train"][i][0].size for i in range(2)] == [(4, 5), (8, 8)]
    assert listed["train"].groups.tolist() == [0, 1, 0, 1]
    assert listed["query"].class_names == listed["gallery"].class_names == ("9",)
    assert listed["gallery"].name(0) == "img/6.png"


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


def test_csv_cells_stay_text_and_parquet_keeps_its_types(tmp_path):
    (tmp_path / "x.csv").write_text('path,label\n"a\nb.png",007\n,1e3\n')
    assert read_table(tmp_path / "x.csv").to_pydict() == {"path": ["a\nb.png", ""], "label": ["007", "1e3"]}
    pa.parquet.write_table(pa.table({"label": [7]}), tmp_path / "x.PARQUET")
    assert read_table(tmp_path / "x.PARQUET").to_pydict() == {"label": [7]}


@pytest.mark.parametrize(("name", "content"), [("latin.csv", b"path,label\n\xe4.png,x\n"), ("cut.parquet", b"PAR1 and no more")])
def test_what_is_no_table_is_refused(tmp_path, name, content):
    with pytest.raises(InputError, match=f"{name}: no such file"):
        read_table(tmp_path / name)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=rf"{name}: cannot be read as a table \(.*\); expected UTF-8 CSV or Parquet"):
        read_table(tmp_path / name)


cells = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)


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
