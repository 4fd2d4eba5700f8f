import os

import pytest

from obdsd.data.folders import class_folders, folder
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
    touch(tmp_path, "test/a/0.jpg")
    with refused("train and test share 1 classes (a)"):
        folder(tmp_path)


def test_a_folder_without_classes_is_refused(tmp_path):
    with refused("gone: no such folder; give one that holds a folder for each class"):
        folder(tmp_path / "gone")
    for _ in range(2):
        with refused("no class folder with images; expected", "/<class>/<image>"):
            folder(tmp_path)
        touch(tmp_path, "train/readme.txt", "test/readme.txt")
