"""Whatever is wrong with an index, its queries or its data is told in one line, and nothing is lost."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from obdsd.errors import InputError
from obdsd.models import Embedder
from obdsd.search import Index
from tests.data.trees import refused
from tests.fuzzing import damaged, fuzz, only_refuses
from tests.search.conftest import QUIET, photo

REMEDY = "restore it, or build the index anew"


@pytest.fixture
def index(place):
    return Index.open(place / "photos.index")


def changed(folder, **fields):
    """Write other settings."""
    settings = json.loads((folder / "index.json").read_text())
    (folder / "index.json").write_text(json.dumps({**settings, **fields}))


def test_an_index_that_is_none_is_refused(place, tmp_path):
    with refused("nowhere: no such folder; give an index, as obdsd index MODEL DATA --out photos.index writes"):
        Index.open(tmp_path / "nowhere")
    with refused("photos: is a folder without index.json; give an index, as obdsd index MODEL DATA --out photos.index writes"):
        Index.open(place / "photos")
    with refused("0.png: is a file; give an index"):
        Index.open(place / "photos" / "ant" / "0.png")


def test_settings_of_another_version_or_none_are_refused(place, index):
    folder, before = index.path, (index.path / "index.json").read_text()
    changed(folder, format=2)
    with refused("index.json: is an index of another version of obdsd (format 2, not 1); update obdsd"):
        Index.open(folder)
    for text, words in {
        "{": "is not JSON",
        "[]": "must hold named fields",
        "{}": "is not what obdsd index writes (KeyError 'generation')",
    }.items():
        (folder / "index.json").write_text(text)
        with refused(f"index.json: {words}", REMEDY):
            Index.open(folder)
    (folder / "index.json").write_text(before)
    for wrong in (
        {"kind": "tree"},
        {"items": 0},
        {"items": True},
        {"dim": "8"},
        {"sources": [{}]},
        {"sources": [{**vars(index.settings.sources[0]), "prefix": 3}]},
        {"files": {}},
        {"files": {**json.loads(before)["files"], "items": ["../../x", 1, ""]}},
        {"thresholds": {"0.01": {}}},
        {"thresholds": {"x": {"similarity": 1}}},
    ):
        changed(folder, **wrong)
        with refused("index.json: is not what obdsd index writes", REMEDY):
            Index.open(folder)
        (folder / "index.json").write_text(before)
    assert Index.open(folder).items == index.items


@pytest.mark.parametrize("file", ["vectors", "items", "model.json", "model.safetensors"])
def test_a_file_that_is_damaged_or_missing_is_named(index, place, file):
    path, photo = index.path / index.settings.files[file].name, place / "photos" / "bee" / "0.png"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with refused(f"{path.name}: is not what was written there, it is damaged or of another index; {REMEDY}"):
        Index.open(index.path).search(photo, how=QUIET)
    path.unlink()
    with refused(f"{path.name}: no such file; {REMEDY}"):
        Index.open(index.path).search(photo, how=QUIET)
    path.write_bytes(content)
    assert Index.open(index.path).search(photo, 1, how=QUIET)[0].hits[0].name == "bee/0.png"


def test_a_re_ranker_whose_work_is_damaged_is_fitted_again(index):
    before = index.search("bee/0.png", 3, rerank="alpha-qe")
    (file,) = index.path.glob("rerank-*.npz")
    file.write_bytes(b"x")
    assert Index.open(index.path).search("bee/0.png", 3, rerank="alpha-qe") == before


def test_vectors_that_do_not_go_with_the_settings_are_refused(index):
    for field, words in {"dim": "not 36 of length 9 (flat)", "kind": "not 36 of length 8 (hnsw)"}.items():
        before = (index.path / "index.json").read_text()
        changed(index.path, **{field: {"dim": 9, "kind": "hnsw"}[field]})
        with refused("holds 36 vectors of length 8 (IndexFlatIP)", words, REMEDY):
            Index.open(index.path)
        (index.path / "index.json").write_text(before)
    changed(index.path, items=35)
    with refused("its table of items does not go with index.json", REMEDY):
        Index.open(index.path)


def reader(name):
    """Opens an index one of whose files is damaged, with the checksum of the damage: as far as a reader can be led."""
    from obdsd.search.folder import stored

    def read(path):
        folder = path.parent
        if name != "index.json":
            settings = json.loads((folder / "whole.json").read_text())
            settings["files"][name] = [*stored(folder, path.name)]
            (folder / "index.json").write_text(json.dumps(settings))
        index = Index.open(folder)
        index.search(index.items[0].name, 3)

    return read


@pytest.mark.parametrize("name", ["index.json", "items"])
@fuzz
@given(data=st.data())
def test_damaged_files_are_read_or_refused_in_one_line(whole, tmp_path_factory, name, data):
    """But for FAISS's own file, of which only the checksum is looked at."""
    folder = fuzzed(whole, tmp_path_factory)
    settings = json.loads((folder / "whole.json").read_text())
    path = folder / ("index.json" if name == "index.json" else settings["files"][name][0])
    content = (folder / ("whole.json" if name == "index.json" else f"whole-{name}")).read_bytes()
    path.write_bytes(data.draw(damaged(content)))
    assert only_refuses(reader(name), path)
    path.write_bytes(content)


def fuzzed(whole, tmp_path_factory):
    """A copy of the index for all examples, with its files beside it as they were."""
    folder = tmp_path_factory.getbasetemp() / "fuzzed.index"
    if not folder.exists():
        shutil.copytree(whole / "photos.index", folder)
        shutil.copy(folder / "index.json", folder / "whole.json")
        shutil.copy(folder / "items-1.parquet", folder / "whole-items")
    return folder


def test_queries_that_are_none_are_refused(index, place, tmp_path, monkeypatch):
    monkeypatch.chdir(place)
    Path("note.txt").write_text("no image")
    Path("empty").mkdir()
    Path("cut.png").write_bytes(Path("photos/ant/0.png").read_bytes()[:90])
    np.savez("long.npz", x=np.ones((2, 9), dtype=np.float32), names=["one", "two"])
    np.savez("zero.npz", x=np.array([[0] * 8, [np.nan] * 8], dtype=np.float32), names=["zero", "nan"])
    for query, words in {
        "note.txt": "note.txt: cannot be read as an image",
        "cut.png": "cut.png: cannot be read as an image",
        "empty": "empty: holds no image (.jpg,",
        "bee/0.pgn": "'bee/0.pgn' is no file, no folder and no item of the index; did you mean bee/0.png?",
        "note.tx": "'note.tx' is no file, no folder and no item of the index; did you mean note.txt?",
        "qqqqqqq": "'qqqqqqq' is no file, no folder and no item of the index; items have names such as ant/0.png",
        "long.npz:one": "long.npz:one: has length 9, but the index wants 8; give rows of the model that made the index",
        "long.npz:tow": "long.npz: has no row 'tow'; did you mean 'two'?",
        "long.npz:qqqq": "long.npz: has no row 'qqqq'; names are such as 'one'",
        "zero.npz:zero": "zero.npz:zero: holds NaN or infinity, or only zeros; give another row",
        "zero.npz:nan": "zero.npz:nan: holds NaN or infinity, or only zeros",
        "nothing.npz:one": "nothing.npz: no such file",
    }.items():
        with refused(words):
            index.search(query, how=QUIET)
    with refused("queries= must hold something to search for"):
        index.search([])
    with refused("k=0 must be a whole number of 1 or more"):
        index.search("bee/0.png", 0)
    with refused("within='dgo' is no label of the index; its labels, the most alike first: dog, "):
        index.search("bee/0.png", within="dgo")
    with refused("within='zebra' is no label of the index; its labels, the most alike first: ant, bee, cat, dog"):
        index.search("bee/0.png", within="zebra")
    with refused("rerank=difusion is not known; did you mean diffusion?"):
        index.search("bee/0.png", rerank="difusion")


def test_an_image_asked_of_an_index_of_rows_is_refused(place):
    Embedder("features", features=6, dim=5).save(place / "head")
    np.savez(place / "x.npz", x=np.random.default_rng(1).normal(size=(6, 6)).astype(np.float32))
    index = Index.build(str(place / "head"), str(place / "x.npz"), place / "x.index", how=QUIET)
    with refused("0.png: is an image, but the index holds rows", "give an item's name, or FILE:NAME of an embeddings file"):
        index.search(place / "photos" / "bee" / "0.png")
    with refused("has length 5, but the index wants 6; give the features that its model takes"):
        index.search(np.ones((1, 5), dtype=np.float32))
    with refused("within='a' is no label of the index; its items have no labels; leave it out"):
        index.search("row 0", within="a")


def test_thresholds_that_are_none_are_refused(index):
    for wrong in ({0: {"similarity": 0.5}}, {0.01: {}}, {0.01: {"similarity": float("nan")}}, {1: {"similarity": 0.5}}):
        with refused("must be a rate between 0 and 1 with a finite similarity; measure it anew"):
            index.set_thresholds(wrong)
    with refused("has no threshold for false_match_rate=0.01; none was measured; to measure it: obdsd calibrate"):
        index.threshold(0.01)
    with refused("has no threshold for false_match_rate=0.05; it has 0.001, 0.01; to measure it: ", "DATA --rates 0.05,0.01,0.001"):
        index.set_thresholds({0.01: {"similarity": 0.5}, 0.001: {"similarity": 0.6}}).threshold(0.05)


def test_changes_that_cannot_be_are_refused_and_nothing_is_changed(index, place, tiny):
    before = (index.path / "index.json").read_bytes()
    names = [item.name for item in index.items]
    other = Embedder("tiny-conv", dim=8, seed=4)
    (place / "none").mkdir()
    photo(place / "birds" / "owl" / "0.png", 1, 90)
    photo(place / "more" / "bee" / "0.png", 1, 90)
    photo(place / "photos" / "more" / "bee" / "0.png", 1, 90)
    shutil.copytree(place / "photos", place / "copy")
    refusals = {
        "'bee/99.png' is no item of the index; did you mean bee/": lambda: index.remove(["bee/0.png", "bee/99.png"]),
        "'qqq' is no item of the index; names are such as ant/0.png; nothing was removed": lambda: index.remove(["qqq"]),
        "photos.index: nothing would be left in the index; remove the folder, if that is meant": lambda: index.remove(names),
        "none: holds no image (.jpg, ": lambda: index.add(f"folder:{place / 'none'}"),
        "photos.index: is an index of another model; choose another place, or remove it": lambda: Index.build(
            other, f"folder:{place / 'photos'}", index.path
        ),
        f"photos.index: is an index of other data (folder:{place / 'photos'}); to add these: obdsd index": lambda: Index.build(
            str(tiny), f"folder:{place / 'birds'}", index.path
        ),
        "photos: is a folder with other files; choose a place where nothing is": lambda: Index.build(
            str(tiny), f"folder:{place / 'photos'}", place / "photos"
        ),
        "0.png is no folder that can be written to); choose another place": lambda: Index.build(
            str(tiny), f"folder:{place / 'photos'}", place / "photos" / "bee" / "0.png" / "x"
        ),
        "rerank=k-reciprocl is not known": lambda: Index.build(
            str(tiny), f"folder:{place / 'photos'}", place / "new.index", rerank=["k-reciprocl"]
        ),
        "holds embeddings, but model=": lambda: index.add(rows_file(place)),
        "which collection moved there cannot be told; the index has folder:": lambda: index.refresh(rows_file(place)),
    }
    for line, call in refusals.items():
        with pytest.raises(InputError, match=re.escape(line)) as refusal:
            call()
        assert "\n" not in str(refusal.value)
        assert (index.path / "index.json").read_bytes() == before
    assert not (place / "new.index").exists()
    index.refresh(how=QUIET)  # now it has more/bee/0.png
    with refused("more: 1 of its items have names that are in the index: bee/0.png; rename its folder"):
        index.add(f"folder:{place / 'more'}", how=QUIET)


def rows_file(place):
    np.savez(place / "rows.npz", x=np.eye(8, dtype=np.float32))
    return str(place / "rows.npz")


def test_photos_that_are_gone_are_told_with_the_command_that_helps(index, place):
    (place / "photos").rename(place / "moved")
    command = f"obdsd index {index.path} --refresh folder:NEW_PLACE"
    with refused(f"photos.index: its data are no longer at {place / 'photos'}; if they moved: {command}; nothing was changed"):
        index.refresh(how=QUIET)
    with refused("no such folder"):
        index.refresh(f"folder:{place / 'nowhere'}", how=QUIET)


def test_of_two_collections_the_one_that_is_gone_moved(index, place):
    photo(place / "birds" / "owl" / "0.png", 1, 90)
    index = index.add(f"folder:{place / 'birds'}", how=QUIET)
    shutil.copytree(place / "photos", place / "copy")
    with refused("copy: which collection moved there cannot be told; the index has folder:", "; give it the name it had"):
        index.refresh(f"folder:{place / 'copy'}", how=QUIET)
    (place / "photos").rename(place / "moved")
    index = index.refresh(f"folder:{place / 'moved'}", how=QUIET)
    assert index.change == (37, 0, 0, 0, 0)
    assert [source.data for source in index.settings.sources] == [f"folder:{place / name}" for name in ("moved", "birds")]
    assert all(index.file(number).is_file() for number in range(37))


def test_names_that_came_to_be_in_two_collections_are_refused(index, place):
    photo(place / "birds" / "owl" / "0.png", 1, 90)
    index = index.add(f"folder:{place / 'birds'}", how=QUIET)
    photo(place / "photos" / "owl" / "0.png", 2, 90)
    with refused("1 names are in two collections of the index: owl/0.png; rename these files in one of them"):
        index.refresh(how=QUIET)
    assert len(Index.open(index.path).items) == 37


def test_an_index_begun_with_another_model_is_not_gone_on_with(place, tiny):
    out, data = place / "new.index", f"folder:{place / 'photos'}"
    photo(place / "photos" / "bee" / "bad.png", 1, 90)
    (place / "photos" / "bee" / "bad.png").write_bytes(b"no image")
    with refused("photos/bee/bad.png: cannot be read as an image (", "); replace or remove it, or leave it out with --skip-unreadable"):
        Index.build(str(tiny), data, out, how=QUIET)
    with refused("new.index: is an index that is not complete; run the same obdsd index command again"):
        Index.open(out)
    with refused("new.index: was begun with another model; go on with that one, or remove the folder"):
        Index.build(Embedder("tiny-conv", dim=8, seed=4), data, out, how=QUIET)
    kept = out / "partial" / "000000.npz"
    shutil.copy(kept, out / "partial" / "000001.npz")
    kept.write_bytes(kept.read_bytes()[:100])  # what cannot be read of it is embedded again
    index = Index.build(str(tiny), data, out, how=QUIET, skip_unreadable=True)
    assert index.change.items == 36
    assert 0 < index.change.embedded < 36
    assert index.refresh(how=QUIET).change == (36, 0, 0, 0, 0)  # it remembers how its data are opened
    with refused("bad.png"):
        index.refresh(how=QUIET, skip_unreadable=False)
    assert index.refresh(how=QUIET, skip_unreadable=True).change == (36, 0, 0, 0, 0)
