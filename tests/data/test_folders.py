import os

import pytest

from obdsd.data import open_data
from obdsd.data.check import check_trainable
from obdsd.data.folders import SUFFIXES, class_folders, folder
from tests.data.trees import picture, refused, split_of, touch


def test_class_folders_take_images_at_any_depth_and_ignore_the_rest(tmp_path):
    touch(tmp_path, "b/2.PNG", "b/deep/1.webp", "b/notes.txt", "b/._2.png", "b/.cache/3.png", "a/x.tiff", "a/thumbs.db")
    touch(tmp_path, "loose.jpg", ".git/c.jpg", "__MACOSX/b/._2.png", "none/readme.md")
    assert class_folders(tmp_path) == {"a": ["a/x.tiff"], "b": ["b/2.PNG", "b/deep/1.webp"], "none": []}


@pytest.mark.parametrize("name", [b"001.Zebra/caf\xe9.jpg", b"002.caf\xe9/a.jpg"])
def test_a_name_that_is_not_utf8_is_named(tmp_path, name):
    path = os.path.join(os.fsencode(tmp_path), name)
    os.makedirs(os.path.dirname(path))
    with open(path, "wb"):
        pass
    with refused(r"caf\xe9", "is not UTF-8; rename it"):
        class_folders(tmp_path)


def test_a_folder_is_split_by_class(tmp_path):
    touch(tmp_path, "a/notes.txt", *(f"{c}/{i}.png" for c in "abcdef" for i in range(3)))
    photos = folder(tmp_path, seed=1)
    assert photos["train"].class_names != folder(tmp_path, seed=2)["train"].class_names
    found = split_of(photos)
    assert found["train"] | found["test"] == {c: [f"{c}/{i}.png" for i in range(3)] for c in "abcdef"}
    picture(2).save(tmp_path / photos["test"].name(2))
    image, label, index = photos["test"][2]
    assert image.tobytes() == picture(2).tobytes()
    assert photos["test"].name(index) == f"{photos['test'].class_names[label]}/2.png"


def test_a_given_split_is_taken_as_it_is(tmp_path):
    touch(tmp_path, *(f"{place}/{i}.jpg" for place in ("train/a", "train/b", "test/c", "test/d") for i in range(2)))
    photos = folder(tmp_path)
    assert photos["train"].class_names == ("a", "b")
    assert split_of(photos)["test"] == {c: [f"test/{c}/{i}.jpg" for i in range(2)] for c in "cd"}


def test_parts_that_share_classes_are_merged_where_it_is_asked_for(tmp_path):
    touch(tmp_path, *(f"{place}/{c}/{i}.jpg" for place in ("train", "valid", "test") for c in "abcd" for i in range(2)))
    assert list(folder(tmp_path).parts) == ["train", "val", "test"]
    with refused("train and val share 4 classes (a, b, c, …); classes of the test must not train; --merge joins all parts and splits"):
        check_trainable(open_data(f"folder:{tmp_path}"))
    whole = open_data(f"folder:{tmp_path}", merge=True, seed=2)
    check_trainable(whole)
    found = split_of(whole)
    images = {c: sorted(f"{place}/{c}/{i}.jpg" for place in ("train", "valid", "test") for i in range(2)) for c in "abcd"}
    assert {c: sorted(names) for part in found.values() for c, names in part.items()} == images
    assert [len(part) for part in found.values()] == [2, 2]


@pytest.mark.parametrize("names", [("query", "gallery"), ("test",), ("train",), ("Test", "Validation")])
def test_parts_need_no_train_beside_them(tmp_path, names):
    touch(tmp_path, *(f"{name}/{c}/{i}.jpg" for name in names for c in "ab" for i in range(2)))
    found = split_of(folder(tmp_path))
    meant = {"Test": "test", "Validation": "val"}
    assert found == {meant.get(name, name): {c: [f"{name}/{c}/{i}.jpg" for i in range(2)] for c in "ab"} for name in names}


def test_classes_may_be_called_as_parts_are(tmp_path):
    touch(tmp_path, *(f"{c}/{i}.jpg" for c in ("bus", "train", "tram", "ship") for i in range(2)))
    found = split_of(folder(tmp_path))
    assert sorted(name for part in found.values() for name in part) == ["bus", "ship", "train", "tram"]


def test_images_in_the_folder_itself_have_no_labels(tmp_path):
    touch(tmp_path, "b.jpg", "a.PNG", "notes.txt", ".hidden.png", "empty/readme.txt")
    photos = folder(tmp_path)
    assert [photos["test"].name(i) for i in range(2)] == ["a.PNG", "b.jpg"]
    assert len(photos.parts) == 1
    with refused("training needs labels, but it has no class folder with images; expected", "/<class>/<image>"):
        check_trainable(photos)
    touch(tmp_path, "empty/c.jpg")  # a class folder with images: then these count
    assert [len(part) for part in folder(tmp_path).parts.values()] == [1]
    formats = ".jpg, .jpeg, .png, .webp, .bmp, .gif, .tif, .tiff"
    assert folder(tmp_path).remarks == [
        "2 images beside the class folders are left out: a.PNG, b.jpg",
        f"2 .txt are not read; formats are {formats}",
    ]


def test_images_beside_the_class_folders_are_taken_where_that_is_asked_for(tmp_path):
    touch(tmp_path, "b.jpg", "a.png", "owl/1.png", "owl/2.png", "wren/1.png", "wren/x.heic", "wren/y.svg", "wren/z.SVG", "README")
    photos = open_data(f"folder:{tmp_path}", beside=True)
    assert split_of(photos)["unlabelled"] == {"": ["a.png", "b.jpg"]}
    assert photos["unlabelled"].unlabelled
    whole, parts = photos.joined()
    assert [whole.name(i) for i in range(5)] == ["owl/1.png", "owl/2.png", "wren/1.png", "a.png", "b.jpg"]
    assert whole.classes.tolist() == ["owl", "owl", "wren", "", ""]
    assert parts[3:].tolist() == ["unlabelled"] * 2
    assert photos.remarks == [f"2 .svg, 1 without a suffix and 1 .heic are not read; formats are {', '.join(SUFFIXES)}"]
    assert open_data(f"folder:{tmp_path}").parts.keys() == {"train", "test"}


def test_a_folder_without_images_is_refused(tmp_path):
    touch(tmp_path, "notes.txt")
    with refused("notes.txt: is a file, not a folder; give a folder of images"):
        folder(tmp_path / "notes.txt")
    with refused("gone: no such folder; give a folder of images"):
        folder(tmp_path / "gone")
    (tmp_path / "photos").mkdir()
    with refused(f"phots: no such folder; did you mean folder:{tmp_path}/photos?"):
        folder(tmp_path / "phots")
    for _ in range(2):
        with refused("holds no image (.jpg, ", "); expected ", "/<class>/<image>, or ", "/<image> without labels"):
            folder(tmp_path)
        touch(tmp_path, "train/readme.txt", "test/readme.txt")
