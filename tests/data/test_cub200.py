import pytest

from obdsd.data import cub200 as module
from obdsd.data.benchmarks import Count
from obdsd.data.cub200 import cub200
from tests.data.trees import refused, split_of, touch, write

FILES = {"001.Zebra": "ab", "002.Yak": "c", "003.Xerus": "de", "004.Ant": "fg", "005.Bee": "h"}
BIRDS = [f"{name}/{letter}.{'JPG' if letter == 'h' else 'jpg'}" for name, letters in FILES.items() for letter in letters]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Counts of the tree below, so that it is complete."""
    monkeypatch.setattr(module, "COUNTS", {"train": Count(3, 5), "test": Count(2, 3)})


def official_cub(root, skip=()):
    touch(root, *(f"images/{path}" for path in BIRDS if path not in skip))
    touch(root, "images/001.Zebra/unlisted.jpg", "attributes/attributes.txt")
    write(root / "classes.txt", *(f"{int(name[:3])} {name}" for name in FILES))
    write(root / "images.txt", *(f"{i} {path}" for i, path in enumerate(BIRDS, start=1)))
    write(root / "image_class_labels.txt", *(f"{i} {int(path[:3])}" for i, path in enumerate(BIRDS, start=1)))


def expected_cub(prefix):
    """Each file's path begins with what `prefix` makes of its letter."""
    found = {name: sorted(prefix(p[-5]) + p for p in BIRDS if p.startswith(name)) for name in FILES}
    return {"train": {n: found[n] for n in list(FILES)[:3]}, "test": {n: found[n] for n in list(FILES)[3:]}}


@pytest.mark.parametrize("parent", ["", "CUB_200_2011"])
def test_official(tmp_path, parent):
    official_cub(tmp_path / parent)
    collection = cub200(tmp_path)
    assert split_of(collection) == expected_cub(lambda letter: "images/")
    assert collection["train"].class_names == ("001.Zebra", "002.Yak", "003.Xerus")
    assert collection["test"].labels.tolist() == [0, 0, 1]


@pytest.mark.parametrize("places", ["", "images/", "CUB_200_2011/images/", "train/ test/", "train/ val/"])
def test_class_folders_are_merged_and_split_by_class(tmp_path, places):
    halves = places.split() or [""]
    place = lambda letter: halves[ord(letter) % len(halves)]  # noqa: E731
    touch(tmp_path, *(place(path[-5]) + path for path in BIRDS), f"{halves[0]}001.Zebra/.hidden.jpg", f"{halves[0]}001.Zebra/notes.txt")
    found = {part: {c: sorted(paths) for c, paths in classes.items()} for part, classes in split_of(cub200(tmp_path)).items()}
    assert found == expected_cub(lambda letter: place(letter).removeprefix("CUB_200_2011/"))


def test_a_missing_class_moves_no_other_across_the_line(tmp_path):
    touch(tmp_path, *(path for path in BIRDS if not path.startswith("002")))
    with refused("cub200 at", "train has 2 classes and 4 images, expected 3 and 5", "missing classes: 2;", "allow_incomplete=True"):
        cub200(tmp_path)
    assert cub200(tmp_path, allow_incomplete=True)["train"].class_names == ("001.Zebra", "003.Xerus")


def test_an_extra_class_a_number_taken_twice_and_an_empty_class(tmp_path):
    touch(tmp_path, *BIRDS, "006.Cow/x.jpg", "004.Ape/y.jpg")
    (tmp_path / "002.Yeti").mkdir()
    twice, empty = "taken twice: 002.Yak, 002.Yeti, 004.Ant, 004.Ape", "1 classes have no files: 002.Yeti"
    with refused("test has 4 classes and 5 images, expected 2 and 3", "extra classes: 006.Cow", twice, empty):
        cub200(tmp_path)
    assert cub200(tmp_path, allow_incomplete=True)["test"].class_names == ("004.Ant", "004.Ape", "005.Bee", "006.Cow")


def test_lists_that_do_not_fit(tmp_path):
    official_cub(tmp_path, skip=["004.Ant/f.jpg", "005.Bee/h.JPG"])
    missing = "2 listed files are missing: images/004.Ant/f.jpg, images/005.Bee/h.JPG"
    with refused("test has 1 classes and 1 images, expected 2 and 3", "1 classes have no files: 005.Bee", missing):
        cub200(tmp_path)
    assert split_of(cub200(tmp_path, allow_incomplete=True))["test"] == {"004.Ant": ["images/004.Ant/g.jpg"]}
    write(tmp_path / "image_class_labels.txt", "1 1")
    with refused("images.txt: image 2 has no class in image_class_labels.txt and classes.txt"):
        cub200(tmp_path)


def test_folders_that_are_refused_even_where_less_is_accepted(tmp_path):
    touch(tmp_path, "001.Zebra/a.jpg")
    with refused("cub200: test has no items"):
        cub200(tmp_path, allow_incomplete=True)
    touch(tmp_path, "Zebra/a.jpg")
    with refused("must begin with the class number", "rename or remove Zebra"):
        cub200(tmp_path, allow_incomplete=True)
