"""CARS196: car models."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from obdsd.data.benchmarks import Count, benchmark, halves, home, unknown_layout
from obdsd.data.collection import Collection, some, training_defaults
from obdsd.data.folders import Classes, merged_class_folders
from obdsd.data.matlab import read_mat
from obdsd.errors import InputError

COUNTS = {"train": Count(98, 8054), "test": Count(98, 8131)}
FIRST_TEST_LETTER = "F"  # the official order goes by makes, A to Z: Eagle is the last that trains, FIAT the first that tests
DEVKIT = "add cars_annos.mat or cars_meta.mat of the devkit, whose class names tell the official order"


@training_defaults(epochs=150, weight=75.0, omega=0.99, walk_temperature=1.0)
def cars196(path: Path, allow_incomplete: bool = False) -> Collection:
    """CARS196: classes 1 to 98 train, 99 to 196 test.

    Official (`cars_annos.mat` in the folder, its `devkit/` or its parent, images in `car_ims/`), or class folders, whatever the part that
    they lie in. These are split by the devkit's class names if a `.mat` is there, else by their names: makes from A to E train. Where the
    image files have their official numbers, these must agree.
    """
    base = home(path, "cars196")
    places = (base, base / "devkit", base.parent)
    devkit = next((place / name for name in ("cars_annos.mat", "cars_meta.mat") for place in places if (place / name).is_file()), None)
    above = base.parent if base.name == "car_ims" else base
    if devkit and devkit.name == "cars_annos.mat" and (above / "car_ims").is_dir():
        parts, notes = halves(*_annotated(devkit), COUNTS)
        return benchmark("cars196", above, parts, COUNTS, notes, allow_incomplete=allow_incomplete)
    classes = {name: images for name, images in merged_class_folders(base).items() if images}
    if len(classes) < 2:
        wanted = "cars_annos.mat (also in devkit/ and ..) with car_ims/, or class folders in images/, train/, test/ or ."
        raise unknown_layout("cars196", base, wanted)
    if devkit:
        parts, notes = halves(classes, _numbers_by_name(base, classes, devkit), COUNTS)
    else:
        parts, notes = _halves_by_make(base, classes)
    return benchmark("cars196", base, parts, COUNTS, notes, allow_incomplete=allow_incomplete)


def _annotated(path: Path) -> tuple[Classes, dict[str, int]]:
    """The classes of `cars_annos.mat` with their files and their numbers."""
    content, names = _devkit(path)
    classes: Classes = {name: [] for name in names}
    for row in content.get("annotations") or [None]:
        match row:
            case {"relative_im_path": str(image), "class": [int() | float() as label]} if 1 <= label <= len(names):
                classes[names[int(label) - 1]].append(image)
            case {"relative_im_path": image, "class": label}:
                raise InputError(f"{path}: class {label} of {image} must lie in 1..{len(names)}; get the official devkit again")
            case _:
                raise InputError(f"{path}: has no annotations with 'relative_im_path' and 'class'; get the official devkit again")
    return classes, {name: number for number, name in enumerate(names, start=1)}


def _numbers_by_name(base: Path, classes: Iterable[str], devkit: Path) -> dict[str, int]:
    """Each class folder's official number: names are compared by letters and digits, as `C/V` cannot be part of a folder's name."""

    def plain(name: str) -> str:
        return re.sub(r"[\W_]", "", name).lower()

    official = {plain(name): number for number, name in enumerate(_devkit(devkit)[1], start=1)}
    unknown = [name for name in classes if plain(name) not in official]
    if unknown:
        raise InputError(f"cars196 at {base}: class folders {some(unknown)} are not in {devkit.name}; rename or remove them")
    return {name: official[plain(name)] for name in classes}


def _halves_by_make(base: Path, classes: Classes) -> tuple[dict[str, Classes], list[str]]:
    """Train and test by the makes that the class names begin with, and by official image numbers where there are some; and a note on
    the images that are missing. (Most of a class's numbers count: those of GMC Savana Van 2012 lie on both sides of others.)"""
    numbers, (_, border) = _official_numbers(classes), COUNTS["train"]
    parts: dict[str, Classes] = {"train": {}, "test": {}}
    for name in sorted(classes):
        told = {}
        if re.match("[A-Za-z]", name):
            told["name"] = "train" if name[0].upper() < FIRST_TEST_LETTER else "test"
        if name in numbers:
            told["image numbers"] = "train" if statistics.median(numbers[name]) <= border else "test"
        if not told:
            raise InputError(f"cars196 at {base}: class folder {name!r} has no class name and no official image numbers; {DEVKIT}")
        if len({*told.values()}) > 1:
            both = " and of ".join(f"{part} by its {by}" for by, part in told.items())
            raise InputError(f"cars196 at {base}: {name} is of {both}; {DEVKIT}")
        parts[next(iter(told.values()))][name] = classes[name]
    there = {number for own in numbers.values() for number in own}
    missing = [f"{number:06}" for number in range(1, 1 + sum(count.images for count in COUNTS.values())) if there and number not in there]
    return parts, [f"{len(missing):,} images are missing: {some(missing, 20)}"] * bool(missing)


def _official_numbers(classes: Classes) -> dict[str, list[int]]:
    """The image numbers of each class, if the files have those of `car_ims/`: six digits, none of them twice. (Those of `cars_train/` and
    `cars_test/` have five, and tell nothing of the class.)"""
    stems = {name: [Path(path).stem for path in paths] for name, paths in classes.items()}
    every = [stem for own in stems.values() for stem in own]
    official = all(re.fullmatch("[0-9]{6}", stem) for stem in every) and len({*every}) == len(every)
    return {name: [int(stem) for stem in own] for name, own in stems.items()} if official else {}


def _devkit(path: Path) -> tuple[Mapping[str, Any], list[str]]:
    """What a file of the devkit holds, and its class names."""
    try:
        content = read_mat(path)
    except Exception as damage:  # any kind, from a struct that is cut off to a text that is none
        raise InputError(f"{path}: cannot be read as a MATLAB file ({' '.join(str(damage).split())[:200]}); get it again") from damage
    if not isinstance(names := content.get("class_names"), list):
        raise InputError(f"{path}: has no field 'class_names'; get the official devkit again")
    return content, [str(name) for name in names]
