"""What the benchmarks share: the folder they lie in, the split by class number, and the check that nothing is missing."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from obdsd.data.collection import Collection, some, split_parts
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
    rows = [(path, c, part) for part, classes in parts.items() for c, paths in classes.items() for path in paths]
    folders = {os.path.dirname(path) for path, *_ in rows}  # each is read once
    files = {os.path.join(folder, file) for folder in folders if os.path.isdir(base / folder) for file in os.listdir(base / folder)}
    exists = [os.path.join(*os.path.split(path)) in files for path, *_ in rows]
    kept, missing = list(itertools.compress(rows, exists)), [path for (path, *_), there in zip(rows, exists, strict=True) if not there]
    filled = {(c, part) for _, c, part in kept}
    problems = []
    for part, expected in counts.items():
        found = Count(sum(where == part for _, where in filled), sum(where == part for *_, where in kept))
        if found != expected:
            problems.append(
                f"{part} has {found.classes:,} classes and {found.images:,} images, expected {expected.classes:,} and {expected.images:,}"
            )
    problems += notes
    empty = list(dict.fromkeys(c for part, classes in parts.items() for c in classes if (c, part) not in filled))
    if empty:
        problems.append(f"{len(empty):,} classes have no files: {some(empty)}")
    if missing:
        problems.append(f"{len(missing):,} listed files are missing: {some(missing)}")
    if problems and not allow_incomplete:
        raise InputError(f"{name} at {base}: {'; '.join(problems)}; complete the data, or accept it with allow_incomplete=True")
    for part in parts:
        if part not in {where for _, where in filled}:
            raise InputError(f"{name}: {part} has no items; check the path and the split")
    images, labels, splits = zip(*kept, strict=True)
    return Collection(name, split_parts(name, ImageFiles(base, images), labels, splits, as_listed=True))
