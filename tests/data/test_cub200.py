import pytest

from obdsd.data import cub200 as module
from obdsd.data.benchmarks import Count
from obdsd.data.cub200 import cub200
from tests.data.trees import refused, split_of, touch, write

BIRDS = [
    "001.Zebra/a.jpg",
    "001.Zebra/b.jpg",
    "002.Yak/c.jpg",
    "003.Xerus/d.jpg",
    "003.Xerus/e.jpg",
    "004.Ant/f.jpg",
    "004.Ant/g.jpg",
    "005.Bee/h.JPG",
]


@pytest.fixture
def small(monkeypatch):
    """Counts of the tree below, so that it is complete."""
    monkeypatch.setattr(module, "COUNTS", {"train": Count(3, 5), "test": Count(2, 3)})


def official_cub(root, paths=BIRDS, skip=()):
    touch(root, *(f"images/{path}" for path in paths if path not in skip))
    touch(root, "images/001.Zebra/unlisted.jpg", "attributes/attributes.txt")
    names = list(dict.fromkeys(path.split("/")[0] for path in paths))
    write(root / "classes.txt", *(f"{int(name[:3])} {name}" for name in names))
    write(root / "images.txt", *(f"{i} {path}" for i, path in enumerate(paths, start=1)))
    write(root / "image_class_labels.txt", *(f"{i} {int(path[:3])}" for i, path in enumerate(paths, start=1)))
    return root


def expected_cub(prefix=lambda path: ""):
    of = lambda names: {n: [prefix(p) + p for p in BIRDS if p.startswith(n)] for n in names}  # noqa: E731
    return {"train": of(["001.Zebra", "002.Yak", "003.Xerus"]), "test": of(["004.Ant", "005.Bee"])}


@pytest.mark.parametrize("parent", ["", "CUB_200_2011"])
@pytest.mark.usefixtures("small")
def test_official(tmp_path, parent):
    official_cub(tmp_path / parent)
    collection = cub200(tmp_path)
    assert split_of(collection) == expected_cub(lambda path: "images/")
    assert collection["train"].class_names == ("001.Zebra", "002.Yak", "003.Xerus")
    assert collection["test"].labels.tolist() == [0, 0, 1]


@pytest.mark.parametrize("prefix", ["", "images/", "CUB_200_2011/images/"])
@pytest.mark.usefixtures("small")
def test_class_folders(tmp_path, prefix):
    touch(tmp_path, *(prefix + path for path in BIRDS), prefix + "001.Zebra/.hidden.jpg", prefix + "001.Zebra/notes.txt")
    assert split_of(cub200(tmp_path)) == expected_cub(lambda path: prefix.removeprefix("CUB_200_2011/"))


@pytest.mark.parametrize("second", ["test", "val"])
@pytest.mark.usefixtures("small")
def test_train_and_test_folders_are_merged_and_split_by_class(tmp_path, second):
    half = lambda path: "train/" if path[-5:].lower() in ("a.jpg", "d.jpg", "f.jpg", "h.jpg") else f"{second}/"  # noqa: E731
    touch(tmp_path, *(half(path) + path for path in BIRDS))
    found = {part: {c: sorted(paths) for c, paths in classes.items()} for part, classes in split_of(cub200(tmp_path)).items()}
    assert found == {part: {c: sorted(p) for c, p in classes.items()} for part, classes in expected_cub(half).items()}


@pytest.mark.usefixtures("small")
def test_a_missing_class_moves_no_other_across_the_line(tmp_path):
    touch(tmp_path, *(path for path in BIRDS if not path.startswith("002")))
    with refused("cub200 at", "train has 2 classes and 4 images, expected 3 and 5", "missing classes: 2;", "allow_incomplete=True"):
        cub200(tmp_path)
    assert cub200(tmp_path, allow_incomplete=True)["train"].class_names == ("001.Zebra", "003.Xerus")


@pytest.mark.usefixtures("small")
def test_an_extra_class_a_number_taken_twice_and_an_empty_class(tmp_path):
    touch(tmp_path, *BIRDS, "006.Cow/x.jpg", "004.Ape/y.jpg")
    (tmp_path / "002.Yeti").mkdir()
    with refused(
        "test has 4 classes and 5 images, expected 2 and 3",
        "extra classes: 006.Cow",
        "taken twice: 002.Yak, 002.Yeti, 004.Ant, 004.Ape",
        "1 classes have no files: 002.Yeti",
    ):
        cub200(tmp_path)
    assert cub200(tmp_path, allow_incomplete=True)["test"].class_names == ("004.Ant", "004.Ape", "005.Bee", "006.Cow")


@pytest.mark.usefixtures("small")
def test_a_listed_file_that_is_missing(tmp_path):
    official_cub(tmp_path, skip=["004.Ant/f.jpg", "005.Bee/h.JPG"])
    missing = "2 listed files are missing: images/004.Ant/f.jpg, images/005.Bee/h.JPG"
    with refused("test has 1 classes and 1 images, expected 2 and 3", "1 classes have no files: 005.Bee", missing):
        cub200(tmp_path)
    assert split_of(cub200(tmp_path, allow_incomplete=True))["test"] == {"004.Ant": ["images/004.Ant/g.jpg"]}


@pytest.mark.usefixtures("small")
def test_lists_that_do_not_fit(tmp_path):
    official_cub(tmp_path)
    write(tmp_path / "image_class_labels.txt", "1 1")
    with refused("images.txt: image 2 has no class in image_class_labels.txt and classes.txt"):
        cub200(tmp_path)


def test_folders_without_numbers_are_refused(tmp_path):
    touch(tmp_path, "Zebra/a.jpg", "001.Yak/b.jpg")
    with refused("must begin with the class number", "rename or remove Zebra"):
        cub200(tmp_path, allow_incomplete=True)


def test_only_one_side_is_refused_even_where_less_is_accepted(tmp_path):
    touch(tmp_path, "001.Zebra/a.jpg")
    with refused("cub200: test has no items"):
        cub200(tmp_path, allow_incomplete=True)
