"""Building and changing an index: what becomes of its sources, its content and its settings. The caller holds the index's lock."""

from __future__ import annotations

import difflib
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from obdsd.data import Collection, absolute_source, data_kind, open_data, short_name
from obdsd.errors import InputError
from obdsd.models import Embedder
from obdsd.models.embedder import check_takes
from obdsd.search.fitting import fit
from obdsd.search.folder import PARTIAL, Settings, Source, Stored, remove_old
from obdsd.search.partial import Partial
from obdsd.search.table import Item
from obdsd.search.vectors import Kind
from obdsd.search.writing import Change, Content, Pass, Progress, located, model_digest, prefixed, save_model, switch, updated

NOT_YET = Stored("", 0, "")  # a re-ranker that is asked for and not fitted


def check_new_place(out: Path) -> None:
    """Refuse at once, before long work for it, a place for an index where something else is."""
    nearest = next(folder for folder in (out.absolute(), *out.absolute().parents) if folder.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise InputError(f"{out}: cannot be written ({nearest} is no folder that can be written to); choose another place")
    known = any((out / name).exists() for name in (PARTIAL, "index.json"))
    if out.is_dir() and not known and any(not file.name.startswith(".") for file in out.iterdir()):
        raise InputError(f"{out}: is a folder with other files; choose a place where nothing is")


def source_of(data: str, collection: Collection, opening: Mapping[str, Any]) -> Source:
    """A collection as it can be opened again from anywhere."""
    how = {name: value for name, value in opening.items() if name != "root"}
    root = opening.get("root")
    home = None if root is None else os.path.abspath(Path(root).expanduser())
    return located(Source(data=absolute_source(data), root=home, opening=how), collection)


def build(
    folder: Path, embedder: Embedder, source: Source, collection: Collection, kind: Kind | None, rerank: Sequence[str], how: Pass
) -> Change:
    """A new index, where there is none."""
    digest = model_digest(embedder)
    kept = Partial(folder, digest, embedder.dim)
    files = save_model(folder, embedder)
    settings = Settings(
        generation=0, kind=kind or "flat", dim=embedder.dim, items=0, recall=1.0, model=digest, sources=[source], files=files
    )
    empty = Content([], np.empty((0, embedder.dim), dtype=np.float32))
    return apply(folder, settings, empty, lambda: embedder, [source], {0: collection}, how, kept=kept, rerank=rerank)


def apply(
    folder: Path,
    settings: Settings,
    before: Content,
    embedder: Callable[[], Embedder],
    sources: Sequence[Source],
    opened: Mapping[int, Collection],
    how: Pass,
    *,
    kept: Partial | None = None,
    kind: Kind | None = None,
    rerank: Sequence[str] = (),
) -> Change:
    """Make the index one of these sources, of which some are opened and looked at anew; the others stay as they are."""
    kept = kept or Partial(folder, settings.model, settings.dim)
    fitted = {**dict.fromkeys(rerank, NOT_YET), **settings.rerank}
    new = replace(settings, sources=[*sources], kind=kind or settings.kind, rerank=fitted)
    content, count = updated(kept, embedder, sources, opened, before, how)
    if not content.items:
        raise InputError(f"{folder}: nothing would be left in the index; remove the folder, if that is meant")
    if content.items == before.items and new == settings:
        remove_old(folder, settings, partial=True)
    else:
        switch(folder, new, content, lambda spec, rows: fit(spec, rows, how.progress), how.progress)
    return _change(before.items, content.items, count)


def _change(before: Sequence[Item], after: Sequence[Item], count: int) -> Change:
    old, new = ({item.name: item.digest for item in items} for items in (before, after))
    changed = sum(name in old and old[name] != digest for name, digest in new.items())
    return Change(len(new), len(new.keys() - old.keys()), changed, len(old.keys() - new.keys()), count)


def same_again(folder: Path, settings: Settings, embedder: Embedder, source: Source) -> int:
    """The number of a source that the same command indexes again; an index of another model or of other data is refused."""
    if settings.model != model_digest(embedder):
        raise InputError(f"{folder}: is an index of another model; choose another place, or remove it")
    for number, known in enumerate(settings.sources):
        if known.data == source.data:
            return number
    words = f"obdsd index {shlex.quote(str(folder))} --add {shlex.quote(source.data)}"
    raise InputError(f"{folder}: is an index of other data ({settings.sources[0].data}); to add these: {words}")


def added(settings: Settings, source: Source, collection: Collection, items: Sequence[Item]) -> tuple[list[Source], int]:
    """The sources with one more, and its number. One that is there already is looked at anew, and what was removed of it comes back."""
    for number, known in enumerate(settings.sources):
        if known.data == source.data:
            again = replace(source, prefix=known.prefix)
            return [*settings.sources[:number], again, *settings.sources[number + 1 :]], number
    return [*settings.sources, prefixed(source, collection, items)], len(settings.sources)


def without(settings: Settings, items: Sequence[Item], names: Sequence[str]) -> list[Source]:
    """The sources without some items, all of which must be there. Nothing is opened: the items stay out of what is kept."""
    known = {item.name: item.source for item in items}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            remedy = f"did you mean {near[0]}?" if near else f"names are such as {items[0].name}"
            raise InputError(f"{name!r} is no item of the index; {remedy}; nothing was removed")
    sources = []
    for number, source in enumerate(settings.sources):
        own = [name for name in names if known[name] == number]
        sources.append(replace(source, removed=tuple(dict.fromkeys([*source.removed, *own]))))
    return sources


def reopened(folder: Path, source: Source, embedder: Embedder, progress: Progress) -> Collection:
    """A collection of an index as it is now."""
    kind, _, place = source.data.partition(":")
    if place and not Path(place).exists():
        command = f"obdsd index {shlex.quote(str(folder))} --refresh {kind}:NEW_PLACE"
        raise InputError(f"{folder}: its data are no longer at {place}; if they moved: {command}; nothing was changed")
    collection = open_data(source.data, root=source.root, **source.opening, progress=progress)
    check_takes(str(folder), embedder, source.data, collection.kind, collection.length)
    return collection


def moved(settings: Settings, source: Source) -> tuple[list[Source], int]:
    """The sources, one of which is now elsewhere, and its number: the one of this kind, of several the one that is called the same."""
    alike = [number for number, known in enumerate(settings.sources) if data_kind(known.data) == data_kind(source.data)]
    if len(alike) > 1:
        alike = [number for number in alike if short_name(settings.sources[number].data) == short_name(source.data)]
    if len(alike) != 1:
        known_data = ", ".join(known.data for known in settings.sources)
        raise InputError(f"{source.data}: which collection moved there cannot be told; the index has {known_data}; give its kind and name")
    (number,) = alike
    known = settings.sources[number]
    sources = [*settings.sources]
    sources[number] = replace(source, prefix=known.prefix, removed=known.removed, opening={**known.opening, **source.opening})
    return sources, number
