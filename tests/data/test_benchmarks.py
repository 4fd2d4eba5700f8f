import os
import re

import pytest
from scipy.io import savemat

from obdsd.data import benchmarks
from obdsd.data.benchmarks import Count, cars196, class_folders, cub200, inshop, sop
from tests.data.trees import annotations, cell, split_of, touch, write

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
    """Counts of the trees below, so that they are complete."""
    monkeypatch.setitem(benchmarks.COUNTS, "cub200", {"train": Count(3, 5), "test": Count(2, 3)})
    monkeypatch.setitem(benchmarks.COUNTS, "cars196", {"train": Count(3, 5), "test": Count(2, 3)})
    monkeypatch.setitem(benchmarks.COUNTS, "sop", {"train": Count(3, 5), "test": Count(1, 2)})
    monkeypatch.setitem(benchmarks.COUNTS, "inshop", {"train": Count(2, 3), "query": Count(2, 2), "gallery": Count(2, 3)})


def refused(*parts):
    """An error of one line that holds the parts in this order."""
    return pytest.raises(ValueError, match=r"(?s)\A[^\n]*" + "[^\n]*".join(map(re.escape, parts)) + r"[^\n]*\Z")


def test_the_counts_are_those_of_the_paper():
    images = {name: [count.images for count in parts.values()] for name, parts in benchmarks.COUNTS.items()}
    assert images == {"cub200": [5864, 5924], "cars196": [8054, 8131], "sop": [59551, 60502], "inshop": [25882, 14218, 12612]}


# CUB


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
def test_cub_official(tmp_path, parent):
    official_cub(tmp_path / parent)
    collection = cub200(tmp_path)
    assert split_of(collection) == expected_cub(lambda path: "images/")
    assert collection["train"].class_names == ("001.Zebra", "002.Yak", "003.Xerus")
    assert collection["test"].labels.tolist() == [0, 0, 1]


@pytest.mark.parametrize("prefix", ["", "images/", "CUB_200_2011/images/"])
@pytest.mark.usefixtures("small")
def test_cub_class_folders(tmp_path, prefix):
    touch(tmp_path, *(prefix + path for path in BIRDS), prefix + "001.Zebra/.hidden.jpg", prefix + "001.Zebra/notes.txt")
    assert split_of(cub200(str(tmp_path))) == expected_cub(lambda path: prefix.removeprefix("CUB_200_2011/"))


@pytest.mark.parametrize("second", ["test", "val"])
@pytest.mark.usefixtures("small")
def test_cub_train_and_test_folders_are_merged_and_split_by_class(tmp_path, second):
    half = lambda path: "train/" if path[-5:].lower() in ("a.jpg", "d.jpg", "f.jpg", "h.jpg") else f"{second}/"  # noqa: E731
    touch(tmp_path, *(half(path) + path for path in BIRDS))
    found = {part: {c: sorted(paths) for c, paths in classes.items()} for part, classes in split_of(cub200(tmp_path)).items()}
    assert found == {part: {c: sorted(p) for c, p in classes.items()} for part, classes in expected_cub(half).items()}


@pytest.mark.usefixtures("small")
def test_cub_a_missing_class_moves_no_other_across_the_line(tmp_path):
    touch(tmp_path, *(path for path in BIRDS if not path.startswith("002")))
    with refused("cub200 at", "train has 2 classes and 4 images, expected 3 and 5", "missing classes: 2;", "allow_incomplete=True"):
        cub200(tmp_path)
    assert cub200(tmp_path, allow_incomplete=True)["train"].class_names == ("001.Zebra", "003.Xerus")


@pytest.mark.usefixtures("small")
def test_cub_an_extra_class_a_number_taken_twice_and_an_empty_class(tmp_path):
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
def test_cub_a_listed_file_that_is_missing(tmp_path):
    official_cub(tmp_path, skip=["004.Ant/f.jpg", "005.Bee/h.JPG"])
    missing = "2 listed files are missing: images/004.Ant/f.jpg, images/005.Bee/h.JPG"
    with refused("test has 1 classes and 1 images, expected 2 and 3", "1 classes have no files: 005.Bee", missing):
        cub200(tmp_path)
    assert split_of(cub200(tmp_path, allow_incomplete=True))["test"] == {"004.Ant": ["images/004.Ant/g.jpg"]}


@pytest.mark.usefixtures("small")
def test_cub_lists_that_do_not_fit(tmp_path):
    official_cub(tmp_path)
    write(tmp_path / "image_class_labels.txt", "1 1")
    with refused("images.txt: image 2 has no class in image_class_labels.txt and classes.txt"):
        cub200(tmp_path)
    write(tmp_path / "image_class_labels.txt", "1 1", "2")
    with refused("image_class_labels.txt: line 2 must have 2 columns (image_id class_id), not 1"):
        cub200(tmp_path)
    (tmp_path / "classes.txt").write_bytes(b"1 001.Zebr\xe9\n")
    with refused("classes.txt: is not UTF-8 at byte 10"):
        cub200(tmp_path)
    official_cub(tmp_path)
    write(tmp_path / "images.txt", "1 ../../secret.jpg")
    with refused("images.txt: line 1 names a file outside of the folder, '1 ../../secret.jpg'"):
        cub200(tmp_path)


def test_cub_folders_without_numbers_are_refused(tmp_path):
    touch(tmp_path, "Zebra/a.jpg", "001.Yak/b.jpg")
    with refused("must begin with the class number", "rename or remove Zebra"):
        cub200(tmp_path, allow_incomplete=True)


def test_only_one_side_is_refused_even_where_less_is_accepted(tmp_path):
    touch(tmp_path, "001.Zebra/a.jpg")
    with refused("cub200: test has no items"):
        cub200(tmp_path, allow_incomplete=True)


# CARS

CARS = {  # class: its files; the alphabet would put Audi on the training side
    "Volvo": ["000001.jpg", "000002.jpg"],
    "BMW C/V": ["000003.jpg", "000004.jpg"],
    "Tesla": ["000005.jpg"],
    "Audi": ["000006.jpg", "000007.jpg"],
    "smart": ["000008.jpg"],
}
ORDER = list(CARS)


def devkit(path, names=ORDER, **fields):
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [(f"car_ims/{file}", i) for i, files in enumerate(CARS.values(), start=1) for file in files]
    savemat(path, {"annotations": annotations(rows), "class_names": cell(names)} | fields)


def folders(root, number=lambda stem: stem):
    for i, (name, files) in enumerate(CARS.items()):
        for j, file in enumerate(files):
            touch(root, f"{('train', 'test')[(i + j) % 2]}/{name.replace('/', '-')}/{number(file[:-4])}.jpg")


@pytest.mark.parametrize("place", ["cars_annos.mat", "devkit/cars_annos.mat", "../cars_annos.mat"])
@pytest.mark.usefixtures("small")
def test_cars_official(tmp_path, place):
    root = tmp_path / "root"
    touch(root, *(f"car_ims/{file}" for files in CARS.values() for file in files))
    devkit(root / place)
    found = split_of(cars196(root))
    assert found["train"] == {name: [f"car_ims/{file}" for file in CARS[name]] for name in ORDER[:3]}
    assert found["test"] == {name: [f"car_ims/{file}" for file in CARS[name]] for name in ORDER[3:]}
    if place == "cars_annos.mat":
        assert split_of(cars196(root / "car_ims")) == found


@pytest.mark.usefixtures("small")
def test_cars_class_folders_follow_the_image_numbers_not_the_alphabet(tmp_path):
    folders(tmp_path)
    found = split_of(cars196(tmp_path))
    assert list(found["train"]) == ["Volvo", "BMW C-V", "Tesla"]
    assert sorted(found["train"]["Volvo"]) == ["test/Volvo/000002.jpg", "train/Volvo/000001.jpg"]
    assert list(found["test"]) == ["Audi", "smart"]


@pytest.mark.usefixtures("small")
def test_cars_class_folders_by_the_names_of_the_devkit_whatever_the_files_are_called(tmp_path):
    folders(tmp_path, number=lambda stem: f"photo {20 - int(stem)}")
    with refused("is no image number; add cars_annos.mat or cars_meta.mat"):
        cars196(tmp_path, allow_incomplete=True)
    devkit(tmp_path / "devkit" / "cars_meta.mat")
    found = split_of(cars196(tmp_path))
    assert (list(found["train"]), list(found["test"])) == (["Volvo", "BMW C-V", "Tesla"], ["Audi", "smart"])
    touch(tmp_path, "train/Tractor/1.jpg")
    with refused("class folders Tractor are not in cars_meta.mat"):
        cars196(tmp_path)


@pytest.mark.usefixtures("small")
def test_cars_image_numbers_that_tell_no_order(tmp_path):
    folders(tmp_path, number=lambda stem: int(stem) * 3 % 11)
    with refused("image numbers of", "overlap and tell no class order; add cars_annos.mat"):
        cars196(tmp_path, allow_incomplete=True)


@pytest.mark.usefixtures("small")
def test_cars_a_missing_class_moves_no_other_across_the_line(tmp_path):
    folders(tmp_path)
    for path in (tmp_path / "train" / "Volvo" / "000001.jpg", tmp_path / "test" / "Volvo" / "000002.jpg"):
        path.unlink()
    with refused("train has 2 classes and 3 images, expected 3 and 5", "allow_incomplete=True"):
        cars196(tmp_path)
    found = split_of(cars196(tmp_path, allow_incomplete=True))
    assert (list(found["train"]), list(found["test"])) == (["BMW C-V", "Tesla"], ["Audi", "smart"])


@pytest.mark.usefixtures("small")
def test_cars_a_missing_file_and_an_extra_class(tmp_path):
    touch(tmp_path, *(f"car_ims/{file}" for name in ORDER for file in CARS[name] if file != "000007.jpg"))
    devkit(tmp_path / "cars_annos.mat", names=[*ORDER, "Tractor"])
    with refused("test has 2 classes and 2 images", "extra classes: Tractor", "1 listed files are missing: car_ims/000007.jpg"):
        cars196(tmp_path)
    assert len(cars196(tmp_path, allow_incomplete=True)["test"]) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"class_names": 0}, "has no annotations with 'relative_im_path' and 'class'"),
        ({"annotations": 0}, "has no field 'class_names'"),
        (
            {"annotations": annotations([("car_ims/1.jpg", 3)]), "class_names": cell(["a", "b"])},
            "class 3 of car_ims/1.jpg must lie in 1..2",
        ),
        (b"cut", "cannot be read as a MATLAB file (Mat file appears to be truncated)"),
        (b"no matrix at all, but long enough to have a header " * 9, "cannot be read as a MATLAB file"),
    ],
)
def test_cars_damaged_devkit(tmp_path, content, message):
    (tmp_path / "car_ims").mkdir()
    if isinstance(content, bytes):
        (tmp_path / "cars_annos.mat").write_bytes(content)
    else:
        savemat(tmp_path / "cars_annos.mat", content)
    with refused("cars_annos.mat: ", message):
        cars196(tmp_path)


# SOP


EBAY = {
    "train": {"1": ["bike/a_0.JPG", "bike/a_1.JPG"], "2": ["sofa/b_0.JPG"], "3": ["sofa/c_0.JPG", "sofa/c_1.JPG"]},
    "test": {"4": ["bike/d_0.JPG", "bike/d_1.JPG"]},
}


def ebay(root, folder="", skip=()):
    for part, classes in EBAY.items():
        lines = [f"7 {label} 1 {path}" for label, paths in classes.items() for path in paths]
        write(root / folder / f"Ebay_{part}.txt", "image_id class_id super_class_id path", *lines)
        touch(root, *(path for paths in classes.values() for path in paths if path not in skip))


@pytest.mark.parametrize("folder", ["", "Info_Files"])
@pytest.mark.parametrize("parent", ["", "Stanford_Online_Products"])
@pytest.mark.usefixtures("small")
def test_sop(tmp_path, parent, folder):
    ebay(tmp_path / parent, folder)
    assert split_of(sop(tmp_path)) == EBAY


@pytest.mark.usefixtures("small")
def test_sop_missing_files(tmp_path):
    ebay(tmp_path, skip=["sofa/b_0.JPG", "bike/d_0.JPG"])
    with refused(
        "train has 2 classes and 4 images, expected 3 and 5",
        "test has 1 classes and 1 images, expected 1 and 2",
        "1 classes have no files: 2",
        "2 listed files are missing: sofa/b_0.JPG, bike/d_0.JPG",
    ):
        sop(tmp_path)
    expected = {"train": {"1": EBAY["train"]["1"], "3": EBAY["train"]["3"]}, "test": {"4": ["bike/d_1.JPG"]}}
    assert split_of(sop(tmp_path, allow_incomplete=True)) == expected


def test_sop_against_the_true_counts_is_incomplete(tmp_path):
    ebay(tmp_path)
    with refused(
        "train has 3 classes and 5 images, expected 11,318 and 59,551", "test has 1 classes and 2 images, expected 11,316 and 60,502"
    ):
        sop(tmp_path)


# In-Shop


SHOP = [
    "img/A/id_0/1.jpg id_0 train",
    "img/A/id_1/1.jpg id_1 train",
    "img/A/id_1/2.jpg id_1 train",
    "img/A/id_2/1.jpg id_2 query",
    "img/A/id_2/2.jpg id_2 gallery",
    "img/B/id_3/1.jpg id_3 gallery",
    "img/B/id_3/2.jpg id_3 gallery",
    "img/B/id_3/3.jpg id_3 query",
]


def shop(root, lists="", images="", lines=SHOP, skip=()):
    columns = "image_name item_id evaluation_status"
    write(root / lists / "list_eval_partition.txt", str(len(lines)), columns, *(line.replace(" ", "    ") for line in lines))
    touch(root / images, *(line.split()[0] for line in lines if line.split()[0] not in skip))
    return root


@pytest.mark.parametrize("lists", ["", "Eval", "Anno"])
@pytest.mark.parametrize("images", ["", "Img"])
@pytest.mark.usefixtures("small")
def test_inshop(tmp_path, lists, images):
    collection = inshop(shop(tmp_path, lists, images))
    assert split_of(collection) == {
        "train": {"id_0": ["img/A/id_0/1.jpg"], "id_1": ["img/A/id_1/1.jpg", "img/A/id_1/2.jpg"]},
        "query": {"id_2": ["img/A/id_2/1.jpg"], "id_3": ["img/B/id_3/3.jpg"]},
        "gallery": {"id_2": ["img/A/id_2/2.jpg"], "id_3": ["img/B/id_3/1.jpg", "img/B/id_3/2.jpg"]},
    }
    assert collection["query"].class_names == collection["gallery"].class_names == ("id_2", "id_3")
    assert (collection["train"].items.root / collection["train"].name(0)).is_file()


@pytest.mark.usefixtures("small")
def test_inshop_query_and_gallery_keep_one_numbering_where_classes_are_missing(tmp_path):
    shop(tmp_path, skip=["img/A/id_2/1.jpg"])
    with refused("query has 1 classes and 1 images, expected 2 and 2", "no files: id_2", "1 listed files are missing: img/A/id_2/1.jpg"):
        inshop(tmp_path)
    found = inshop(tmp_path, allow_incomplete=True)
    assert found["query"].class_names == found["gallery"].class_names
    names = found["query"].class_names
    assert sorted(names) == ["id_2", "id_3"]
    assert [names[label] for label in found["query"].labels] == ["id_3"]
    assert [names[label] for label in found["gallery"].labels] == ["id_2", "id_3", "id_3"]


def test_inshop_a_status_that_is_unknown_and_a_class_on_both_sides(tmp_path):
    shop(tmp_path, lines=[*SHOP, "img/B/id_3/4.jpg id_3 val"])
    with refused("list_eval_partition.txt: evaluation_status 'val' of img/B/id_3/4.jpg must be train, query or gallery"):
        inshop(tmp_path)
    shop(tmp_path, lines=[*SHOP, "img/B/id_3/4.jpg id_3 train"])
    with refused("inshop: train and", "share 1 classes (id_3)"):
        inshop(tmp_path, allow_incomplete=True)


# all


@pytest.mark.parametrize(
    ("reader", "wanted"),
    [
        (cub200, "looked for images.txt with image_class_labels.txt and classes.txt, or class folders"),
        (cars196, "looked for cars_annos.mat (also in devkit/ and ..) with car_ims/, or class folders"),
        (sop, "looked for Ebay_train.txt and Ebay_test.txt, also in Info_Files/"),
        (inshop, "looked for list_eval_partition.txt, also in Eval/ and Anno/"),
    ],
)
def test_an_unknown_layout_says_what_was_looked_for_and_where(tmp_path, reader, wanted):
    touch(tmp_path, "readme.txt", "photos/readme.txt")
    with refused(f"{reader.__name__}: no known layout in {tmp_path}; {wanted}"):
        reader(tmp_path, allow_incomplete=True)
    with refused(f"{tmp_path / 'nowhere'}: no such folder"):
        reader(tmp_path / "nowhere")


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
        cub200(tmp_path, allow_incomplete=True)
