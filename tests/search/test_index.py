"""An index holds a row for each item of its data, and finds what a look at all rows finds."""

import json
import os
import shutil

import faiss
import numpy as np
import pyarrow.parquet
import pytest
import torch

from obdsd.catalogue import RERANKERS
from obdsd.data.embeddings import Vectors, write_vectors
from obdsd.data.items import read_image
from obdsd.data.transforms import evaluation_transform
from obdsd.models import Embedder
from obdsd.search import Index
from tests.search.conftest import CLASSES, EACH, QUIET, photo


def one_by_one(model, paths):
    """The rows of images, without any of the room's code."""
    embedder = Embedder.load(model)
    prepare = evaluation_transform(embedder.preprocessing)
    with torch.inference_mode():
        return torch.cat([embedder(prepare(read_image(path))[None]) for path in paths]).numpy()


def files_of(folder):
    """What an index's settings name, and the vectors and items as FAISS and pyarrow alone see them."""
    settings = json.loads((folder / "index.json").read_text())
    vectors = faiss.read_index(str(folder / settings["files"]["vectors"][0]))
    return settings, vectors.reconstruct_n(0, vectors.ntotal), pyarrow.parquet.read_table(folder / settings["files"]["items"][0])


def test_the_folder_holds_a_row_a_name_a_label_a_size_and_a_time_of_each_photo(whole, tiny):
    settings, rows, table = files_of(whole / "photos.index")
    names = [f"{name}/{i}.png" for name in CLASSES for i in range(EACH)]
    paths = [whole / "photos" / name for name in names]
    assert table["name"].to_pylist() == names
    assert table["label"].to_pylist() == [name.split("/")[0] for name in names]
    assert table["bytes"].to_pylist() == [path.stat().st_size for path in paths]
    assert table["modified"].to_pylist() == [path.stat().st_mtime_ns for path in paths]
    np.testing.assert_allclose(rows, one_by_one(tiny, paths), atol=1e-6)
    assert (settings["format"], settings["kind"], settings["items"], settings["dim"]) == (1, "flat", 36, 8)
    assert sorted(path.name for path in (whole / "photos.index").iterdir() if path.name[0] != ".") == [
        *("index.json", "items-1.parquet", "model", "vectors-1.faiss")
    ]


@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivf"])
def test_what_is_found_is_what_a_look_at_all_rows_finds(place, kind):
    """A name does not find itself; a label leaves only its own."""
    index = Index.open(place / "photos.index").of_kind(kind)
    assert index.settings.recall >= 0.97
    rows, labels = index.rows, np.array([item.label for item in index.items])
    cosines = rows @ rows.T
    np.fill_diagonal(cosines, -np.inf)
    wrong = 0
    for within in (None, "cat"):
        seen = cosines if within is None else np.where(labels == within, cosines, -np.inf)
        truth = np.argsort(-seen, axis=1, kind="stable")[:, :4]
        answers = index.search([item.name for item in index.items], 4, within=within)
        for number, answer in enumerate(answers):
            found = [index.places[hit.name] for hit in answer.hits]
            assert number not in found
            wrong += found != truth[number].tolist()
            np.testing.assert_allclose([hit.similarity for hit in answer.hits], cosines[number, found], atol=1e-6)
            assert within is None or {hit.label for hit in answer.hits} == {within}
            assert [hit.score for hit in answer.hits] == pytest.approx([hit.similarity for hit in answer.hits], abs=1e-6)
    assert wrong == 0 if kind == "flat" else wrong < 8


def test_an_image_finds_itself_and_what_its_name_finds(whole, monkeypatch):
    index = Index.open(whole / "photos.index")
    path = whole / "photos" / "bee" / "3.png"
    (by_name,) = index.search("bee/3.png", 3)
    for image in (path, str(path), [path], read_image(path)):
        (found,) = index.search(image, 4, how=QUIET)
        assert [hit.name for hit in found.hits] == ["bee/3.png", *(hit.name for hit in by_name.hits)]
        assert found.hits[0].similarity == pytest.approx(1, abs=1e-5)
        assert found.hits[0].file == path
    monkeypatch.chdir(whole / "photos")  # the item's own file is the item
    assert index.search("bee/3.png", 3) == [by_name]


def test_a_file_of_an_items_name_that_is_another_file_is_meant_as_a_file(whole, tmp_path, monkeypatch):
    (tmp_path / "bee").mkdir()
    shutil.copy(whole / "photos" / "cat" / "1.png", tmp_path / "bee" / "3.png")
    monkeypatch.chdir(tmp_path)
    (answer,) = Index.open(whole / "photos.index").search("bee/3.png", 1, how=QUIET)
    assert answer.hits[0].name == "cat/1.png"


def test_a_folder_and_rows_of_a_file_are_queries(whole, tmp_path):
    index = Index.open(whole / "photos.index")
    for number, name in enumerate(("ant/2.png", "dog/5.png")):
        shutil.copy(whole / "photos" / name, tmp_path / f"q{number}.png")
    write_vectors(tmp_path / "rows.parquet", Vectors(7 * index.rows[[3, 30]], names=np.array(["third", "other one"])))
    found = index.search([str(tmp_path), f"{tmp_path}/rows.parquet:other one", f"{tmp_path}/rows.parquet"], 1, how=QUIET)
    assert [answer.hits[0].name for answer in found] == ["ant/2.png", "dog/5.png", "dog/3.png", "ant/3.png", "dog/3.png"]
    assert [answer.query.name for answer in found] == [
        *(f"{tmp_path}/q0.png", f"{tmp_path}/q1.png"),
        *(f"{tmp_path}/rows.parquet:{name}" for name in ("other one", "third", "other one")),
    ]
    assert [answer.hits[0].name for answer in index.search(index.rows[[3, 30]], 1)] == ["ant/3.png", "dog/3.png"]


def test_features_of_a_head_are_searched_as_they_were_indexed(tmp_path):
    """The rows of the data, and those of queries, both go through the model."""
    Embedder("features", features=6, dim=5).save(tmp_path / "head")
    x = np.random.default_rng(1).normal(size=(20, 6)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x, y=np.arange(20) % 5)
    index = Index.build(str(tmp_path / "head"), str(tmp_path / "x.npz"), tmp_path / "x.index", how=QUIET)
    with torch.inference_mode():
        np.testing.assert_allclose(index.rows, Embedder.load(tmp_path / "head")(torch.from_numpy(x)).numpy(), atol=1e-6)
    (answer,) = index.search(f"{tmp_path / 'x.npz'}:row 7", 1)
    assert (answer.hits[0].name, answer.hits[0].label) == ("row 7", "2")
    assert answer.hits[0].similarity == pytest.approx(1, abs=1e-5)
    assert answer.hits[0].file is None


def test_only_what_is_new_or_changed_is_embedded(place):
    """Photos that were touched, copied or renamed are known again."""
    photos, index = place / "photos", Index.open(place / "photos.index")
    assert index.refresh(how=QUIET).change == (36, 0, 0, 0, 0)
    assert index.refresh(how=QUIET).settings.generation == index.settings.generation
    photo(photos / "bee" / "new.png", 900, 95)
    photo(photos / "bee" / "0.png", 901, 95)
    os.utime(photos / "cat" / "1.png", ns=(1, 1))
    (photos / "cat" / "2.png").rename(photos / "cat" / "renamed.png")
    shutil.copy(photos / "dog" / "3.png", photos / "dog" / "copy.png")
    (photos / "ant" / "5.png").unlink()
    index = index.refresh(how=QUIET)
    assert index.change == (37, 3, 1, 2, 2)
    anew = Index.build(Embedder.load(place / "photos.index" / "model"), f"folder:{photos}", place / "anew.index", how=QUIET)
    assert index.items == anew.items
    np.testing.assert_allclose(index.rows, anew.rows, atol=1e-6)


def test_what_was_removed_stays_out_until_it_is_added_again(place):
    index = Index.open(place / "photos.index").remove(["bee/0.png", "cat/8.png"])
    assert index.change == (34, 0, 0, 2, 0)
    assert not {"bee/0.png", "cat/8.png"} & {*index.places}
    assert index.refresh(how=QUIET).change == (34, 0, 0, 0, 0)
    again = index.add(f"folder:{place / 'photos'}", how=QUIET)
    assert again.change == (36, 2, 0, 0, 2)
    assert [item.name for item in again.items] == [f"{name}/{i}.png" for name in CLASSES for i in range(EACH)]


def test_a_second_collection_is_added_and_its_names_are_told_apart(place):
    for i in range(3):
        photo(place / "more" / "bee" / f"{i}.png", 500 + i, 95)
        photo(place / "birds" / "owl" / f"{i}.png", 600 + i, 20)
    index = Index.open(place / "photos.index").add(f"folder:{place / 'birds'}", how=QUIET).add(f"folder:{place / 'more'}", how=QUIET)
    assert index.change == (42, 3, 0, 0, 3)
    assert [item.name for item in index.items][36:] == [f"{prefix}/{i}.png" for prefix in ("owl", "more/bee") for i in range(3)]
    assert index.file(index.places["more/bee/1.png"]) == place / "more" / "bee" / "1.png"
    photo(place / "more" / "bee" / "9.png", 700, 95)
    assert index.refresh(how=QUIET).change == (43, 1, 0, 0, 1)
    again = Index.open(place / "photos.index").remove(["more/bee/9.png"])
    assert again.refresh(how=QUIET).change == (42, 0, 0, 0, 0)


def test_a_collection_that_moved_is_found_again_and_nothing_is_embedded(place):
    (place / "photos").rename(place / "elsewhere")
    index = Index.open(place / "photos.index")
    assert len(index.search("bee/3.png", 2)[0].hits) == 2  # the index is all that a search needs
    moved = index.refresh(f"folder:{place / 'elsewhere'}", how=QUIET)
    assert moved.change == (36, 0, 0, 0, 0)
    assert moved.file(0) == place / "elsewhere" / "ant" / "0.png"
    assert moved.refresh(how=QUIET).change == (36, 0, 0, 0, 0)


def test_the_same_command_again_looks_for_what_is_new(place, tiny):
    photo(place / "photos" / "bee" / "new.png", 900, 95)
    again = Index.build(str(tiny), f"folder:{place / 'photos'}", place / "photos.index", kind="hnsw", how=QUIET)
    assert again.change == (37, 1, 0, 0, 1)
    assert again.settings.kind == "hnsw"


def test_nothing_less_alike_than_the_threshold_is_found(place):
    index = Index.open(place / "photos.index")
    (all_found,) = index.search("bee/3.png", 8)
    middle = (all_found.hits[3].similarity + all_found.hits[4].similarity) / 2
    (some,) = index.search("bee/3.png", 8, threshold=middle)
    assert some.hits == all_found.hits[:4]
    (none,) = index.search("bee/3.png", 8, threshold=1.01)
    assert none.nothing_alike
    assert none.most_alike == pytest.approx(all_found.hits[0].similarity)
    assert none.as_dict()["found"] == []
    index = index.set_thresholds({0.001: {"similarity": 1.01}, 0.01: {"similarity": middle, "fnmr": 0.3}})
    assert json.loads((place / "photos.index" / "index.json").read_text())["thresholds"] == {
        "0.001": {"similarity": 1.01},
        "0.01": {"similarity": middle, "fnmr": 0.3},
    }
    assert index.search("bee/3.png", 8)[0].hits == some.hits  # the largest rate, unless told otherwise
    assert index.search("bee/3.png", 8, threshold=index.threshold(0.001))[0].nothing_alike
    assert index.search("bee/3.png", 8, threshold=-1)[0] == all_found
    index = index.remove(["cat/1.png"])
    assert index.threshold(0.01) == middle  # they belong to the model, not to the items


def test_an_item_that_is_alone_finds_nothing(place):
    index = Index.open(place / "photos.index").remove([f"{name}/{i}.png" for name in CLASSES for i in range(EACH)][1:])
    (answer,) = index.search("ant/0.png")
    assert (answer.hits, answer.most_alike) == ([], None)
    assert json.dumps(answer.as_dict(), allow_nan=False)


@pytest.mark.parametrize("within", [None, "dog"])
def test_a_re_ranker_is_fitted_once_and_again_when_items_change(place, monkeypatch, within):
    index, spec = Index.open(place / "photos.index"), "alpha-qe(neighbours=3)"
    names = [item.name for item in index.items][:20]

    def truth(index):
        """By the re-ranker alone, with all rows at hand: the score of every item for each query."""
        fitted = RERANKERS.build(spec).fit(index.rows)
        scores, positions = fitted.search(index.rows[:20], len(index.items) - 1, np.arange(20))
        rows = [zip(own, others, strict=True) for own, others in zip(scores.tolist(), positions.tolist(), strict=True)]
        return [{index.items[place].name: score for score, place in row if within in (None, index.items[place].label)} for row in rows]

    def agrees(index, expected):
        """The best scores are found, each with an item that has it; of items that are as good as equal, any may come first."""
        for answer, scores in zip(index.search(names, 4, rerank=spec, within=within), expected, strict=True):
            found = [hit.score for hit in answer.hits]
            assert found == pytest.approx(sorted(scores.values(), reverse=True)[:4], abs=1e-5)
            assert found == pytest.approx([scores[hit.name] for hit in answer.hits], abs=1e-5)

    agrees(index, truth(index))
    kept = Index.open(place / "photos.index")
    assert list(kept.settings.rerank) == [spec]
    expected = truth(kept)
    with monkeypatch.context() as patch:
        patch.setattr(type(RERANKERS.build(spec)), "fit", None)
        agrees(kept, expected)
    (answer,) = kept.search("bee/3.png", 4, rerank=spec, threshold=0.0)
    assert [hit.similarity for hit in answer.hits] == pytest.approx(
        [float(kept.rows[kept.places[hit.name]] @ kept.rows[kept.places["bee/3.png"]]) for hit in answer.hits], abs=1e-6
    )
    assert kept.search("bee/3.png", 4, rerank=spec, threshold=1.01)[0].nothing_alike
    changed = kept.remove(["cat/2.png", "cat/5.png", "dog/7.png", "dog/8.png"])
    agrees(changed, truth(changed))
    assert [list(row) for row in truth(changed)] != [list(row) for row in truth(kept)]
