"""CUB-200-2011: birds."""

from __future__ import annotations

import re
from pathlib import Path

from obdsd.data.benchmarks import Count, benchmark, halves, home, read_list, unknown_layout
from obdsd.data.collection import Collection, some, training_defaults
from obdsd.data.folders import Classes, merged_class_folders
from obdsd.errors import InputError

COUNTS = {"train": Count(100, 5864), "test": Count(100, 5924)}
LISTS = ("images.txt", "image_class_labels.txt", "classes.txt")


@training_defaults(epochs=150, weight=1000.0, omega=0.3, walk_temperature=1.0)
def cub200(path: Path, allow_incomplete: bool = False) -> Collection:
    """CUB-200-2011: classes 1 to 100 train, 101 to 200 test.

    Official (`images.txt`, `image_class_labels.txt`, `classes.txt`), or class folders that begin with the class number, in
    `images/`, the folder itself, or `train/` and `test/`. The folder may hold all this in `CUB_200_2011/`.
    """
    base = home(path, "CUB_200_2011")
    official = all((base / name).is_file() for name in LISTS)
    classes = _listed(base) if official else merged_class_folders(base)
    if not classes:
        wanted = "images.txt with image_class_labels.txt and classes.txt, or class folders in images/, train/, test/ or ."
        raise unknown_layout("cub200", base, wanted)
    parts, notes = halves(classes, _numbers(base, classes), COUNTS)
    return benchmark("cub200", base, parts, COUNTS, notes, allow_incomplete=allow_incomplete)


def _listed(base: Path) -> Classes:
    """The classes of the official lists."""
    images, labels, names = (base / name for name in LISTS)
    name_of = dict(read_list(names, "class_id class_name"))
    label_of = dict(read_list(labels, "image_id class_id"))
    classes: Classes = {name: [] for name in name_of.values()}
    for image, path in read_list(images, "image_id image_name"):
        name = name_of.get(label_of.get(image, ""))
        if name is None:
            raise InputError(f"{images}: image {image} has no class in image_class_labels.txt and classes.txt; mend the lists")
        classes[name].append(f"images/{path}")
    return classes


def _numbers(base: Path, classes: Classes) -> dict[str, int]:
    """The class number with which each name begins."""
    numbers = {name: re.match(r"\d+", name) for name in classes}
    unnumbered = [name for name, number in numbers.items() if number is None]
    if unnumbered:
        rule = "must begin with the class number, as in 001.Black_footed_Albatross: the split goes by it"
        raise InputError(f"cub200 at {base}: class folders {rule}; rename or remove {some(unnumbered)}")
    return {name: int(number[0]) for name, number in numbers.items() if number}
