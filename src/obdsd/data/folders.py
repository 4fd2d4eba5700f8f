"""Class folders: a folder of images for each class."""

from __future__ import annotations

import difflib
import os
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

from obdsd.data.collection import SPLITS, Collection, collect, collect_unlabelled, some, with_unlabelled
from obdsd.data.columns import part_meant
from obdsd.data.items import ImageFiles
from obdsd.errors import InputError

Classes = dict[str, list[str]]
"""Class name → paths of its images below a folder."""

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")


@dataclass
class Found:
    """What a folder holds, as paths below a root: the images of each class, those in no class folder, and files that are no images."""

    classes: Classes = field(default_factory=dict)
    loose: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)


def folder(path: Path, seed: int = 0, test_fraction: float = 0.5, beside: bool = False) -> Collection:
    """Any folder of images, with a folder for each class or without.

    `photos/<class>/<image>` is split by class with a seed; `photos/train/<class>/<image>` and `photos/test/…` are taken as they are.
    Images that lie in `photos` itself, without class folders, have no labels. Where there are class folders, too, such images are taken
    only if they are asked for, by `beside`.
    """
    if not path.is_dir():
        what = "is a file, not a folder" if path.exists() else "no such folder"
        raise InputError(f"{path}: {what}; {_meant(path)}")
    places = _parts_given(path)
    found = {split: scan(path, place) for split, place in places.items()} if places else {"test": scan(path)}
    rows = [(image, c, split) for split, each in found.items() for c, images in each.classes.items() for image in images]
    loose = [(image, split) for split, each in found.items() for image in each.loose]
    if not rows and not loose:
        raise InputError(
            f"{path}: holds no image ({', '.join(SUFFIXES)}); expected {path}/<class>/<image>, or {path}/<image> without labels"
        )
    if rows:
        images, labels, splits = zip(*rows, strict=True)
        files = ImageFiles(path, [*images, *(image for image, _ in loose)] if beside else images)
        collection = collect(str(path), files, labels, splits if places else None, seed=seed, test_fraction=test_fraction)
        if beside and loose:
            collection = with_unlabelled(collection, range(len(images), len(files.paths)), "lies beside the class folders")
    else:
        images, splits = zip(*loose, strict=True)
        why = f"has no class folder with images; expected {path}/<class>/<image>"
        collection = collect_unlabelled(str(path), ImageFiles(path, images), splits, why)
    return replace(collection, remarks=_remarks(path, found, places, bool(rows) and not beside))


def _meant(path: Path) -> str:
    """What to give instead of a path that is no folder."""
    beside = _folders(path.parent) if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, beside, n=1, cutoff=0.7)
    return f"did you mean folder:{path.parent / near[0]}?" if near else "give a folder of images"


def _parts_given(path: Path) -> dict[str, str]:
    """The folders that are parts, not classes: train beside another, query beside gallery, or all folders there are."""
    names = _folders(path)
    given = {part_meant(name): name for name in names if part_meant(name) in SPLITS}
    known = ("train" in given and len(given) > 1) or given.keys() >= {"query", "gallery"}
    only = len(given) == len(names) and any(_folders(path / name) for name in names)
    return {split: given[split] for split in SPLITS if split in given} if known or only else {}


def _remarks(path: Path, found: dict[str, Found], places: dict[str, str], without_loose: bool) -> list[str]:
    """What is there and not used."""
    unused = [name for name in _folders(path) if places and name not in places.values()]
    classes = [(os.path.join(places.get(split, ""), c), images) for split, each in found.items() for c, images in each.classes.items()]
    empty = [name for name, images in classes if not images]
    loose = [image for each in found.values() if without_loose for image in each.loose]
    others = Counter(Path(file).suffix.lower() or "without a suffix" for each in found.values() for file in each.others)
    kinds = {"folders beside the parts": unused, "class folders without images": empty}
    remarks = [f"{what} are not used: {len(names):,}, {some(names)}" for what, names in kinds.items() if names]
    if loose:
        what = "image beside the class folders is" if len(loose) == 1 else "images beside the class folders are"
        remarks.append(f"{len(loose):,} {what} left out: {some(loose)}")
    if others:
        *first, last = [f"{count:,} {suffix}" for suffix, count in others.most_common()]
        counted = f"{', '.join(first)} and {last}" if first else last
        verb = "is" if others.total() == 1 else "are"
        remarks.append(f"{counted} {verb} not read; formats are {', '.join(SUFFIXES)}")
    return remarks


def class_folders(root: Path) -> Classes:
    """Each folder directly below `root` is a class: its images at any depth, sorted, as paths below `root`.

    Hidden files, and files that are no images by their suffix, are ignored; a class without images is kept, with none.
    """
    return scan(root).classes


def scan(root: Path, place: str = "") -> Found:
    """What a folder holds, or one of the folders in it; all paths are below `root`."""
    found, home = Found(), root / place
    _sort(root, home, [entry.name for entry in os.scandir(home) if entry.is_file()], found.loose, found.others)
    for name in _folders(home):
        images = found.classes[_utf8(name, root)] = []
        for folder, below, files in os.walk(home / name):
            below[:] = [b for b in below if not b.startswith(".")]
            _sort(root, Path(folder), files, images, found.others)
        images.sort()
    found.loose.sort()
    found.others.sort()
    return found


def _folders(path: Path) -> list[str]:
    names = sorted(entry.name for entry in os.scandir(path) if entry.is_dir())
    return [name for name in names if not name.startswith(".") and name != "__MACOSX"]


def _sort(root: Path, folder: Path, files: list[str], images: list[str], others: list[str]) -> None:
    """Put the files of a folder to the images or to the others, but for hidden ones."""
    for name in (name for name in files if not name.startswith(".")):
        path = os.path.relpath(os.path.join(folder, name), root).replace(os.sep, "/")
        if name.lower().endswith(SUFFIXES):
            images.append(_utf8(path, root))
        else:
            others.append(path)


def merged_class_folders(base: Path) -> Classes:
    """The class folders in `images/`, else in the folder itself. Where they lie in `train/`, `test/` and `val/`, these are merged."""
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


def _utf8(name: str, root: Path) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(name).decode("utf-8", "backslashreplace")
        raise InputError(f"{root}: the file name '{shown}' is not UTF-8; rename it") from None
    return name
