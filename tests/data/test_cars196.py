from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from obdsd.data import cars196 as module
from obdsd.data.benchmarks import Count
from obdsd.data.cars196 import cars196
from tests.data.trees import refused, split_of, touch

NUMBERS = {"Volvo": (1, 2), "BMW C/V": (3, 4), "Tesla": (5,), "Audi": (6, 7), "smart": (8,)}  # the alphabet would have Audi train
CARS = {name: [f"{number:06}.jpg" for number in numbers] for name, numbers in NUMBERS.items()}
ORDER = list(CARS)
MAKES = {"Acura RL": (1, 3), "Acura Integra": (2, 4), "Eagle": (5,), "GMC Savana Van 2012": (6, 8), "smart": (7,)}  # as official ones do


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Counts of the tree below, so that it is complete."""
    monkeypatch.setattr(module, "COUNTS", {"train": Count(3, 5), "test": Count(2, 3)})


def annotations(rows: list[tuple[str, int]]) -> np.ndarray:
    """The struct array of `cars_annos.mat`."""
    made = np.zeros((1, len(rows)), dtype=[("relative_im_path", "O"), ("class", "O"), ("test", "O")])
    for i, (path, label) in enumerate(rows):
        made[0, i] = (path, label, 0)
    return made


def cell(names: list[str]) -> np.ndarray:
    """A MATLAB cell array of strings."""
    made = np.zeros((1, len(names)), dtype=object)
    made[0, :] = names
    return made


def devkit(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [(f"car_ims/{file}", i) for i, files in enumerate(CARS.values(), start=1) for file in files]
    savemat(path, {"annotations": annotations(rows), "class_names": cell(ORDER)})


def folders(root, cars=CARS, number=lambda stem: stem):
    for i, (name, files) in enumerate(cars.items()):
        for j, file in enumerate(files):
            touch(root, f"{('train', 'test')[(i + j) % 2]}/{name.replace('/', '-')}/{number(file[:-4])}.jpg")


def repacked(root, makes=MAKES, form="{:06}.jpg"):
    """`train/CLASS/` and `test/CLASS/`, with numbers that do not count up through the classes."""
    folders(root, {name: [form.format(number) for number in numbers] for name, numbers in makes.items()})


@pytest.mark.parametrize("place", ["cars_annos.mat", "devkit/cars_annos.mat", "../cars_annos.mat"])
def test_official(tmp_path, place):
    root = tmp_path / "root"
    touch(root, *(f"car_ims/{file}" for files in CARS.values() for file in files))
    devkit(root / place)
    found = split_of(cars196(root))
    files = [(name, [f"car_ims/{file}" for file in CARS[name]]) for name in ORDER]
    assert found == {"train": dict(files[:3]), "test": dict(files[3:])}
    if place == "cars_annos.mat":
        assert split_of(cars196(root / "car_ims")) == found


def test_class_folders_are_split_by_their_makes_though_their_numbers_overlap(tmp_path):
    repacked(tmp_path)
    found = split_of(cars196(tmp_path))
    assert {part: {*classes} for part, classes in found.items()} == {
        "train": {"Acura RL", "Acura Integra", "Eagle"}, "test": {"GMC Savana Van 2012", "smart"},
    }  # fmt: skip
    assert sorted(found["train"]["Acura RL"]) == ["test/Acura RL/000003.jpg", "train/Acura RL/000001.jpg"]
    assert sorted(found["test"]["GMC Savana Van 2012"]) == ["test/GMC Savana Van 2012/000006.jpg", "train/GMC Savana Van 2012/000008.jpg"]


def test_the_first_letter_splits_the_official_makes_in_halves():
    """All makes of the official list, with how many classes each has; the order of classes in a make is not the alphabet's."""
    train = {"AM General": 1, "Acura": 6, "Aston Martin": 4, "Audi": 14, "BMW": 13, "Bentley": 6, "Bugatti": 2, "Buick": 4, "Cadillac": 3}
    train |= {"Chevrolet": 22, "Chrysler": 6, "Daewoo": 1, "Dodge": 15, "Eagle": 1}
    test = {"FIAT": 2, "Ferrari": 4, "Fisker": 1, "Ford": 12, "GMC": 5, "Geo": 1, "HUMMER": 2, "Honda": 4, "Hyundai": 11, "Infiniti": 2}
    test |= {"Isuzu": 1, "Jaguar": 1, "Jeep": 5, "Lamborghini": 4, "Land Rover": 2, "Lincoln": 1, "MINI": 1, "Maybach": 1, "Mazda": 1}
    test |= {"McLaren": 1, "Mercedes-Benz": 6, "Mitsubishi": 1, "Nissan": 4, "Plymouth": 1, "Porsche": 1, "Ram": 1, "Rolls-Royce": 3}
    test |= {"Scion": 1, "Spyker": 2, "Suzuki": 4, "Tesla": 1, "Toyota": 4, "Volkswagen": 3, "Volvo": 3, "smart": 1}
    assert (sum(train.values()), sum(test.values())) == (98, 98)
    for makes, part in ((train, "train"), (test, "test")):
        classes = {f"{make} {n}": [f"{make}/{n}.jpg"] for make, count in makes.items() for n in range(count)}
        found, notes = module._halves_by_make(Path("here"), classes)
        assert [len(found["train"]), len(found["test"]), notes] == [98 * (part == "train"), 98 * (part == "test"), []]


@pytest.mark.parametrize("form", ["{:05}.jpg", "photo {}.jpg"])
def test_other_names_of_files_tell_nothing_of_the_class(tmp_path, form):
    repacked(tmp_path, {**MAKES, "Eagle": (8,), "smart": (1,)}, form)  # cars_train/ and cars_test/ number their images as they come
    found = split_of(cars196(tmp_path))
    assert [len(found["train"]), len(found["test"])] == [3, 2]


def test_class_folders_without_names_go_by_their_image_numbers(tmp_path):
    repacked(tmp_path, dict(zip("12345", MAKES.values(), strict=True)))
    found = split_of(cars196(tmp_path))
    assert ([*found["train"]], [*found["test"]]) == (["1", "2", "3"], ["4", "5"])
    touch(tmp_path, "test/5/photo.jpg")
    with refused("cars196 at", "class folder '1' has no class name and no official image numbers; add cars_annos.mat or cars_meta.mat"):
        cars196(tmp_path, allow_incomplete=True)


def test_numbers_that_say_otherwise_than_the_names_are_refused(tmp_path):
    repacked(tmp_path, {**MAKES, "Eagle": (7,), "smart": (5,)})
    with refused("cars196 at", "Eagle is of train by its name and of test by its image numbers; add cars_annos.mat or cars_meta.mat"):
        cars196(tmp_path, allow_incomplete=True)


def test_missing_images_are_named(tmp_path):
    repacked(tmp_path)
    for path in [*tmp_path.glob("*/*/000001.jpg"), *tmp_path.glob("*/*/000008.jpg")]:
        path.unlink()
    with refused("train has 3 classes and 4 images, expected 3 and 5", "2 images are missing: 000001, 000008", "allow_incomplete=True"):
        cars196(tmp_path)
    assert [len(part) for part in cars196(tmp_path, allow_incomplete=True).parts.values()] == [4, 2]


def test_class_folders_by_the_names_of_the_devkit_whatever_the_files_are_called(tmp_path):
    folders(tmp_path, number=lambda stem: f"photo {20 - int(stem)}")
    devkit(tmp_path / "devkit" / "cars_meta.mat")
    found = split_of(cars196(tmp_path))
    assert (list(found["train"]), list(found["test"])) == (["Volvo", "BMW C-V", "Tesla"], ["Audi", "smart"])
    touch(tmp_path, "train/Tractor/1.jpg")
    with refused("class folders Tractor are not in cars_meta.mat"):
        cars196(tmp_path)


def test_a_missing_class_moves_no_other_across_the_line(tmp_path):
    repacked(tmp_path, {name: numbers for name, numbers in MAKES.items() if name != "Acura RL"})
    with refused("train has 2 classes and 3 images, expected 3 and 5", "allow_incomplete=True"):
        cars196(tmp_path)
    found = split_of(cars196(tmp_path, allow_incomplete=True))
    assert (list(found["train"]), list(found["test"])) == (["Acura Integra", "Eagle"], ["GMC Savana Van 2012", "smart"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"class_names": 0}, "has no annotations with 'relative_im_path' and 'class'"),
        ({"annotations": 0}, "has no field 'class_names'"),
        ({"annotations": annotations([("1.jpg", 3)]), "class_names": cell(["a", "b"])}, "class [3] of 1.jpg must lie in 1..2"),
        (b"cut", "cannot be read as a MATLAB file (no MATLAB file of version 5 to 7)"),
        (b"no matrix at all, but long enough to have a header " * 9, "cannot be read as a MATLAB file"),
    ],
)
def test_damaged_devkit(tmp_path, content, message):
    (tmp_path / "car_ims").mkdir()
    if isinstance(content, bytes):
        (tmp_path / "cars_annos.mat").write_bytes(content)
    else:
        savemat(tmp_path / "cars_annos.mat", content)
    with refused("cars_annos.mat: ", message):
        cars196(tmp_path)
