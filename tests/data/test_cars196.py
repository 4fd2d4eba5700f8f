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


def folders(root, number=lambda stem: stem):
    for i, (name, files) in enumerate(CARS.items()):
        for j, file in enumerate(files):
            touch(root, f"{('train', 'test')[(i + j) % 2]}/{name.replace('/', '-')}/{number(file[:-4])}.jpg")


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


def test_class_folders_follow_the_image_numbers_not_the_alphabet(tmp_path):
    folders(tmp_path)
    found = split_of(cars196(tmp_path))
    assert list(found["train"]) == ["Volvo", "BMW C-V", "Tesla"]
    assert sorted(found["train"]["Volvo"]) == ["test/Volvo/000002.jpg", "train/Volvo/000001.jpg"]
    assert list(found["test"]) == ["Audi", "smart"]


def test_class_folders_by_the_names_of_the_devkit_whatever_the_files_are_called(tmp_path):
    folders(tmp_path, number=lambda stem: f"photo {20 - int(stem)}")
    with refused("is no image number; add cars_annos.mat or cars_meta.mat"):
        cars196(tmp_path, allow_incomplete=True)
    devkit(tmp_path / "devkit" / "cars_meta.mat")
    found = split_of(cars196(tmp_path))
    assert (list(found["train"]), list(found["test"])) == (["Volvo", "BMW C-V", "Tesla"], ["Audi", "smart"])
    touch(tmp_path, "train/Tractor/1.jpg")
    with refused("class folders Tractor are not in cars_meta.mat"):
        cars196(tmp_path)


def test_a_missing_class_moves_no_other_across_the_line(tmp_path):
    folders(tmp_path)
    for path in (tmp_path / "train" / "Volvo" / "000001.jpg", tmp_path / "test" / "Volvo" / "000002.jpg"):
        path.unlink()
    with refused("train has 2 classes and 3 images, expected 3 and 5", "allow_incomplete=True"):
        cars196(tmp_path)
    found = split_of(cars196(tmp_path, allow_incomplete=True))
    assert (list(found["train"]), list(found["test"])) == (["BMW C-V", "Tesla"], ["Audi", "smart"])
    touch(tmp_path, "train/Audi/000003.jpg")
    with refused("image numbers of BMW C-V and Audi overlap and tell no class order; add cars_annos.mat"):
        cars196(tmp_path, allow_incomplete=True)


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
