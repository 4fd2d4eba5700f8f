"""What the benchmarks share: the folder they lie in, the split by class number, and the check that nothing is missing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from obdsd.data.collection import Collection, Part
from obdsd.data.folders import Classes
from obdsd.data.items import ImageFiles
from obdsd.errors import InputError


class Count(NamedTuple):
    """How much a part must hold."""

    classes: int
    images: int


def home(path: Path, official: str) -> Path:
    """The folder of the data: the given one, or the one of its official name in it."""
    if not path.is_dir():
        raise InputError(f"{path}: no such folder; give the folder that holds the data")
    return path / official if (path / official).is_dir() else path


def unknown_layout(name: str, base: Path, wanted: str) -> InputError:
    return InputError(f"{name}: no known layout in {base}; looked for {wanted}")


def some(names: Sequence[str], most: int = 5) -> str:
    """The first few of many names, for a message."""
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")


def read_list(path: Path, header: str, skip: int = 0) -> Iterator[list[str]]:
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


def halves(classes: Classes, number: Mapping[str, int], counts: Mapping[str, Count]) -> tuple[dict[str, Classes], list[str]]:
    """Train and test by class number, and notes on the numbers that are missing, extra or taken twice."""
    half, total = counts["train"].classes, sum(count.classes for count in counts.values())
    order = sorted(classes, key=lambda c: (number[c], c))
    taken = [number[c] for c in order]
    problems = {
        "missing classes": [str(n) for n in range(1, total + 1) if n not in taken],
        "extra classes": [c for c in order if not 1 <= number[c] <= total],
        "class numbers taken twice": [c for c in order if taken.count(number[c]) > 1],
    }
    parts = {"train": [c for c in order if number[c] <= half], "test": [c for c in order if number[c] > half]}
    notes = [f"{problem}: {some(which)}" for problem, which in problems.items() if which]
    return {part: {c: classes[c] for c in chosen} for part, chosen in parts.items()}, notes


def benchmark(
    name: str,
    base: Path,
    parts: Mapping[str, Classes],
    counts: Mapping[str, Count],
    notes: Sequence[str] = (),
    *,
    allow_incomplete: bool,
) -> Collection:
    """The collection of the images that exist. Unless `allow_incomplete`, they must be as many as `counts` says."""
    found, missing = {}, []
    for part, classes in parts.items():
        found[part], absent = _existing(base, classes)
        missing += absent
    problems = [*_wrong_counts(found, counts), *notes]
    empty = list(dict.fromkeys(c for classes in found.values() for c, paths in classes.items() if not paths))
    if empty:
        problems.append(f"{len(empty):,} classes have no files: {some(empty)}")
    if missing:
        problems.append(f"{len(missing):,} listed files are missing: {some(missing)}")
    if problems and not allow_incomplete:
        raise InputError(f"{name} at {base}: {'; '.join(problems)}; complete the data, or accept it with allow_incomplete=True")
    return Collection(name, _parts(base, found))


def _existing(base: Path, classes: Classes) -> tuple[Classes, list[str]]:
    """The images that exist, by reading each folder once, and those that do not."""
    folders = {os.path.dirname(path) for paths in classes.values() for path in paths}
    there = {folder: set(os.listdir(base / folder)) if (base / folder).is_dir() else set() for folder in folders}
    kept: Classes = {name: [] for name in classes}
    absent: list[str] = []
    for name, paths in classes.items():
        for path in paths:
            folder, file = os.path.split(path)
            (kept[name] if file in there[folder] else absent).append(path)
    return kept, absent


def _wrong_counts(parts: Mapping[str, Classes], counts: Mapping[str, Count]) -> list[str]:
    """What differs from the expected counts, a text for each part."""
    wrong = []
    for part, expected in counts.items():
        there = Count(sum(map(bool, parts[part].values())), sum(map(len, parts[part].values())))
        if there != expected:
            wrong.append(
                f"{part} has {there.classes:,} classes and {there.images:,} images, expected {expected.classes:,} and {expected.images:,}"
            )
    return wrong


def _parts(base: Path, parts: Mapping[str, Classes]) -> dict[str, Part]:
    """Parts over one list of files. Query and gallery are searched with each other and share one numbering of their classes."""
    files = ImageFiles(base, [path for classes in parts.values() for paths in classes.values() for path in paths])
    sides = {part: "train" if part == "train" else "test" for part in parts}
    numbers: dict[str, dict[str, int]] = {"train": {}, "test": {}}
    for part, classes in parts.items():
        number = numbers[sides[part]]
        for c in (c for c, paths in classes.items() if paths):
            number.setdefault(c, len(number))
    made, start = {}, 0
    for part, classes in parts.items():
        number = numbers[sides[part]]
        labels = np.array([number[c] for c, paths in classes.items() for _ in paths], dtype=np.int64)
        made[part] = Part(files, np.arange(start, start + len(labels), dtype=np.int64), labels, tuple(number))
        start += len(labels)
    return made
