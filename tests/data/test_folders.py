from PIL import Image

from obdsd.data.folders import folder
from tests.data.trees import refused


def save(path, colour=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), (colour, 0, 0)).save(path)


def names(part):
    return [part.name(i) for i in range(len(part))]


def test_a_folder_is_split_by_class(tmp_path):
    for c in "abcdef":
        for i in range(3):
            save(tmp_path / c / f"{i}.png", i)
    (tmp_path / "a" / "notes.txt").write_text("no image")
    photos = folder(tmp_path, seed=1)
    assert photos["train"].class_names != folder(tmp_path, seed=2)["train"].class_names
    assert sorted(photos["train"].class_names + photos["test"].class_names) == list("abcdef")
    assert sorted(names(photos["train"]) + names(photos["test"])) == [f"{c}/{i}.png" for c in "abcdef" for i in range(3)]
    image, label, index = photos["test"][2]
    assert image.getpixel((0, 0)) == (2, 0, 0)
    assert photos["test"].name(index) == f"{photos['test'].class_names[label]}/2.png"


def test_a_given_split_is_taken_as_it_is(tmp_path):
    for split, classes in (("train", "ab"), ("test", "cd")):
        for c in classes:
            for i in range(2):
                save(tmp_path / split / c / f"{i}.jpg")
    photos = folder(tmp_path)
    assert photos["train"].class_names == ("a", "b")
    assert names(photos["test"]) == [f"test/{c}/{i}.jpg" for c in "cd" for i in range(2)]
    save(tmp_path / "test" / "a" / "0.jpg")
    with refused("train and test share 1 classes (a)"):
        folder(tmp_path)


def test_a_folder_without_classes_is_refused(tmp_path):
    with refused("gone: no such folder; give one that holds a folder for each class"):
        folder(tmp_path / "gone")
    with refused("no class folder with images; expected", "/<class>/<image>"):
        folder(tmp_path)
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
    with refused("holds no items; check the path"):
        folder(tmp_path)
