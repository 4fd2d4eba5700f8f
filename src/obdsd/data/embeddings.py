"""Embeddings that people already have (CLIP, DINOv2, …): a head can be trained on them with no image code involved.

Files of vectors (`.npz`, `.npy`, Parquet, `.pt`, `.safetensors`) are read with suspicion, and written whole or not at all.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet
from numpy.typing import NDArray

from obdsd.data.collection import Collection, Photos, collect, collect_unlabelled, grouped, training_defaults
from obdsd.data.columns import MEANINGS, column_for, missing, part_meant, plain
from obdsd.data.items import Rows
from obdsd.data.tables import cells, check_inflated, read_table
from obdsd.data.tensors import read_tensors
from obdsd.errors import InputError
from obdsd.files import check_file, replacing
from obdsd.provenance import TrainedOn, read_made_by

SUFFIXES = (".npz", ".npy", ".parquet", ".pt", ".safetensors")
PHOTOS = "obdsd_photos"  # the array or the metadata that says where the images of the rows are
TRAINED_ON = "obdsd_trained_on"  # the same for what the model that made them was trained on
MADE_BY = "obdsd_made_by"  # and for how that model saw the images
NOTES = (PHOTOS, TRAINED_ON, MADE_BY)


class Vectors(NamedTuple):
    """What such a file holds: a row and perhaps a class name, a split, a group and a name for each item; where their images are, and what
    the model that made the rows was trained on."""

    matrix: NDArray[np.float32]
    labels: NDArray[Any] | None = None
    splits: NDArray[Any] | None = None
    groups: NDArray[np.int64] | None = None
    names: NDArray[Any] | None = None
    photos: Photos | None = None
    unlabelled: str = ""  # how one would give it labels
    trained_on: TrainedOn | None = None
    made_by: dict[str, str | int] | None = None  # how that model saw the images


@training_defaults(epochs=40, backbone="features", head_init="projection", lr=1e-4, weight=100.0)
def embeddings(path: Path, seed: int = 0, test_fraction: float = 0.5) -> Collection:
    """A file of labelled vectors: `.npz`, `.npy`, Parquet, `.pt` or `.safetensors`.

    Its split names the part of each row (train, val, test, query, gallery). Without a split, classes are split with a seed.
    """
    vectors = read_vectors(path)
    splits = None if vectors.splits is None else list(map(part_meant, vectors.splits.tolist()))
    items = Rows(vectors.matrix, vectors.names)
    if vectors.labels is None:
        collection = collect_unlabelled(str(path), items, splits or ["test"] * len(vectors.matrix), vectors.unlabelled, vectors.groups)
    else:
        labels = vectors.labels.tolist()
        collection = collect(str(path), items, labels, splits, groups=vectors.groups, seed=seed, test_fraction=test_fraction)
    return replace(collection, photos=vectors.photos, made_by=vectors.made_by, trained_on=vectors.trained_on)


def read_vectors(path: Path) -> Vectors:
    """Named arrays, columns or tensors: vectors (`embeddings`, `features`, `x`, …) and perhaps `labels`, `split`, `group`, `names`; or one
    array or tensor, with its labels beside it (`NAME.labels.npy`, `NAME_labels.npy`, `labels.npy`). A Parquet file may have a column for
    each dimension (`0`, `1`, …; `f0`, `f1`, …)."""
    file = _read(path)
    columns = dict(file.columns)
    matrix = _matrix(path, columns.pop("embeddings"))
    for name, column in columns.items():
        if column.shape != (len(matrix),) or column.dtype.kind not in "biufUSO":
            shape = f"shape {column.shape} and type {column.dtype}"
            raise InputError(f"{path}: {name} has {shape} for {len(matrix)} vectors; give one text or number for each")
    labels = columns.get("labels")
    if labels is not None and labels.dtype.kind == "f":
        if not (np.abs(labels) < 2**53).all() or (labels != np.round(labels)).any():
            raise InputError(f"{path}: labels are fractions, NaN or too large; give whole numbers or names")
        columns["labels"] = labels.astype(np.int64)
    texts = {name: _text(path, name, column) for name, column in columns.items()}
    groups = grouped(texts["group"].tolist()) if "group" in texts else None
    photos, trained_on = _photos(file.notes.get(PHOTOS)), _trained_on(file.notes.get(TRAINED_ON))
    return Vectors(
        matrix,
        texts.get("labels"),
        texts.get("split"),
        groups,
        texts.get("names"),
        photos,
        file.unlabelled,
        trained_on,
        _made_by(file.notes.get(MADE_BY)),
    )


def write_vectors(path: Path, vectors: Vectors) -> None:
    """`.parquet`, the rows as lists of one length, or `.npz`; what `read_vectors` reads."""
    optional = {"labels": vectors.labels, "split": vectors.splits, "group": vectors.groups, "names": vectors.names}
    columns: dict[str, Any] = {name: column for name, column in optional.items() if column is not None}
    notes: dict[str, Any] = {} if vectors.photos is None else {PHOTOS: json.dumps(vectors.photos)}
    notes |= {} if vectors.trained_on is None else {TRAINED_ON: json.dumps(vars(vectors.trained_on))}
    notes |= {} if vectors.made_by is None else {MADE_BY: json.dumps(vectors.made_by)}
    with replacing(path) as file:
        if path.suffix.lower() == ".parquet":
            rows = pa.FixedSizeListArray.from_arrays(pa.array(vectors.matrix.ravel()), vectors.matrix.shape[1])
            table = pa.table({"embeddings": rows, **columns})
            pa.parquet.write_table(table.replace_schema_metadata(notes), file)
        else:
            np.savez(file, embeddings=vectors.matrix, **columns, **notes)


class _File(NamedTuple):
    """The columns that are used, by what they mean; what is written about the rows; why there are no labels."""

    columns: dict[str, NDArray[Any]]
    notes: Mapping[str, Any] = {}
    unlabelled: str = ""


def _read(path: Path) -> _File:
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{path}: is no embeddings file; expected {', '.join(SUFFIXES)}")
    there: list[str] = []  # all names, for a message

    def choose(names: list[str]) -> list[str]:
        there.extend(names)
        return [name for group in _used(path, names).values() for name in group]

    if suffix == ".npy":
        return _with_labels_beside(path, {"embeddings": read_arrays(path, choose)})
    if suffix == ".parquet":
        table = read_table(path, choose)
        used = _used(path, table.column_names)
        found = {meaning: _column(path, group[0], table[group[0]]) for meaning, group in used.items() if meaning != "embeddings"}
        found["embeddings"] = _vectors(path, used["embeddings"], table)
        notes = {name: (table.schema.metadata or {}).get(name.encode()) for name in NOTES}
    else:
        arrays = read_arrays(path, choose) if suffix == ".npz" else read_tensors(path, choose)
        found = {meaning: arrays[group[0]] for meaning, group in _used(path, list(arrays)).items()}
        notes = {name: found.pop(name, None) for name in NOTES}
        if suffix == ".pt" and there == ["embeddings"]:
            return _with_labels_beside(path, found)
    return _File(found, notes, "" if "labels" in found else missing(there, "label", "y"))


def _with_labels_beside(path: Path, found: dict[str, NDArray[Any]]) -> _File:
    """One array or tensor, whose labels have a file of their own."""
    end = path.suffix
    beside = [path.with_suffix(f".labels{end}"), path.with_name(f"{path.stem}_labels{end}"), path.with_name(f"labels{end}")]
    labels = next((file for file in beside if file.exists() and file != path), None)
    if labels is None:
        return _File(found, unlabelled=f"has no labels beside it; save them as {beside[0].name}")
    return _File(
        {
            **found,
            "labels": read_arrays(labels, list) if end.lower() == ".npy" else read_tensors(labels, lambda names: names[:1]).popitem()[1],
        }
    )


def _used(path: Path, names: Sequence[str]) -> dict[str, list[str]]:
    """Of the names that a file holds, those that are used, by what they mean; others are not even read."""
    vectors = column_for(path, names, "embeddings")
    used = {"embeddings": _dimensions(path, names) if vectors is None else [vectors]}
    single = {"labels": column_for(path, names, "label", "y"), "split": column_for(path, names, "split")}
    single["group"] = column_for(path, names, "group")
    single["names"] = next((name for accepted in MEANINGS["names"] for name in names if plain(name) == accepted), None)
    if path.suffix.lower() == ".npz":
        single |= {name: name for name in NOTES if name in names}
    return used | {meaning: [name] for meaning, name in single.items() if name is not None}


def _dimensions(path: Path, names: Sequence[str]) -> list[str]:
    """The columns of a wide table, one for each dimension, in the order of their numbers: the most that have one name before them."""
    by_name: dict[str, dict[int, str]] = defaultdict(dict)
    for name in names:
        if path.suffix.lower() == ".parquet" and (found := re.fullmatch(r"(.*?)(\d{1,9})", name)):
            by_name[found[1]][int(found[2])] = name
    several = sorted((columns for columns in by_name.values() if len(columns) > 1), key=len)
    if not several:
        raise InputError(f"{path}: {missing(names, 'embeddings')}")
    if len(several) > 1 and len(several[-1]) == len(several[-2]):
        one, other = (min(columns.values()) for columns in several[-2:])
        raise InputError(f"{path}: columns from {one!r} and from {other!r} on could both be the vectors; rename or remove one kind")
    columns = several[-1]
    first, last = min(columns), max(columns)
    if first > 1 or last - first + 1 > len(columns):
        lost = next(number for number in range(min(first, 1), last) if number not in columns)
        raise InputError(f"{path}: columns {columns[first]!r} to {columns[last]!r} lack number {lost}; give one for each dimension")
    return [columns[number] for number in range(first, last + 1)]


def _photos(written: Any) -> Photos | None:
    """Where the images are, if the file says so in the form in which it is written here."""
    try:
        source, root = _noted(written)
    except (TypeError, ValueError):
        return None
    known = isinstance(source, str) and (root is None or isinstance(root, str))
    return Photos(source, root) if known else None


def _trained_on(written: Any) -> TrainedOn | None:
    """The same for what the model was trained on."""
    try:
        return TrainedOn.read(_noted(written))
    except InputError:
        return None


def _made_by(written: Any) -> dict[str, str | int] | None:
    """The same for how the model saw the images."""
    try:
        return read_made_by(_noted(written))
    except InputError:
        return None


def _noted(written: Any) -> Any:
    """What a note says; None if it cannot be read."""
    try:
        return json.loads(str(written) if isinstance(written, np.ndarray) else written or "null")
    except (TypeError, ValueError, RecursionError):
        return None


def read_arrays(path: Path, choose: Callable[[list[str]], Sequence[str]]) -> Any:
    """The array of a `.npy` file, or the arrays of a `.npz` that are chosen; pickled objects are refused."""
    check_file(path)
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            archive = isinstance(loaded, np.lib.npyio.NpzFile)
            if archive:
                chosen = choose(loaded.files)
                stored = {member.filename.removesuffix(".npy"): member.file_size for member in loaded.zip.infolist()}
                check_inflated(path, sum(stored[name] for name in chosen))
                loaded = {name: np.lib.format.read_array(loaded.zip.open(f"{name}.npy"), allow_pickle=False) for name in chosen}
    except InputError:
        raise
    except Exception as fault:  # a damaged file makes numpy raise a dozen kinds of error
        if "pickle" in str(fault):
            remedy = "save names with labels.astype(str), vectors as numbers"
            raise InputError(f"{path}: holds Python objects, or no arrays at all; {remedy}") from fault
        raise InputError(f"{path}: cannot be read ({' '.join(str(fault).split())[:200]}); save plain arrays with numpy") from fault
    if (path.suffix.lower() == ".npz") != archive:
        raise InputError(f"{path}: is not what its suffix says; save .npy with numpy.save and .npz with numpy.savez")
    return loaded


def _text(path: Path, name: str, column: NDArray[Any]) -> NDArray[Any]:
    """A column as text, which must be Unicode: it is written into files."""
    try:
        texts = np.char.decode(column, "utf-8") if column.dtype.kind == "S" else column.astype(str)
        "".join(texts.tolist()).encode()
        if texts.itemsize and texts.view(np.uint32).max(initial=0) > sys.maxunicode:
            raise ValueError("numbers that are no characters")
    except (ValueError, SystemError) as fault:
        raise InputError(f"{path}: {name} holds what is no text ({' '.join(str(fault).split())[:200]}); write it as UTF-8") from fault
    return texts


def _column(path: Path, name: str, column: pa.ChunkedArray) -> NDArray[Any]:
    """A Parquet column of texts or numbers as an array."""
    _check_filled(path, name, column)
    return np.asarray(cells(path, name, column))


def _check_filled(path: Path, name: str, column: pa.ChunkedArray) -> None:
    if column.null_count:
        raise InputError(f"{path}: column {name!r} has {column.null_count} empty cells; fill or drop them")


def _vectors(path: Path, names: Sequence[str], table: pa.Table) -> NDArray[Any]:
    """A Parquet column of lists, or a column for each dimension, as a matrix; an empty cell of the latter is NaN."""
    name, column = names[0], table[names[0]]
    if len(names) > 1:
        try:
            return np.stack([table[name].cast(pa.float32(), safe=False).to_numpy() for name in names], axis=1)
        except pa.ArrowException:
            raise InputError(f"{path}: columns {names[0]!r} to {names[-1]!r} hold something other than numbers") from None
    _check_filled(path, name, column)
    is_list = any(test(column.type) for test in (pa.types.is_fixed_size_list, pa.types.is_list, pa.types.is_large_list))
    widths = pa.compute.unique(pa.compute.list_value_length(column)).to_pylist() if is_list else []
    if len(widths) != 1:
        found = f"lengths {sorted(widths)[:5]}" if widths else f"type {column.type}"
        raise InputError(f"{path}: column {name!r} must hold one vector a row, all of one length; it has {found}")
    try:
        numbers = [chunk.flatten().cast(pa.float32(), safe=False).to_numpy(zero_copy_only=False) for chunk in column.chunks]
    except pa.ArrowException:
        raise InputError(f"{path}: column {name!r} holds something other than numbers") from None
    return np.concatenate(numbers).reshape(len(column), widths[0])


def _matrix(path: Path, vectors: NDArray[Any]) -> NDArray[np.float32]:
    if vectors.ndim != 2 or 0 in vectors.shape or vectors.dtype.kind not in "fiu":
        raise InputError(f"{path}: vectors have shape {vectors.shape} and type {vectors.dtype}; expected numbers of shape (items, dim)")
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(vectors, dtype=np.float32)
