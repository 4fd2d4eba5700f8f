"""`obdsd index` and `obdsd search`: what they print, what they write, what they refuse."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from PIL import Image

from obdsd.data.folders import SUFFIXES
from obdsd.search import Index

HERE = ("--device", "cpu", "--workers", 0)


@pytest.fixture
def indexed(made, obdsd, tmp_path):
    """`x.index` of the images of `list.csv`."""
    assert obdsd("index", "tiny", "manifest:list.csv", "--out", tmp_path / "x.index", *HERE)[0] == 0
    return tmp_path / "x.index"


def test_an_index_is_built_changed_and_told_of(obdsd, made, tmp_path):
    out, photos = tmp_path / "x.index", tmp_path / "photos"
    for name in ("ant", "cat"):
        (photos / name).mkdir(parents=True)
        for i in range(4):
            shutil.copy(made / f"{name}-{'train' if name == 'ant' else 'query'}-{i}.png", photos / name)
    code, printed, _ = obdsd("index", "tiny", f"folder:{photos}", "--out", out, "--kind", "hnsw", *HERE)
    assert code == 0
    first, second, third = printed.splitlines()
    assert re.fullmatch(rf"{out}: 8 items, vectors of length 8; 8 new, 0 changed, 0 gone; 8 embedded in \d+ s", first)
    assert second == "hnsw: finds 100.0 % of the 10 nearest items that an exact search finds"
    assert third == f"search it with: obdsd search {out} PHOTO.jpg"
    shutil.copy(made / "bee-train-0.png", photos / "ant" / "bee.png")
    for words, line in (
        (["--refresh"], "9 items, vectors of length 8; 1 new, 0 changed, 0 gone; 1 embedded in "),
        (["--refresh"], "9 items, vectors of length 8; 0 new, 0 changed, 0 gone; 0 embedded\n"),
        (["--remove", "ant/bee.png", "cat/cat-query-0.png"], "7 items, vectors of length 8; 0 new, 0 changed, 2 gone; 0 embedded\n"),
        (["--add", f"manifest:{made / 'list.csv'}"], "47 items, vectors of length 8; 40 new, 0 changed, 0 gone; 33 embedded"),
        (["--kind", "flat"], "47 items, vectors of length 8; 0 new, 0 changed, 0 gone; 0 embedded\n"),
        (["--rerank", "alpha-qe( neighbours=3)"], "47 items, vectors of length 8\nre-rankers: alpha-qe(neighbours=3) (fitted)\n"),
    ):
        code, printed, told = obdsd("index", out, *words, *HERE)
        assert (code, told) == (0, "")
        assert line in printed
    shutil.copy(made / "bee-train-1.png", photos / "ant")
    for state in ("fitted", "kept"):  # a change fits them anew, and a look that finds none keeps them
        assert f"re-rankers: alpha-qe(neighbours=3) ({state})\n" in obdsd("index", out, "--refresh", *HERE)[1]
    Index.open(out).set_thresholds({0.01: {"similarity": 0.5, "data": "held.npz"}})
    code, printed, told = obdsd("index", out)
    assert (code, told) == (0, "")
    assert printed.splitlines() == [
        f"{out}: 48 items, vectors of length 8",
        "re-rankers: alpha-qe(neighbours=3) (kept)",
        f"items of folder:{photos}: 8",
        f"items of manifest:{made / 'list.csv'}: 40",
        "4 labels: cat (15), ant (13), dog (12), bee (8)",
        "model: tiny-conv, head linear, images of 32 px",
        "false-match rate 0.01: similarity 0.500, measured on held.npz",
    ]
    shutil.move(photos, tmp_path / "moved" / "photos")
    assert (
        "48 items, vectors of length 8; 0 new, 0 changed, 0 gone; 0 embedded"
        in obdsd("index", out, "--refresh", f"folder:{tmp_path / 'moved' / 'photos'}", *HERE)[1]
    )
    assert Index.open(out).file(0).is_file()


def test_every_photo_is_in_the_index_and_what_is_not_read_is_told(obdsd, made, tmp_path):
    """Images beside the class folders have no label; files of other kinds are counted by their suffixes, whenever the folder is read."""
    out, photos = tmp_path / "x.index", tmp_path / "photos"
    (photos / "ant").mkdir(parents=True)
    for i in range(3):
        shutil.copy(made / f"ant-train-{i}.png", photos / "ant")
    shutil.copy(made / "bee-train-0.png", photos / "loose.png")
    (photos / "ant" / "drawing.svg").touch()
    told = f"obdsd: {photos}: 1 .svg is not read; formats are {', '.join(SUFFIXES)}\n"
    assert obdsd("index", "tiny", f"folder:{photos}", "--out", out, *HERE)[2] == told
    assert {item.name: item.label for item in Index.open(out).items} == {
        **{f"ant/ant-train-{i}.png": "ant" for i in range(3)},
        "loose.png": None,
    }
    shutil.copy(made / "bee-train-1.png", photos / "another.png")
    code, printed, line = obdsd("index", out, "--refresh", *HERE)
    assert (code, line) == (0, told)
    assert "5 items, vectors of length 8; 1 new, 0 changed, 0 gone; 1 embedded" in printed
    assert obdsd("search", out, "loose.png", "--k", 1, "--json")[0] == 0
    line = obdsd("embed", "tiny", f"folder:{photos}", "--out", tmp_path / "x.npz", *HERE)[2]
    assert line == f"obdsd: {photos}: 2 images beside the class folders are left out: another.png, loose.png\n{told}"


def test_vectors_go_to_milvus_and_are_found_where_they_moved(obdsd, refused, indexed, tmp_path):
    words = ("search", indexed, "cat-query-1.png", "--device", "cpu")
    found = obdsd(*words)[1]
    code, printed, _ = obdsd("index", indexed, "--store", f"milvus:{tmp_path / 'x.db'}", *HERE)
    assert code == 0
    first, second = printed.splitlines()
    assert first.endswith("40 items, vectors of length 8; 0 new, 0 changed, 0 gone; 0 embedded")
    assert re.fullmatch(rf"vectors: milvus:{tmp_path}/x\.db, collection obdsd_x_[0-9a-f]{{8}}", second)
    assert obdsd(*words)[1] == found
    (tmp_path / "x.db").rename(tmp_path / "y.db")
    assert refused(*words).startswith(f"milvus:{tmp_path}/x.db: no such file; restore it, or if it moved: obdsd index INDEX --store")
    assert obdsd(*words, "--store", f"milvus:{tmp_path / 'y.db'}")[1] == found


def test_what_is_found_is_a_table_json_or_a_page(obdsd, indexed, tmp_path):
    words = ("search", indexed, "cat-query-1.png", "--k", 3, "--device", "cpu")
    index = Index.open(indexed)
    (answer,) = index.search("cat-query-1.png", 3)
    assert all(hit.similarity == hit.score for hit in answer.hits)
    assert answer.most_alike == answer.hits[0].similarity
    code, printed, _ = obdsd(*words)
    assert code == 0
    assert printed.splitlines() == ["cat-query-1.png"] + [
        f"   {rank}  {hit.similarity:6.3f}  {hit.label}  {hit.name}" for rank, hit in enumerate(answer.hits, start=1)
    ]
    code, printed, _ = obdsd(*words, "--json", "--rerank", "alpha-qe", "--within", "dog", "--out", tmp_path / "x.html")
    record = json.loads(printed)
    assert [record[name] for name in ("index", "k", "rerank", "threshold", "within")] == [str(indexed), 3, "alpha-qe", None, "dog"]
    (found,) = record["answers"]
    assert (found["query"], found["nothing_alike"]) == ("cat-query-1.png", False)
    assert [hit["rank"] for hit in found["found"]] == [1, 2, 3]
    assert {hit["label"] for hit in found["found"]} == {"dog"}
    assert all(Path(hit["file"]).is_file() for hit in found["found"])
    page = (tmp_path / "x.html").read_text()
    assert page.count("<img ") == 4
    assert "<span>cat-<wbr>query-<wbr>1.png</span>" in page  # a line ends between words
    assert obdsd(*words, "--rerank", "alpha-qe")[1].count("  score ") == 3


def test_nothing_alike_is_said_in_table_json_and_page(obdsd, indexed, tmp_path):
    index = Index.open(indexed)
    most = index.search("cat-query-1.png", 1)[0].hits[0].similarity
    index.set_thresholds({0.01: {"similarity": 0.0}, 0.001: {"similarity": 1.0}})
    words = ("search", indexed, "cat-query-1.png", "--device", "cpu")
    assert obdsd(*words)[1].count("\n") == 6
    for flags in (["--threshold", 1], ["--false-match-rate", 0.001]):
        code, printed, _ = obdsd(*words, *flags, "--out", tmp_path / "x.html")
        line = f"nothing alike: the nearest item has {most:.3f}, less than 1.000 (--threshold -1 finds all)"
        assert (code, printed) == (0, f"cat-query-1.png\n      {line}\npage: {tmp_path / 'x.html'}\n")
        assert f"Nothing alike: the nearest item has a similarity of {most:.3f}." in (tmp_path / "x.html").read_text()
        assert json.loads(obdsd(*words, *flags, "--json")[1])["answers"] == [
            {"query": "cat-query-1.png", "nothing_alike": True, "most_alike": pytest.approx(most, abs=1e-5), "found": []}
        ]


def test_names_are_text_on_the_page_and_moved_photos_leave_it_whole(obdsd, tmp_path):
    photos = tmp_path / "photos"
    evil = '<img src=x onerror="alert(1)">&'
    for i in range(3):
        (photos / evil).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 7), (50 * i, 9, 9)).save(photos / evil / f"{i}\x1b[2J'.png")
    assert obdsd("index", "tiny", f"folder:{photos}", "--out", tmp_path / "x.index", *HERE)[0] == 0
    name = f"{evil}/0\x1b[2J'.png"
    words = ("search", tmp_path / "x.index", name, "--out", tmp_path / "x.html", "--device", "cpu")
    code, printed, told = obdsd(*words)
    assert (code, told) == (0, "")
    assert "\x1b" not in printed
    page = (tmp_path / "x.html").read_text()
    assert "<img src=x" not in page
    assert page.count('<img src="data:image/webp;base64,') == 3
    assert not re.search(r"(src|href)=\"(?!data:)", page)
    photos.rename(tmp_path / "moved")
    code, _, told = obdsd(*words)
    assert code == 0
    assert told.startswith("obdsd: 3 pictures could not be read, the first is <img")
    assert f"if the photos moved: obdsd index {tmp_path / 'x.index'} --refresh DATA" in told
    assert (tmp_path / "x.html").read_text().count("no picture") == 3


def test_an_index_in_the_place_of_the_query_is_named(refused, indexed):
    assert refused("search", "ant-train-0.png", indexed).startswith("the index comes first, then what to search for: obdsd search ")


def test_rows_of_embed_search_the_index_of_its_model(obdsd, indexed, tmp_path):
    assert obdsd("embed", "tiny", "manifest:list.csv", "--out", tmp_path / "rows.parquet", *HERE)[0] == 0
    name = pyarrow.parquet.read_table(tmp_path / "rows.parquet")["names"].to_pylist()[5]
    record = json.loads(obdsd("search", indexed, f"{tmp_path}/rows.parquet:{name}", "--k", 1, "--json")[1])
    assert record["answers"][0]["found"][0] == {
        "rank": 1,
        "name": name,
        "label": name.split("-")[0],
        "similarity": 1.0,
        "score": 1.0,
        "file": str(Index.open(indexed).file(5)),
    }


REFUSED = [
    (["index", "tiny", "manifest:list.csv"], "--out must be given: obdsd index MODEL DATA --out photos.index"),
    (["index", "tiny"], "say what to do: DATA and --out for a new index; --add, --remove, --refresh or --rerank to change one"),
    (["index", "tiny", "--out", "y.index"], "DATA must be one collection, not 0: obdsd index MODEL DATA --out photos.index, with MODEL"),
    (["index", "tiny", "a", "b", "--out", "y.index"], "DATA must be one collection, not 2"),
    (["index", "x.index", "--add", "--refresh"], "--add and --refresh are given; do one after the other"),
    (["index", "x.index", "--refresh", "--out", "y.index"], "--out y.index is for a new index, --refresh changes one that is there"),
    (["index", "x.index", "--add"], "--add takes one collection, not 0: obdsd index photos.index --add DATA"),
    (["index", "x.index", "--remove"], "--remove needs the names of items: obdsd index photos.index --remove NAME …"),
    (["index", "x.index", "--refresh", "a", "b"], "--refresh takes at most one collection, the one that moved"),
    (["index", "x.index", "--refresh"], "x.index: no such folder; give an index"),
    (["index", "tiny", "--refresh"], "tiny: is a folder without index.json; give an index"),
    (["index", "x.index", "--refresh", "--size", "64"], "--size 64 is for a new index, this one has its model; leave it out"),
    (["index", "tiny", "manifest:list.csv", "--out", "list.csv"], "list.csv: cannot be written ("),
    (["index", "tiny", "manifest:list.csv", "--out", "tiny"], "tiny: is a folder with other files; choose a place where nothing is"),
    (["index", "tiny", "manifest:list.csv", "--out", "y.index", "--kind", "hsnw"], "--kind hsnw must be one of flat, hnsw, ivf; did you"),
    (["index", "tiny", "manifest:list.csv", "--out", "y.index", "--store", "milvus:x"], "--store milvus:x must be folder, milvus:FILE.db"),
    (["index", "tiny", "manifest:list.csv", "--out", "y.index", "--store", "milvus:x.db", "--kind", "ivf"], "--kind ivf is for vectors"),
    (["index", "tiny", "manifest:list.csv", "--out", "y.index", "--rerank", "difusion"], "--rerank difusion is not known; did you mean"),
    (["index", "tiny", "manifest:list.csv", "--out", "y.index", "--engine", "onxn"], "--engine 'onxn' must be torch, onnx, or a file that"),
    (["index", "tiny", "manifest:list.csv", "--out", "y.index", "--engine", "onnx", "--device", "mps"], "--device mps is for --engine"),
    (["index", "tiny", "manifest:list.csv", "--out", "y.index", "--engine", "y.onnx"], "y.onnx: no such file; check the path"),
    (["index", "tiny", "list.csv", "--out", "y.index"], "DATA 'list.csv' must be NAME:PATH, glyphs, or an embeddings file"),
    (["index", "tyni", "manifest:list.csv", "--out", "y.index"], "MODEL 'tyni' does not exist"),
    (["index", "manifest:list.csv", "tiny", "--out", "y.index"], "DATA 'tiny' is a model; the model comes first"),
    (["search", "x.index"], "QUERIES must be given: obdsd search INDEX QUERIES [QUERIES …] [options]"),
    (["search", "x.index", "ant-train-0.png"], "x.index: no such folder; give an index"),
    (["search", "x.index", "a.png", "--k", "0"], "--k 0 must be 1 or more"),
    (["search", "x.index", "a.png", "--out", "x.htm"], "--out 'x.htm' must end in .html; rename it"),
    (["search", "x.index", "a.png", "--threshold", "1", "--false-match-rate", "0.1"], "--threshold 1 and --false-match-rate 0.1 are given"),
    (["search", "x.index", "a.png", "--threshold", "80"], "--threshold 80 must be a cosine, from -1 to 1; try 0.8"),
    (["search", "x.index", "a.png", "--threshold", "80%"], "--threshold 80% must be a number; write 0.8"),
    (["index", "tiny", "manifest:none.csv", "--out", "y.index", "--store", "milvus:http://a:b@c"], "--store must hold no password; set"),
    (["index", "tf_efficientnet_lite0", "manifest:list.csv", "--out", "y.index"], "MODEL 'tf_efficientnet_lite0' does not exist, and as a "
     "backbone it lacks its weights; did you mean tf_efficientnet_lite0:offline?"),
    (["index", "runs/first", "manifest:list.csv", "--out", "y.index"], "MODEL 'runs/first' does not exist; train it first (obdsd train "
     "DATA --out runs/first), or take tf_efficientnet_lite0:offline"),
    (["data", "suspects", "folder:x"], "folder:x: one word alone must be an embeddings file (.npz, "),
    (["search", "x.index", "a.png", "--kk", "3"], "--kk is no option of obdsd search; did you mean --k?"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "line"), REFUSED, ids=[line[:40] for _, line in REFUSED])
def test_mistakes_are_named_before_any_work(refused, made, words, line):
    before = sorted(made.rglob("*"))
    assert refused(*words).startswith(line)
    assert sorted(made.rglob("*")) == before


def test_what_a_word_means_that_names_nothing(obdsd, refused, made, tmp_path):
    photos = tmp_path / "photos"
    for number, name in enumerate(("animals/birds/owl.png", "animals/birds/owlet.png", "food/nuts/walnut.png")):
        (photos / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(made / f"ant-train-{number}.png", photos / name)
    out = tmp_path / "x.index"
    assert obdsd("index", "tiny", f"folder:{photos}", "--out", out, *HERE)[0] == 0
    assert refused("search", out, "owl.png").endswith("no item of the index; did you mean animals/birds/owl.png?")
    assert refused("search", out, "animals/birds/Owl.PNG").endswith("did you mean animals/birds/owl.png?")
    assert refused("search", tmp_path / "y.index", "owl.png").endswith(f"y.index: no such folder; did you mean {out}?")
    assert refused("search", out, "animals/brids/owlet.png").endswith("did you mean animals/birds/owlet.png?")
    assert refused("index", out, "--remove", "walnut.png").endswith("did you mean food/nuts/walnut.png?; nothing was removed")
    line = refused("search", out, "animals/birds")
    assert line.startswith("'animals/birds' is a folder in the index, with 2 of its items; give one by its name, animals/birds/owl.png, or")
    assert line.endswith(f"its path, {photos}/animals/birds")
    assert obdsd("search", out, line.rpartition(", ")[2], "-k", 1)[1].count("\n") == 4
    assert refused("search", out, "owl", "--within", "foot").endswith("its labels, the most alike first: food, animals")
    Image.new("RGB", (90, 70), (200, 9, 9)).save(tmp_path / "new.jpg")
    assert obdsd("search", out, tmp_path / "new.jpg", "-k", 1)[0] == 0
    assert refused("search", out, tmp_path / "nw.jpg").endswith(f"did you mean {tmp_path / 'new.jpg'}?")
    (tmp_path / "note.jpg").write_text("no image")
    assert re.fullmatch(r".*note.jpg: cannot be read as an image \(.*\); give an image", refused("search", out, tmp_path / "note.jpg"))


def test_one_broken_photo_is_named_once(refused, made, tmp_path):
    (tmp_path / "photos" / "ant").mkdir(parents=True)
    for i in range(3):
        shutil.copy(made / f"ant-train-{i}.png", tmp_path / "photos" / "ant")
    bad = tmp_path / "photos" / "ant" / "bad.png"
    bad.write_bytes((made / "bee-train-0.png").read_bytes()[:900])
    line = refused("index", "tiny", f"folder:{tmp_path / 'photos'}", "--out", tmp_path / "x.index", *HERE)
    reason = line.removeprefix(f"{bad}: cannot be read as an image (").partition(")")[0]
    assert line == f"{bad}: cannot be read as an image ({reason}); replace or remove it, or leave it out with --skip-unreadable"
    assert "not processed" not in line


def test_the_length_of_vectors_is_that_of_the_model(refused, tmp_path):
    np.savez(tmp_path / "x.npz", x=np.ones((3, 9), dtype=np.float32))
    line = refused("index", "head", tmp_path / "x.npz", "--out", tmp_path / "x.index")
    assert line.startswith(f"{tmp_path / 'x.npz'}: vectors have length 9, but MODEL head takes 6; ")
    assert not (tmp_path / "x.index").exists()
