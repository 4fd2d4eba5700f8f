import os

import pytest

from obdsd.data.folders import class_folders
from tests.data.trees import refused, touch


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
