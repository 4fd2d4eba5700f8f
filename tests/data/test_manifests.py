import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from obdsd.data.manifests import manifest
from obdsd.errors import InputError
from tests.data.trees import picture, refused, touch
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
    ("path,label\n..,x\n", "path='..' leaves the manifest's folder"),
    ("path,label,path\na.png,x,b.png\n", "has 2 columns 'path'; keep one"),
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


@pytest.mark.parametrize("link", ["out.png", "out/secret.png", "in/up/secret.png"])
def test_no_link_leads_out_of_the_folder(tmp_path, link):
    data, outside = tmp_path / "data", tmp_path / "data-of-others"
    touch(tmp_path, "data/in/a.png", "data-of-others/secret.png")
    (data / "out.png").symlink_to(outside / "secret.png")
    (data / "out").symlink_to(outside)
    (data / "in/up").symlink_to("../../data-of-others")
    (data / "inside.png").symlink_to("in/a.png")
    rows = "inside.png,a,train\nin/a.png,a,train\nb.png,b,train\n"
    (data / "good.csv").write_text(f"path,label,split\n{rows}")
    (tmp_path / "link").symlink_to(data)
    assert len(manifest(tmp_path / "link/good.csv")["train"]) == 3  # links inside it, and to it, are good
    (data / "bad.csv").write_text(f"path,label,split\n{rows}{link},a,train\n")
    with refused(f"bad.csv: row 4: path='{link}' leaves the manifest's folder; use paths below it"):
        manifest(data / "bad.csv")


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)


@fuzz
@given(
    st.lists(st.lists(texts, min_size=1, max_size=5), max_size=6),
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
