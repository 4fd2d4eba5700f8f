"""The four benchmarks of the field, in their official layouts and the re-packed ones in circulation; counts are checked."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from obdsd.data.collection import Collection, Part
from obdsd.data.images import ImageFiles
from obdsd.errors import InputError

Classes = dict[str, list[str]]
"""Class name → paths of its images below a folder."""

_FOLDERS = "class folders of images in images/, train/ and test/, or the folder itself"
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")


class Count(NamedTuple):
    classes: int
    images: int


COUNTS = {
    "cub200": {"train": Count(100, 5864), "test": Count(100, 5924)},
    "cars196": {"train": Count(98, 8054), "test": Count(98, 8131)},
    "sop": {"train": Count(11318, 59551), "test": Count(11316, 60502)},
    "inshop": {"train": Count(3997, 25882), "query": Count(3985, 14218), "gallery": Count(3985, 12612)},
}


def cub200(root: Path | str, allow_incomplete: bool = False) -> Collection:
    """CUB-200-2011, or the folder that holds `CUB_200_2011/`: classes 1 to 100 train, 101 to 200 test.

    Official (`images.txt`, `image_class_labels.txt`, `classes.txt`), or class folders that begin with the class number, below
    `images/`, the root, or `train/` and `test/`.
    """
    base = _nested(root, "CUB_200_2011")
    if all((base / name).is_file() for name in ("images.txt", "image_class_labels.txt", "classes.txt")):
        classes, absent = _existing(base, _cub_lists(base))
    else:
        classes, absent = _repacked(base), []
    if not classes:
        raise _unknown(
            "cub200", base, "images.txt with image_class_labels.txt and classes.txt, or class folders in images/, train/, test/ or ."
        )
    numbers = {name: re.match(r"\d+", name) for name in classes}
    unnumbered = [name for name, number in numbers.items() if number is None]
    if unnumbered:
        rule = "must begin with the class number, as in 001.Black_footed_Albatross: the split goes by it"
        raise InputError(f"cub200 at {base}: class folders {rule}; rename or remove {_some(unnumbered)}")
    parts, notes = _halves("cub200", classes, {name: int(number[0]) for name, number in numbers.items() if number})
    return _collection("cub200", base, parts, absent, notes, allow_incomplete)


def cars196(root: Path | str, allow_incomplete: bool = False) -> Collection:
    """CARS196: classes 1 to 98 train, 99 to 196 test.

    Official (`cars_annos.mat` in the root, `devkit/` or the parent, images in `car_ims/`), or class folders. Their alphabetical order
    is not the official one: it is told by the devkit's class names if a `.mat` is there, else by the numbers of the image files.
    """
    base = _nested(root, "cars196")
    places = (base, base / "devkit", base.parent)
    found = [place / name for name in ("cars_annos.mat", "cars_meta.mat") for place in places if (place / name).is_file()]
    home = base.parent if base.name == "car_ims" else base
    if (home / "car_ims").is_dir() and found and found[0].name == "cars_annos.mat":
        classes, number = _devkit(found[0])
        classes, absent = _existing(home, classes)
        parts, notes = _halves("cars196", classes, number)
        return _collection("cars196", home, parts, absent, notes, allow_incomplete)
    classes = {name: paths for name, paths in _repacked(base).items() if paths}
    if len(classes) < 2:
        raise _unknown(
            "cars196", base, "cars_annos.mat (also in devkit/ and ..) with car_ims/, or class folders in images/, train/, test/ or ."
        )
    if found:
        parts, notes = _halves("cars196", classes, _numbers_by_name(base, classes, found[0]))
    else:
        parts, notes = _halves_by_image_number(base, classes), []
    return _collection("cars196", base, parts, [], notes, allow_incomplete)


def sop(root: Path | str, allow_incomplete: bool = False) -> Collection:
    """Stanford Online Products, split by `Ebay_train.txt` and `Ebay_test.txt` in the root or `Info_Files/`."""
    base = _nested(root, "Stanford_Online_Products")
    folder = next((f for f in (base, base / "Info_Files") if all((f / f"Ebay_{part}.txt").is_file() for part in ("train", "test"))), None)
    if folder is None:
        raise _unknown("sop", base, "Ebay_train.txt and Ebay_test.txt, also in Info_Files/")
    listed: dict[str, Classes] = {"train": {}, "test": {}}
    for part, classes in listed.items():
        for _, label, _, path in _rows(folder / f"Ebay_{part}.txt", "image_id class_id super_class_id path", skip=1):
            classes.setdefault(label, []).append(path)
    return _listed("sop", base, listed, allow_incomplete)


def inshop(root: Path | str, allow_incomplete: bool = False) -> Collection:
    """In-Shop Clothes Retrieval, split by `list_eval_partition.txt` in the root, `Eval/` or `Anno/`; images in `img/` or `Img/img/`."""
    base = _nested(root, "In-shop Clothes Retrieval Benchmark")
    folders = (base, base / "Eval", base / "Anno")
    lists = [folder / "list_eval_partition.txt" for folder in folders if (folder / "list_eval_partition.txt").is_file()]
    if not lists:
        raise _unknown("inshop", base, "list_eval_partition.txt, also in Eval/ and Anno/")
    listed: dict[str, Classes] = {"train": {}, "query": {}, "gallery": {}}
    for path, label, status in _rows(lists[0], "image_name item_id evaluation_status", skip=2):
        if status not in listed:
            raise InputError(f"{lists[0]}: evaluation_status {status!r} of {path} must be train, query or gallery; mend the list")
        listed[status].setdefault(label, []).append(path)
    return _listed("inshop", base if (base / "img").is_dir() else base / "Img", listed, allow_incomplete)


def class_folders(root: Path) -> Classes:
    """Each folder directly below `root` is a class: its images at any depth, sorted, as paths below `root`.

    Hidden files, and files that are no images by their suffix, are ignored; a class without images is kept, with none.
    """
    classes: Classes = {}
    for name in sorted(entry.name for entry in os.scandir(root) if entry.is_dir()):
        if name.startswith(".") or name == "__MACOSX":
            continue
        paths: list[str] = []
        classes[_utf8(name, root)] = paths
        for folder, below, files in os.walk(root / name):
            below[:] = [b for b in below if not b.startswith(".")]
            images = [f for f in files if f.lower().endswith(SUFFIXES) and not f.startswith(".")]
            paths.extend(_utf8(os.path.relpath(os.path.join(folder, f), root), root).replace(os.sep, "/") for f in images)
        paths.sort()
    return classes


def _nested(root: Path | str, official: str) -> Path:
    """The data's own folder: the root, or the folder of its official name in the root."""
    root = Path(root)
    if not root.is_dir():
        raise InputError(f"{root}: no such folder; give the folder that holds the data")
    return root / official if (root / official).is_dir() else root


def _unknown(name: str, base: Path, wanted: str) -> InputError:
    return InputError(f"{name}: no known layout in {base}; looked for {wanted}")


def _utf8(name: str, root: Path) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(name).decode("utf-8", "backslashreplace")
        raise InputError(f"{root}: the file name '{shown}' is not UTF-8; rename it") from None
    return name


def _some(names: Sequence[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")


def _repacked(base: Path) -> Classes:
    """Class folders below `images/` or the folder itself; there, those of `train/`, `test/` and `val/` are merged."""
    for holder in (base / "images", base):
        if not holder.is_dir():
            continue
        halves = [holder / name for name in ("train", "test", "val", "valid") if (holder / name).is_dir()]
        merged: Classes = {}
        for folder in halves or [holder]:
            prefix = "" if folder == base else folder.relative_to(base).as_posix() + "/"
            for name, paths in class_folders(folder).items():
                merged.setdefault(name, []).extend(prefix + path for path in paths)
        if any(merged.values()):
            # folders without images that carry no class number (attributes/, parts/) are no classes
            return {name: paths for name, paths in merged.items() if paths or name[:1].isdigit()}
    return {}


def _rows(path: Path, header: str, skip: int = 0) -> Iterator[list[str]]:
    """The lines of a list after `skip` of them, each with the columns of the header."""
    columns = len(header.split())
    try:
        lines = path.read_bytes().decode().split("\n")
    except UnicodeDecodeError as damage:
        raise InputError(f"{path}: is not UTF-8 at byte {damage.start}; save the list as UTF-8") from None
    for number, line in enumerate(lines[skip:], start=skip + 1):
        fields = line.split()
        if fields and len(fields) != columns:
            raise InputError(f"{path}: line {number} must have {columns} columns ({header}), not {len(fields)}; mend or replace the list")
        if any(field.startswith("/") or ".." in field.split("/") for field in fields):
            raise InputError(f"{path}: line {number} names a file outside of the folder, {line.strip()!r}; mend or replace the list")
        if fields:
            yield fields


def _cub_lists(base: Path) -> Classes:
    name_of = dict(_rows(base / "classes.txt", "class_id class_name"))
    label_of = dict(_rows(base / "image_class_labels.txt", "image_id class_id"))
    classes: Classes = {name: [] for name in name_of.values()}
    for image, path in _rows(base / "images.txt", "image_id image_name"):
        name = name_of.get(label_of.get(image, ""))
        if name is None:
            raise InputError(f"{base / 'images.txt'}: image {image} has no class in image_class_labels.txt and classes.txt; mend the lists")
        classes[name].append(f"images/{path}")
    return classes


def _load_mat(path: Path) -> Mapping[str, Any]:
    from scipy.io import loadmat

    try:
        return loadmat(path, squeeze_me=True)
    except Exception as damage:  # scipy lets through whatever a damaged file leads to, UnboundLocalError among them
        raise InputError(f"{path}: cannot be read as a MATLAB file ({' '.join(str(damage).split())}); get it again") from damage


def _class_names(path: Path, content: Mapping[str, Any]) -> list[str]:
    if "class_names" not in content:
        raise InputError(f"{path}: has no field 'class_names'; get the official devkit again")
    return [str(name) for name in np.atleast_1d(content["class_names"])]


def _devkit(path: Path) -> tuple[Classes, dict[str, int]]:
    """The classes of `cars_annos.mat` with their files and their numbers."""
    content = _load_mat(path)
    names = _class_names(path, content)
    rows = np.atleast_1d(content.get("annotations", np.zeros(0)))
    if not {"relative_im_path", "class"} <= set(rows.dtype.names or ()):
        raise InputError(f"{path}: has no annotations with 'relative_im_path' and 'class'; get the official devkit again")
    classes: Classes = {name: [] for name in names}
    for image, label in zip(rows["relative_im_path"], rows["class"], strict=True):
        if not 1 <= int(label) <= len(names):
            raise InputError(f"{path}: class {label} of {image} must lie in 1..{len(names)}; get the official devkit again")
        classes[names[int(label) - 1]].append(str(image))
    return classes, {name: number for number, name in enumerate(names, start=1)}


def _numbers_by_name(base: Path, classes: Iterable[str], devkit: Path) -> dict[str, int]:
    """Each class folder's official number: names are compared by letters and digits, as `C/V` cannot be part of a folder's name."""

    def plain(name: str) -> str:
        return re.sub(r"[\W_]", "", name).lower()

    official = {plain(name): number for number, name in enumerate(_class_names(devkit, _load_mat(devkit)), start=1)}
    unknown = [name for name in classes if plain(name) not in official]
    if unknown:
        raise InputError(f"cars196 at {base}: class folders {_some(unknown)} are not in {devkit.name}; rename or remove them")
    return {name: official[plain(name)] for name in classes}


def _halves(name: str, classes: Classes, number: Mapping[str, int]) -> tuple[dict[str, Classes], list[str]]:
    """Train and test by class number, and notes on the numbers that are missing, extra or taken twice."""
    half, total = COUNTS[name]["train"].classes, sum(count.classes for count in COUNTS[name].values())
    order = sorted(classes, key=lambda c: (number[c], c))
    taken = [number[c] for c in order]
    missing = [str(n) for n in range(1, total + 1) if n not in set(taken)]
    extra = [c for c in order if not 1 <= number[c] <= total]
    twice = [c for c in order if taken.count(number[c]) > 1]
    found = (("missing classes", missing), ("extra classes", extra), ("class numbers taken twice", twice))
    notes = [f"{what}: {_some(which)}" for what, which in found if which]
    parts = {"train": [c for c in order if number[c] <= half], "test": [c for c in order if number[c] > half]}
    return {part: {c: classes[c] for c in chosen} for part, chosen in parts.items()}, notes


def _halves_by_image_number(base: Path, classes: Classes) -> dict[str, Classes]:
    """Train and test of CARS by the image files' numbers, which in the official data count up through the classes."""
    remedy = "add cars_annos.mat or cars_meta.mat of the devkit, whose class names tell the official order"
    stems = {name: [Path(path).stem for path in paths] for name, paths in classes.items()}
    for name, found in stems.items():
        strange = [stem for stem in found if not re.fullmatch(r"[0-9]+", stem)]
        if strange:
            raise InputError(f"cars196 at {base}: image {strange[0]!r} of {name} is no image number; {remedy}")
    span = {name: (min(map(int, found)), max(map(int, found))) for name, found in stems.items()}
    order = sorted(classes, key=lambda name: span[name])
    for name, following in itertools.pairwise(order):
        if span[following][0] <= span[name][1]:
            raise InputError(f"cars196 at {base}: image numbers of {name} and {following} overlap and tell no class order; {remedy}")
    (half, images), others = COUNTS["cars196"]["train"], COUNTS["cars196"]["test"]
    if len(order) != half + others.classes:  # where classes are missing or extra, the last training image still marks the border
        half = sum(span[name][0] <= images for name in order)
    return {"train": {c: classes[c] for c in order[:half]}, "test": {c: classes[c] for c in order[half:]}}


def _existing(base: Path, classes: Classes) -> tuple[Classes, list[str]]:
    """The listed files that exist, by reading each folder once, and those that do not."""
    folders = {os.path.dirname(path) for paths in classes.values() for path in paths}
    there = {folder: set(os.listdir(base / folder)) if (base / folder).is_dir() else set() for folder in folders}
    kept: Classes = {name: [] for name in classes}
    absent: list[str] = []
    for name, paths in classes.items():
        for path in paths:
            folder, file = os.path.split(path)
            (kept[name] if file in there[folder] else absent).append(path)
    return kept, absent


def _listed(name: str, base: Path, listed: Mapping[str, Classes], allow_incomplete: bool) -> Collection:
    found = {part: _existing(base, classes) for part, classes in listed.items()}
    absent = [path for _, missing in found.values() for path in missing]
    return _collection(name, base, {part: classes for part, (classes, _) in found.items()}, absent, [], allow_incomplete)


def _collection(
    name: str, base: Path, parts: Mapping[str, Classes], absent: Sequence[str], notes: Sequence[str], allow_incomplete: bool
) -> Collection:
    """The collection of the files found, if they are as many as they must be or fewer are accepted."""
    problems = []
    for part, expected in COUNTS[name].items():
        found = Count(sum(map(bool, parts[part].values())), sum(map(len, parts[part].values())))
        if found != expected:
            counts = f"{found.classes:,} classes and {found.images:,} images, expected {expected.classes:,} and {expected.images:,}"
            problems.append(f"{part} has {counts}")
    problems += notes
    empty = list(dict.fromkeys(c for classes in parts.values() for c, paths in classes.items() if not paths))
    if empty:
        problems.append(f"{len(empty):,} classes have no files: {_some(empty)}")
    if absent:
        problems.append(f"{len(absent):,} listed files are missing: {_some(absent)}")
    if problems and not allow_incomplete:
        raise InputError(f"{name} at {base}: {'; '.join(problems)}; complete the data, or accept it with allow_incomplete=True")
    return Collection(name, _parts(base, parts))


def _parts(base: Path, parts: Mapping[str, Classes]) -> dict[str, Part]:
    """Parts over one list of files; query and gallery, or test alone, share one numbering of classes."""
    files = ImageFiles(base, [path for classes in parts.values() for paths in classes.values() for path in paths])
    sides = {part: "train" if part == "train" else "test" for part in parts}
    names: dict[str, dict[str, int]] = {"train": {}, "test": {}}
    for part, classes in parts.items():
        for c in (c for c, paths in classes.items() if paths):
            names[sides[part]].setdefault(c, len(names[sides[part]]))
    made, start = {}, 0
    for part, classes in parts.items():
        number = names[sides[part]]
        labels = np.array([number[c] for c, paths in classes.items() for _ in paths], dtype=np.int64)
        made[part] = Part(files, np.arange(start, start + len(labels), dtype=np.int64), labels, tuple(number))
        start += len(labels)
    return made
