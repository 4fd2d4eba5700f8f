"""Where the vectors of an index are: in a FAISS file of its folder, or in a collection of Milvus.

In Milvus a change writes new rows under new numbers. Then `index.json` names a file with the numbers that count, and only after that are
the others deleted. So here, too, whoever reads sees the old index or the new one. What a killed writer left is deleted by the next change.
"""

from __future__ import annotations

import abc
import json
import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from obdsd.errors import InputError
from obdsd.files import write_json
from obdsd.search import vectors
from obdsd.search.folder import Settings, Store
from obdsd.search.how import Progress
from obdsd.search.milvus import MOST, Collection, Ids, Rows, connected, lacking, quoted, text, uri_of
from obdsd.search.reranker import Found
from obdsd.search.table import Item
from obdsd.search.vectors import Kind

JOURNAL = "collections.json"  # the collections that were ever made for this index and not dropped yet
AT_ONCE = 64  # queries that Milvus answers in one message


class Allowed(NamedTuple):
    """The items that may be found: those with a label."""

    label: str
    places: NDArray[np.int64]


class Vectors(abc.ABC):
    """Unit rows, in the order of the items."""

    @abc.abstractmethod
    def rows(self) -> Rows:
        """All of them."""

    @abc.abstractmethod
    def take(self, places: NDArray[np.int64]) -> Rows:
        """Those at some positions."""

    @abc.abstractmethod
    def search(self, queries: Rows, k: int, allowed: Allowed | None) -> Found:
        """The `k` nearest of each query by cosine, or as many as there are; of the allowed ones only, if these are given."""


class InFolder(Vectors):
    """In a FAISS index."""

    def __init__(self, kind: Kind, index: Any) -> None:
        self.kind, self.index = kind, index

    def rows(self) -> Rows:
        return vectors.rows_of(self.kind, self.index)

    def take(self, places: NDArray[np.int64]) -> Rows:
        return vectors.some_of(self.kind, self.index, places)

    def search(self, queries: Rows, k: int, allowed: Allowed | None) -> Found:
        return vectors.search(self.kind, self.index, queries, k, None if allowed is None else allowed.places)


class InMilvus(Vectors):
    """In a collection, item i under number `ids[i]`. It is connected to when it is first asked."""

    def __init__(self, store: Store, ids: Ids, dim: int) -> None:
        self.store, self.ids, self.dim = store, ids, dim
        self._order = np.argsort(ids)

    @cached_property
    def collection(self) -> Collection:
        collection = Collection(self.store.uri, self.store.collection)
        collection.load()
        return collection

    def rows(self) -> Rows:
        return self.collection.rows(self.ids, self.dim)

    def take(self, places: NDArray[np.int64]) -> Rows:
        return self.collection.rows(self.ids[places], self.dim) if len(places) else np.empty((0, self.dim), dtype=np.float32)

    def search(self, queries: Rows, k: int, allowed: Allowed | None) -> Found:
        few = min(k, len(self.ids) if allowed is None else len(allowed.places))
        if few > MOST:
            raise InputError(f"k={k:,} is more than Milvus finds at once, {MOST:,} with the query itself; ask for fewer")
        label = "" if allowed is None else f"label == {quoted(str(text(allowed.label)))}"
        found = Found(np.empty((len(queries), few), dtype=np.float32), np.empty((len(queries), few), dtype=np.int64))
        for start in range(0, len(queries), AT_ONCE):
            for number, query in enumerate(self._found(queries[start : start + AT_ONCE], few, label), start=start):
                found.scores[number], found.positions[number] = query
        return found

    def _found(self, queries: Rows, few: int, condition: str) -> list[tuple[Rows, NDArray[np.int64]]]:
        """The best of the index. Rows that a writer has put there and not yet made part of it, or not yet deleted, are passed over."""
        found: dict[int, tuple[Rows, NDArray[np.int64]]] = {}
        waiting, depth = [*range(len(queries))], few
        while waiting:
            for number, (ids, scores) in zip(waiting, self.collection.search(queries[waiting], depth, condition), strict=True):
                places = self._places(ids)
                if (places >= 0).sum() >= few:
                    found[number] = scores[places >= 0][:few], places[places >= 0][:few]
                elif len(ids) < depth or depth == MOST:
                    raise lacking(self.store.uri, self.store.collection)
            waiting, depth = [number for number in waiting if number not in found], min(MOST, 4 * depth)
            condition = " and ".join(filter(None, (condition, f"id < {self.store.next}"))) if waiting else condition
        return [found[number] for number in range(len(queries))]

    def _places(self, ids: Ids) -> NDArray[np.int64]:
        """Positions of the items with these numbers; -1 for a number that is none of the index."""
        near = np.minimum(np.searchsorted(self.ids, ids, sorter=self._order), len(self.ids) - 1)
        places = self._order[near]
        return np.where(self.ids[places] == ids, places, -1)


def read_ids(path: Path, count: int, store: Store) -> Ids:
    """The file with the numbers of the items, which must be what the index's settings say."""
    try:
        ids = np.load(path, allow_pickle=False)
    except Exception as damage:  # a damaged file makes numpy raise a dozen kinds of error
        raise InputError(f"{path}: cannot be read; restore it, or build the index anew") from damage
    if ids.dtype != np.int64 or ids.shape != (count,) or len(np.unique(ids)) < count or not 0 <= ids.min() <= ids.max() < store.next:
        raise InputError(f"{path}: does not hold the numbers of {count:,} items; restore it, or build the index anew")
    return ids


def opened(settings: Settings, file: Path) -> Vectors:
    """The vectors of an index, of which `file` has the vectors themselves or their numbers in Milvus."""
    if settings.store is None:
        return InFolder(settings.kind, vectors.read_vectors(file, settings.kind, settings.items, settings.dim))
    return InMilvus(settings.store, read_ids(file, settings.items, settings.store), settings.dim)


def place_of(settings: Settings, folder: Path, store: str | None) -> Store | None:
    """Where the vectors shall be: where they are, in the folder, in the same collection at another address, or in one yet to be made."""
    uri = None if store is None else uri_of(store)
    if store is None or (settings.store is not None and settings.store.uri == uri):
        return settings.store
    if uri is None:
        return None
    known = settings.store
    if known is not None and Collection(uri, known.collection, make=True).exists():
        return replace(known, uri=uri)  # it moved
    connected(uri, make=True)  # told before long work, not after it
    stem = re.sub(r"\W", "_", folder.name.partition(".")[0], flags=re.ASCII)[:40]
    return Store(uri=str(uri), collection=f"obdsd_{stem}_{secrets.token_hex(4)}", next=0)


def moved(settings: Settings, folder: Path, store: str) -> Settings:
    """The settings of an index whose Milvus is elsewhere now."""
    uri = uri_of(store)
    if settings.store is None or uri is None:
        here = "in its folder" if settings.store is None else f"at milvus:{settings.store.uri}"
        remedy = f"leave it out, or move them: obdsd index {folder} --store {store}"
        raise InputError(f"store={store}: the vectors of {folder} are {here}; {remedy}")
    return replace(settings, store=replace(settings.store, uri=uri))


def send(folder: Path, store: Store, ids: Ids, rows: Rows, items: Sequence[Item], progress: Progress) -> Store:
    """Put new rows into a collection, which is made if none of its numbers was ever given."""
    collection = Collection(store.uri, store.collection, make=store.next == 0)
    if store.next == 0:
        write_json(folder / JOURNAL, [*_journal(folder), [store.uri, store.collection]])
        collection.make(rows.shape[1])
    collection.load()
    collection.put(ids, rows, items, progress)
    return replace(store, next=store.next + len(ids))


def clean(folder: Path, settings: Settings) -> None:
    """Delete rows that are in no index any more, and collections: of earlier generations, and of writers that were killed."""
    store = settings.store
    if store is not None and store.next > 0:
        collection = Collection(store.uri, store.collection)
        collection.load()
        collection.delete_from(store.next)
        named = folder / settings.files["vectors"].name
        current = read_ids(named, settings.items, store)
        for file in folder.glob("vectors-*.npy"):
            if file != named:
                with suppress(OSError, ValueError):
                    collection.delete(np.setdiff1d(np.load(file, allow_pickle=False), current))
    made, own = _journal(folder), [] if store is None else [[store.uri, store.collection]]
    names = {name for _, name in own}  # of the one that counts, wherever it was before
    kept = own + [[uri, name] for uri, name in made if name not in names and not _dropped(uri, name)]
    if kept != made:
        write_json(folder / JOURNAL, kept)


def _dropped(uri: str, name: str) -> bool:
    """Drop a collection; whether it is gone. Where Milvus does not answer, it is tried again after the next change."""
    with suppress(InputError):
        if "://" in uri or Path(uri).exists():
            Collection(uri, name).drop()
        return True
    return False


def _journal(folder: Path) -> list[list[str]]:
    return json.loads((folder / JOURNAL).read_bytes()) if (folder / JOURNAL).exists() else []
