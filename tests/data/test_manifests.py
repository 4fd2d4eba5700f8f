import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from obdsd.data import open_data
from obdsd.data.check import check_trainable
from obdsd.data.manifests import manifest
from obdsd.errors import InputError
from tests.data.trees import picture, refused, split_of, touch
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


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize(
    "header",
    ["File,Class,Subset", "filename,category,SET", "IMAGE,Class Name,split", "img,target,Partition", "\ufeffimage-path,species,split"],
)
def test_columns_are_known_by_what_they_mean(tmp_path, separator, header):
    lines = [
        header,
        *(f"{c}{i}.png,{c},{split}" for c, split in (("a", "Training"), ("b", "TRAIN"), ("c", "valid"), ("d", "test")) for i in range(2)),
    ]
    (tmp_path / "list.csv").write_text("\n".join(lines).replace(",", separator), encoding="utf-8")
    expected = {"train": {c: [f"{c}0.png", f"{c}1.png"] for c in "ab"}}
    expected |= {part: {c: [f"{c}0.png", f"{c}1.png"]} for part, c in (("val", "c"), ("test", "d"))}
    assert split_of(manifest(tmp_path / "list.csv")) == expected


def test_a_separator_may_stand_inside_quotes(tmp_path):
    (tmp_path / "list.csv").write_text('path;label;"a, b, c"\n"x,1.png";"wren, small";2\n')
    assert split_of(manifest(tmp_path / "list.csv"))["train"] == {"wren, small": ["x,1.png"]}


def test_paths_are_below_the_root_however_they_are_written(tmp_path):
    root, lists = tmp_path / "photos", tmp_path / "lists"
    lists.mkdir()
    (root / "in").mkdir(parents=True)
    (tmp_path / "link").symlink_to(root)
    picture(3).save(root / "in/a.png")
    for path in ("in/a.png", root / "in/a.png", f"{root}/x/../in/a.png"):
        (lists / "list.csv").write_text(f"path,label\n{path},x\n")
        part = open_data(f"manifest:{lists / 'list.csv'}", root=str(root))["train"]
        assert part.name(0) == "in/a.png"
        assert part[0][0].size == (40, 30)
    assert open_data(f"manifest:{lists / 'list.csv'}", root=str(tmp_path / "link"))["train"].name(0) == "in/a.png"
    (root / "list.csv").write_text(f"path,label\n{root}/in/a.png,x\n")  # below the manifest's own folder
    assert manifest(root / "list.csv")["train"].name(0) == "in/a.png"
    with refused(f"path='{root}/x/../in/a.png' leaves {lists}; give the folder that holds all images with --root"):
        manifest(lists / "list.csv")
    with refused(f"path='{root}/x/../in/a.png' leaves {root}/x;"):
        open_data(f"manifest:{lists / 'list.csv'}", root=f"{root}/x")
    with refused(f"root={root} is the folder of a manifest's paths, folder has none; leave it out"):
        open_data(f"folder:{root}", root=str(root))


def test_a_split_whose_classes_cross_is_merged_where_it_is_asked_for(tmp_path):
    rows = "\n".join(f"{c}{i}.png,{c},{'train' if i else 'test'}" for c in "abcd" for i in range(3))
    (tmp_path / "list.csv").write_text(f"path,label,split\n{rows}\n")
    with refused("train and test share 4 classes (a, b, c, …)", "--merge joins all parts and splits their classes anew"):
        check_trainable(open_data(f"manifest:{tmp_path / 'list.csv'}"))
    whole = open_data(f"manifest:{tmp_path / 'list.csv'}", merge=True)
    check_trainable(whole)
    assert {c: names for part in split_of(whole).values() for c, names in part.items()} == {
        c: [f"{c}{i}.png" for i in range(3)] for c in "abcd"
    }


MANIFESTS = [
    (
        "path,name\na.png,x\n",
        "training needs labels, but it has no column label, labels, class, class_name, classname, category, target, targets or species; "
        "it has 'path', 'name'; rename the one that is meant to label",
    ),
    ("path,labl\na.png,x\n", "it has 'path', 'labl'; rename 'labl' to label"),
    ("pth,label\na.png,x\n", r"has no column path, paths, file, .* or img_path; it has 'pth', 'label'; rename 'pth' to path"),
    ("path,Image,label\na.png,b.png,x\n", r"has 2 columns that could be the path \('path', 'Image'\); rename or remove all but one"),
    ("path,class,label\na.png,b,x\n", r"has 2 columns that could be the label \('class', 'label'\)"),
    ("path,label,split,Set\na.png,b,train,x\n", r"has 2 columns that could be the split \('split', 'Set'\)"),
    ("path,label\n,x\n", "row 1 has no path; fill it or remove the row"),
    ("path,label\na.png,x\nb.png,\n", "row 2 has no label"),
    (
        "path,label\n../a.png,x\n",
        r"row 1: path='../a.png' leaves /.*; give the folder that holds all images with --root, or use paths below it",
    ),
    ("path,label\n/etc/a.png,x\n", "path='/etc/a.png' leaves /"),
    ("path,label\nx/../../a.png,x\n", "leaves /"),
    ("path,label\n..,x\n", "path='..' leaves /"),
    ("path,label,path\na.png,x,b.png\n", "has 2 columns 'path'; keep one"),
    ("path,label\n", "holds no items"),
    ("", "cannot be read as a table"),
    ("path,label,split\na.png,x,trian\n", "split='trian' is unknown"),
    ("path,label,x1\na.png,x,3\n", "has x1 but not all of x1, y1, x2, y2; give all four or none"),
    ("path,label,x1,y1,x2,y2\na.png,x,3,3,2,9\n", r"row 1: box=\(3, 3, 2, 9\) must have 0 <= x1 < x2"),
    ("path,label,x1,y1,x2,y2\na.png,x,3,3,b,9\n", "row 1: box=.* must be four numbers"),
    ("path,label,is_query\na.png,x,maybe\n", "row 1: is_query='maybe' must be true or false"),
    ("path,label,is_query,is_gallery\na.png,x,1,1\n", "row 1 is both query and gallery"),
    ("path,label\n" + "a.png,x\n" * 5, r"train has one class only \('x'\)"),
]


@pytest.mark.parametrize(("text", "message"), MANIFESTS, ids=[message[:30] for _, message in MANIFESTS])
def test_bad_manifests_are_refused_in_one_line(tmp_path, text, message):
    (tmp_path / "list.csv").write_text(text)
    with pytest.raises(InputError, match=message) as refusal:
        check_trainable(manifest(tmp_path / "list.csv"))
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
    with refused(f"bad.csv: row 4: path='{link}' leaves {data}; give the folder that holds all images with --root"):
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
