"""An index on the disk: a folder of which one small file, `index.json`, says what counts.

Every change writes new files beside the old ones. Then a new `index.json`, which names them, takes the place of the old one. So whoever
reads sees the old index or the new one, whenever a writer is killed. Files that no `index.json` names any more are removed afterwards.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from obdsd.errors import InputError
from obdsd.files import check_file, check_format, replacing, write_json
from obdsd.processes import versions
from obdsd.search.vectors import KINDS, Kind

FORMAT = 1
SETTINGS, MODEL, PARTIAL, LOCK = "index.json", "model", "partial", ".lock"
GENERATIONS = ("vectors-*", "items-*.parquet", "rerank-*.npz")  # files of which each generation has its own
TRIES = 20  # a reader may meet a writer's switch a few times, not always
CHUNK = 1 << 20
_INSIDE = re.compile(r"(model/)?\w[\w.-]*")  # names of files in the folder
Arrays = Mapping[str, NDArray[Any]]
Read = TypeVar("Read")


class Stored(NamedTuple):
    """A file of the index, by which damage is noticed."""

    name: str
    bytes: int
    checksum: str


@dataclass(frozen=True, kw_only=True)
class Source:
    """A collection that items come from.

    `data` and `root` open it from any working directory, `opening` with what else `open_data` was told. `folder` is the one that its files
    are below. `prefix` stands before the names of its items, where they would be those of others. `removed` are not taken again.
    """

    data: str
    root: str | None = None
    opening: Mapping[str, Any] = field(default_factory=dict)
    folder: str | None = None
    prefix: str = ""
    removed: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Store:
    """A collection of Milvus that has the vectors, each under a number. `next` is the first number that none of them ever had."""

    uri: str
    collection: str
    next: int


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What `index.json` holds. `thresholds` has for each false-match rate, as text, at least the `similarity` at which it is reached.

    Without a `store` the vectors are in the folder; with one the file `vectors` has their numbers there.
    """

    generation: int
    kind: Kind
    dim: int
    items: int
    recall: float
    model: str
    sources: Sequence[Source]
    files: Mapping[str, Stored]
    rerank: Mapping[str, Stored] = field(default_factory=dict)
    thresholds: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    store: Store | None = None


def is_index(path: Path) -> bool:
    return (path / SETTINGS).is_file()


def check_new_place(out: Path) -> None:
    """Refuse at once, before long work for it, a place for an index where something else is."""
    nearest = next(folder for folder in (out.absolute(), *out.absolute().parents) if folder.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise InputError(f"{out}: cannot be written ({nearest} is no folder that can be written to); choose another place")
    known = any((out / name).exists() for name in (PARTIAL, SETTINGS))
    if out.is_dir() and not known and any(not file.name.startswith(".") for file in out.iterdir()):
        raise InputError(f"{out}: is a folder with other files; choose a place where nothing is")


def read_settings(path: Path) -> Settings:
    """Of an index that is there and complete."""
    file = path / SETTINGS
    if not file.is_file():
        if (path / PARTIAL).is_dir():
            raise InputError(f"{path}: is an index that is not complete; run the same obdsd index command again, it goes on from there")
        what = "is a folder without index.json" if path.is_dir() else "is a file" if path.exists() else "no such folder"
        remedy = "give an index, as obdsd index MODEL DATA --out photos.index writes"
        if not path.exists() and (near := _index_beside(path)) is not None:
            remedy = f"did you mean {near}?"
        raise InputError(f"{path}: {what}; {remedy}")
    try:
        record = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as damage:
        raise InputError(f"{file}: is not JSON ({' '.join(str(damage).split())[:80]}); {_REMEDY}") from damage
    if not isinstance(record, dict):
        raise InputError(f"{file}: must hold named fields; {_REMEDY}")
    check_format(file, "index", record, FORMAT, "build the index anew")
    try:
        return _settings(record)
    except (KeyError, ValueError, TypeError, AttributeError) as damage:
        reason = f"{type(damage).__name__} {' '.join(str(damage).split())[:80]}"
        raise InputError(f"{file}: is not what obdsd index writes ({reason}); {_REMEDY}") from damage


def _index_beside(path: Path) -> Path | None:
    """The index whose name is most like that of one that is not there."""
    folder = path.parent
    names = [file.parent.name for file in folder.glob(f"*/{SETTINGS}")] if folder.is_dir() else []
    near = difflib.get_close_matches(path.name, names, n=1)
    return folder / near[0] if near else None


_REMEDY = "restore it, or build the index anew"


def _settings(record: dict[str, Any]) -> Settings:
    """The record as settings; whatever is of another kind raises."""
    known = {each.name: record[each.name] for each in fields(Settings) if each.name != "store"}
    for name, kind in {"generation": int, "items": int, "dim": int, "recall": float, "model": str, "sources": list}.items():
        if not isinstance(known[name], kind) or isinstance(known[name], bool):
            raise TypeError(f"{name} must be {kind.__name__}")
    if known["kind"] not in KINDS or known["items"] < 1 or known["dim"] < 1:
        raise ValueError("kind, items or dim")
    known["sources"] = [_source(**source) for source in known["sources"]]
    known["files"] = {name: _stored(known["files"][name]) for name in ("vectors", "items", "model.json", "model.safetensors")}
    known["rerank"] = {name: _stored(file) for name, file in known["rerank"].items()}
    for rate, threshold in known["thresholds"].items():
        float(rate), float(threshold["similarity"])
    store = record.get("store")  # not there in an index of before
    return Settings(**known, store=None if store is None else _store(**store))


def _store(uri: str, collection: str, next: int) -> Store:
    if not (isinstance(uri, str) and isinstance(collection, str) and isinstance(next, int)) or not re.fullmatch(r"\w+", collection):
        raise TypeError("a store must be an address, a name and a number")
    return Store(uri=uri, collection=collection, next=next)


def _source(data: str, root: str | None, opening: dict[str, Any], folder: str | None, prefix: str, removed: list[str]) -> Source:
    texts = [data, prefix, *removed, *(text for text in (root, folder) if text is not None)]
    if not all(isinstance(text, str) for text in texts) or not isinstance(opening, dict):
        raise TypeError("a source must hold texts")
    return Source(data=data, root=root, opening=opening, folder=folder, prefix=prefix, removed=tuple(removed))


def _stored(record: list[Any]) -> Stored:
    name, size, checksum = record
    if not (isinstance(name, str) and isinstance(size, int) and isinstance(checksum, str)) or not _INSIDE.fullmatch(name):
        raise TypeError("a file must be a name in the folder, a size and a checksum")
    return Stored(name, size, checksum)


def write_settings(path: Path, settings: Settings) -> None:
    """The switch: from now on this is the index."""
    write_json(path / SETTINGS, {"format": FORMAT, **asdict(settings), "versions": versions()})


def store(path: Path, name: str, write: Callable[[IO[bytes]], None]) -> Stored:
    """A new file of the index, whole or not there."""
    with replacing(path / name) as file:
        write(file)
    return stored(path, name)


def store_arrays(path: Path, name: str, arrays: Arrays) -> Stored:
    return store(path, name, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]


def stored(path: Path, name: str) -> Stored:
    return Stored(name, (path / name).stat().st_size, _checksum(path / name))


def checked(path: Path, file: Stored) -> Path:
    """The path of a file of the index, if its content is still what was written. One that is missing raises `FileNotFoundError`."""
    place = path / file.name
    if not place.exists():
        raise FileNotFoundError(place)
    check_file(place)
    if (place.stat().st_size, _checksum(place)) != (file.bytes, file.checksum):
        raise InputError(f"{place}: is not what was written there, it is damaged or of another index; {_REMEDY}")
    return place


def _checksum(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb", buffering=0) as file:
        while content := file.read(CHUNK):
            digest.update(content)
    return digest.hexdigest()


def read_consistently(path: Path, read: Callable[[Settings], Read]) -> Read:
    """What `read` makes of the index as its settings say; once more if a writer removed the files of the old one meanwhile."""
    for _ in range(TRIES):
        settings = read_settings(path)
        try:
            return read(settings)
        except (FileNotFoundError, InputError) as fault:
            if read_settings(path).generation == settings.generation:
                if isinstance(fault, FileNotFoundError):
                    raise InputError(f"{fault}: no such file; {_REMEDY}") from fault
                raise
    raise InputError(f"{path}: is changed again and again by another process; wait for it")


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """While it lasts, no other process writes the index."""
    lock = FileLock(path / LOCK)
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout as taken:
        raise InputError(f"{path}: another process is writing this index; wait for it, or stop it") from taken
    except OSError as failure:
        raise InputError(f"{path}: cannot be written ({failure.strerror}); choose another place") from failure
    try:
        yield
    finally:
        lock.release()


def remove_old(path: Path, settings: Settings | None, partial: bool) -> None:
    """Remove what the settings do not name: earlier generations, what killed writers left, and perhaps rows that are now in the index."""
    named = set() if settings is None else {file.name for file in (*settings.files.values(), *settings.rerank.values())}
    for pattern in GENERATIONS:
        for file in path.glob(pattern):
            if file.name not in named:
                with suppress(OSError):
                    file.unlink()
    if partial:
        shutil.rmtree(path / PARTIAL, ignore_errors=True)
