"""Building and changing an index: what becomes of its sources, its content and its settings."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from obdsd.data import Collection, absolute_source, data_kind, open_data, short_name
from obdsd.data.unusable import not_taken
from obdsd.errors import InputError
from obdsd.models import Embedder, open_model
from obdsd.models.embedder import check_takes
from obdsd.search.fitting import canonical, fit
from obdsd.search.folder import Settings, Source, Stored, alone, check_new_place, is_index
from obdsd.search.how import Change, Pass, Progress
from obdsd.search.index import Index
from obdsd.search.milvus import uri_of
from obdsd.search.naming import sources_named
from obdsd.search.partial import Partial
from obdsd.search.stores import InFolder, clean, place_of
from obdsd.search.table import Item
from obdsd.search.vectors import Kind
from obdsd.search.working import check_fits
from obdsd.search.writing import Content, located, prefixed, save_model, switch, tidy, updated

__all__ = ["add", "build", "of_kind", "of_store", "open_model", "refresh", "remove"]
NOT_YET = Stored("", 0, "")  # a re-ranker that is asked for and not fitted


def source_of(data: str, collection: Collection, opening: Mapping[str, Any]) -> Source:
    """A collection as it can be opened again from anywhere."""
    how = {name: value for name, value in opening.items() if name != "root"}
    root = opening.get("root")
    home = None if root is None else os.path.abspath(Path(root).expanduser())
    return located(Source(data=absolute_source(data), root=home, opening=how), collection)


def build(
    folder: Path,
    embedder: Embedder,
    data: str,
    collection: Collection | None,
    kind: Kind | None,
    store: str | None,
    rerank: Sequence[str],
    how: Pass,
    opening: Mapping[str, Any],
) -> Change:
    """An index where there is none; where there is one of this model and these data, the data are looked at anew."""
    check_new_place(folder)
    _kind("flat", kind, store is not None and uri_of(store) is not None)
    wanted = [canonical(spec) for spec in rerank]
    collection = collection or open_data(data, **opening, beside=True, progress=how.progress)
    check_takes("given", embedder, data, collection.kind, collection.length)
    source = source_of(data, collection, opening)
    digest = embedder.digest()
    check_fits(how, digest)
    with alone(folder):
        if is_index(folder):
            index = Index.open(folder)
            number = _same_again(index, digest, source)
            return apply(index, index.settings.sources, {number: collection}, how, kind=kind, store=store, rerank=wanted)
        kept = Partial(folder, digest, embedder.dim)
        files = save_model(folder, embedder)
        numbers: dict[str, Any] = {"generation": 0, "dim": embedder.dim, "items": 0, "recall": 1.0}
        settings = Settings(**numbers, kind=kind or "flat", model=digest, sources=[], files=files)
        empty = Index(folder, settings, [], InFolder("flat", None))
        empty.embedder = embedder
        return apply(empty, [source], {0: collection}, how, kept=kept, store=store, rerank=wanted)


def add(index: Index, data: str, how: Pass, opening: Mapping[str, Any]) -> Change:
    check_fits(how, index.settings.model)
    collection = open_data(data, **opening, beside=True, progress=how.progress)
    check_takes(str(index.path), index.embedder, data, collection.kind, collection.length)
    source = source_of(data, collection, opening)
    with alone(index.path):
        now = Index.open(index.path)
        sources, number = _added(now, source, collection)
        return apply(now, sources, {number: collection}, how)


def remove(index: Index, names: Sequence[str], how: Pass) -> Change:
    with alone(index.path):
        now = Index.open(index.path)
        return apply(now, _without(now, names), {}, how)


def refresh(index: Index, data: str | None, how: Pass, opening: Mapping[str, Any]) -> Change:
    check_fits(how, index.settings.model)
    with alone(index.path):
        now = Index.open(index.path)
        more = {name: value for name, value in opening.items() if name != "root"}
        sources = [replace(source, opening={**source.opening, **more}) for source in now.settings.sources]
        numbers = [*range(len(sources))]
        if data is not None:
            collection = open_data(data, **opening, beside=True, progress=how.progress)
            sources, number = _moved(now.settings, source_of(data, collection, opening))
            numbers = [number]
        return apply(now, sources, {number: _reopened(now, sources[number], how.progress) for number in numbers}, how)


def of_kind(index: Index, kind: Kind, how: Pass) -> Change:
    with alone(index.path):
        now = Index.open(index.path)
        return apply(now, now.settings.sources, {}, how, kind=kind)


def of_store(index: Index, store: str, how: Pass) -> Change:
    with alone(index.path):
        now = Index.open(index.path)
        return apply(now, now.settings.sources, {}, how, store=store)


def apply(
    index: Index,
    sources: Sequence[Source],
    opened: Mapping[int, Collection],
    how: Pass,
    *,
    kept: Partial | None = None,
    kind: Kind | None = None,
    store: str | None = None,
    rerank: Sequence[str] = (),
) -> Change:
    """Make the index one of these sources, of which some are opened and looked at anew; the others stay as they are."""
    folder, settings = index.path, index.settings
    place = place_of(settings, folder, store)
    if place is not None and settings.store is not None and place == replace(settings.store, uri=place.uri) != settings.store:  # it moved
        index = Index.open(folder, f"milvus:{place.uri}")
    clean(folder, index.settings)
    before = Content(index.items, {}, index.items, index.vectors)
    kept = kept or Partial(folder, settings.model, settings.dim)
    fitted = {**dict.fromkeys(rerank, NOT_YET), **settings.rerank}
    new = replace(settings, sources=[*sources], kind=_kind(settings.kind, kind, place is not None), store=place, rerank=fitted)
    for collection in opened.values():
        for line in not_taken(collection):
            how.tell(line)
    content, count = updated(kept, lambda: index.embedder, sources, opened, before, how)
    if not content.items:
        raise InputError(f"{folder}: nothing would be left in the index; remove the folder, if that is meant")
    if content.items == before.items and new == settings:
        tidy(folder, settings)
    else:
        switch(folder, new, content, lambda spec, rows: fit(spec, rows, how.progress), how.progress)
    return _change(before.items, content.items, count)


def _kind(before: Kind, kind: Kind | None, in_milvus: bool) -> Kind:
    if in_milvus and kind not in (None, "flat"):
        remedy = "leave it out, or take the vectors back: --store folder"
        raise InputError(f"kind={kind} is for vectors in the folder, in Milvus all are compared (flat); {remedy}")
    return "flat" if in_milvus else kind or before


def _change(before: Sequence[Item], after: Sequence[Item], count: int) -> Change:
    old, new = ({item.name: item.digest for item in items} for items in (before, after))
    changed = sum(name in old and old[name] != digest for name, digest in new.items())
    return Change(len(new), len(new.keys() - old.keys()), changed, len(old.keys() - new.keys()), count)


def _same_again(index: Index, model: str, source: Source) -> int:
    """The number of a source that the same command indexes again; an index of another model or of other data is refused."""
    folder, settings = index.path, index.settings
    if settings.model != model:
        raise InputError(f"{folder}: is an index of another model; choose another place, or remove it")
    for number, known in enumerate(settings.sources):
        if known.data == source.data:
            return number
    words = f"obdsd index {shlex.quote(str(folder))} --add {shlex.quote(source.data)}"
    raise InputError(f"{folder}: is an index of other data ({settings.sources[0].data}); to add these: {words}")


def _added(index: Index, source: Source, collection: Collection) -> tuple[list[Source], int]:
    """The sources with one more, and its number. One that is there already is looked at anew, and what was removed of it comes back."""
    settings = index.settings
    for number, known in enumerate(settings.sources):
        if known.data == source.data:
            again = replace(source, prefix=known.prefix)
            return [*settings.sources[:number], again, *settings.sources[number + 1 :]], number
    return [*settings.sources, prefixed(source, collection, index.items)], len(settings.sources)


def _without(index: Index, names: Sequence[str]) -> list[Source]:
    """The sources without some items, all of which must be there or have been removed before."""
    known = sources_named(names, index.items, index.settings.sources)
    sources = []
    for number, source in enumerate(index.settings.sources):
        own = [name for name in names if known[name] == number]
        sources.append(replace(source, removed=tuple(dict.fromkeys([*source.removed, *own]))))
    return sources


def _reopened(index: Index, source: Source, progress: Progress) -> Collection:
    """A collection of an index as it is now."""
    kind, _, place = source.data.partition(":")
    if _gone(source):
        command = f"obdsd index {shlex.quote(str(index.path))} --refresh {kind}:NEW_PLACE"
        raise InputError(f"{index.path}: its data are no longer at {place}; if they moved: {command}; nothing was changed")
    collection = open_data(source.data, root=source.root, **source.opening, beside=True, progress=progress)
    check_takes(str(index.path), index.embedder, source.data, collection.kind, collection.length)
    return collection


def _gone(source: Source) -> bool:
    """Whether a collection is no longer where it was."""
    place = source.data.partition(":")[2]
    return bool(place) and not Path(place).exists()


def _moved(settings: Settings, source: Source) -> tuple[list[Source], int]:
    """The sources, one of which is now elsewhere, and its number: the one of this kind, of several the one that is called the same, or else
    the one that is no longer where it was."""
    alike = [number for number, known in enumerate(settings.sources) if data_kind(known.data) == data_kind(source.data)]
    if len(alike) > 1:
        named = [number for number in alike if short_name(settings.sources[number].data) == short_name(source.data)]
        alike = named or [number for number in alike if _gone(settings.sources[number])]
    if len(alike) != 1:
        known_data = ", ".join(known.data for known in settings.sources)
        raise InputError(f"{source.data}: which collection moved there cannot be told; the index has {known_data}; give it the name it had")
    (number,) = alike
    known = settings.sources[number]
    sources = [*settings.sources]
    sources[number] = replace(source, prefix=known.prefix, removed=known.removed, opening={**known.opening, **source.opening})
    return sources, number
