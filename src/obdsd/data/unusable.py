"""Items that cannot be used: images that cannot be read, vectors that are no direction. All are named at once, or left out."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import PIL
from numpy.typing import NDArray

from obdsd.data.collection import Collection, some
from obdsd.data.items import ImageFiles, Items, Rows
from obdsd.data.part import Part
from obdsd.errors import InputError
from obdsd.files import cache_folder, read_mapping, write_json
from obdsd.provenance import short_digest

CHUNK = 256  # items under way at once: memory stays bounded whatever the size of the collection
ROWS = 2**16  # that are looked at at once
WORTH = 1.0  # seconds of reading that are worth a file in the cache

Faults = Mapping[str, Mapping[int, str]]
"""Part → index of the item → what is wrong with it."""
Progress = Callable[[str, int, int], None]


def usable(collection: Collection, skip_unreadable: bool, drop_nan: bool, progress: Progress) -> Collection:
    """The collection without what cannot be used, where that is asked for. Vectors that cannot are refused else; images are not read."""
    if collection.kind == "embeddings":
        faults = bad_vectors(collection)
        if not drop_nan and any(faults.values()):
            raise InputError(f"{_count(collection, faults)} hold NaN or infinity, or only zeros: {_named(collection, faults)}; "
                             "recompute or remove them, or leave them out with --drop-nan")  # fmt: skip
        return without(collection, faults)
    return without(collection, unreadable(collection, progress)) if skip_unreadable else collection


def check_readable(collection: Collection, progress: Progress = lambda stage, done, total: None) -> None:
    """Refuse image files that cannot be read, all in one line, before long work for the others."""
    if not any(isinstance(part.items, ImageFiles) for part in collection.parts.values()):
        return
    faults = unreadable(collection, progress)
    reasons = [reason.rpartition(";")[0] for found in faults.values() for reason in found.values()]
    if len(reasons) == 1:
        raise InputError(f"{reasons[0]}; replace or remove it, or leave it out with --skip-unreadable")
    if reasons:
        raise InputError(f"{_count(collection, faults)} cannot be read: {_named(collection, faults)}; replace or remove them, or leave "
                         f"them out with --skip-unreadable; the first: {reasons[0]}")  # fmt: skip


def left_out_lines(collection: Collection) -> list[str]:
    """What a user should know of the items that were left out."""
    names = [name for part in collection.left_out.values() for name in part]
    if not names:
        return []
    why = "hold NaN or infinity, or only zeros" if collection.kind == "embeddings" else "cannot be read"
    total = len(names) + sum(map(len, collection.parts.values()))
    return [f"{collection.name}: {len(names):,} of {total:,} {collection.kind} are left out, as they {why}: {some(names)}"]


def not_taken(collection: Collection) -> list[str]:
    """All that is there and not taken: what a reader of the data noticed, and the items that were left out."""
    return [*(f"{collection.name}: {remark}" for remark in collection.remarks), *left_out_lines(collection)]


def without(collection: Collection, faults: Faults) -> Collection:
    """The collection without some items, and without classes and parts of which nothing is left."""
    if not any(faults.values()):
        return collection
    keep = {name: np.setdiff1d(np.arange(len(part)), list(faults.get(name, ()))) for name, part in collection.parts.items()}
    kept = {name: part.take(keep[name]) for name, part in collection.parts.items() if len(keep[name])}
    if not kept:
        raise InputError(f"{collection.name}: no item can be used ({_named(collection, faults)}); check the path")
    searched = [kept[name].labels for name in ("query", "gallery") if name in kept]  # these two share their numbering
    for name, part in kept.items():
        labels = np.concatenate(searched) if name in ("query", "gallery") else part.labels
        kept[name] = part.only(np.unique(labels).tolist())
    left_out = {name: [collection[name].name(index) for index in sorted(found)] for name, found in faults.items() if found}
    return replace(collection, parts=kept, left_out=left_out)


def bad_vectors(collection: Collection) -> dict[str, dict[int, str]]:
    """Vectors that hold NaN or infinity, or only zeros: they have no direction."""
    bad: dict[int, NDArray[np.bool_]] = {}  # of each matrix, which parts share
    faults = {}
    for name, part in collection.parts.items():
        assert isinstance(part.items, Rows)
        matrix = part.items.matrix
        if id(matrix) not in bad:
            pieces = (matrix[start : start + ROWS] for start in range(0, len(matrix), ROWS))
            bad[id(matrix)] = np.concatenate([~np.isfinite(rows).all(axis=1) | ~rows.any(axis=1) for rows in pieces])
        faults[name] = dict.fromkeys(np.flatnonzero(bad[id(matrix)][part.positions]).tolist(), "")
    return faults


def unreadable(collection: Collection, progress: Progress) -> dict[str, dict[int, str]]:
    """Images that cannot be read. What took long to find out is kept in the cache, by the content of all items."""
    digests = {name: [_digest(part, index) for index in range(len(part))] for name, part in collection.parts.items()}
    every = sorted({digest for of_part in digests.values() for digest in of_part})
    key = hashlib.blake2b(" ".join([PIL.__version__, *every]).encode(), digest_size=16).hexdigest()
    file = cache_folder() / "readable" / f"{key}.json"
    if file.exists():
        with suppress(InputError):  # damaged: all are read again
            bad = read_mapping(file)
            return _read(collection, {name: [i for i, d in enumerate(of_part) if d in bad] for name, of_part in digests.items()}, progress)
    since = time.monotonic()
    faults = _read(collection, {name: range(len(part)) for name, part in collection.parts.items()}, progress)
    if time.monotonic() - since > WORTH:
        with suppress(InputError):  # where nothing can be kept, it is found out again
            write_json(file, {digests[name][index]: "unreadable" for name, found in faults.items() for index in found})
    return faults


def _read(collection: Collection, chosen: Mapping[str, Sequence[int]], progress: Progress) -> dict[str, dict[int, str]]:
    """What is wrong with those of the chosen items that cannot be read."""
    faults: dict[str, dict[int, str]] = {}
    done, total = 0, sum(map(len, chosen.values()))
    for name, indices in chosen.items():
        part = collection[name].take(np.asarray(indices, dtype=np.int64))
        faults[name] = {}
        for index, fault in each_item(part, partial(_try, part.items)):
            if fault is not None:
                faults[name][indices[index]] = str(fault)
            done += 1
            if done % CHUNK == 0 or done == total:
                progress("reading images", done, total)
    return faults


def _try(items: Items, position: int) -> None:
    """Raise what reading the item raises; some items know a faster way to tell."""
    getattr(items, "check", items.read)(position)


def _digest(part: Part, index: int) -> str:
    try:
        return short_digest(part.items.content(int(part.positions[index])))
    except (InputError, OSError):  # it is not there, or nobody may read it
        return f"unread {part.name(index)}"


def each_item(part: Part, use: Callable[[int], Any]) -> Iterator[tuple[int, Any]]:
    """What `use` makes of the position of each item of a part, or the error that names it, in their order; several at a time."""

    def used(index: int) -> Any:
        try:
            return use(int(part.positions[index]))
        except InputError as damage:
            return damage

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for start in range(0, len(part), CHUNK):
            indices = range(start, min(start + CHUNK, len(part)))
            yield from zip(indices, pool.map(used, indices), strict=True)


def _count(collection: Collection, faults: Faults) -> str:
    what = "vectors" if collection.kind == "embeddings" else "images"
    return f"{collection.name}: {sum(map(len, faults.values())):,} of {sum(map(len, collection.parts.values())):,} {what}"


def _named(collection: Collection, faults: Faults) -> str:
    return some([collection[name].name(index) for name, found in faults.items() for index in found])
