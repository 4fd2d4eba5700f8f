"""How an index is built and changed: only what is not known yet is embedded, and the new index takes the place of the old one at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from obdsd.data import Collection, Part, short_name
from obdsd.data.collection import some
from obdsd.data.decoded import at_a_test
from obdsd.data.items import ImageFiles
from obdsd.data.unusable import check_readable, each_item
from obdsd.errors import InputError
from obdsd.evaluation.embedding import embedded
from obdsd.models import Embedder
from obdsd.models.devices import choose_device
from obdsd.search.folder import MODEL, Arrays, Settings, Source, Stored, remove_old, store, store_arrays, stored, write_settings
from obdsd.search.how import Pass, Progress
from obdsd.search.partial import Partial
from obdsd.search.stores import InMilvus, Vectors, clean, send
from obdsd.search.table import Item, stamped, write_items
from obdsd.search.vectors import made, tuned, write_vectors
from obdsd.search.working import at_work, workers_for

Rows = NDArray[np.float32]
Fit = Callable[[str, Rows], Arrays]


class Content(NamedTuple):
    """Items, and unit rows by the digests of what was embedded for them; the index before knows the other rows."""

    items: list[Item]
    fresh: Mapping[str, Rows]
    before: Sequence[Item]
    vectors: Vectors

    def rows(self, places: NDArray[np.int64], dim: int) -> Rows:
        """Those of the items at some positions."""
        known = {item.digest: place for place, item in enumerate(self.before)}
        digests = [self.items[place].digest for place in places.tolist()]
        rows = np.empty((len(digests), dim), dtype=np.float32)
        old = [number for number, digest in enumerate(digests) if digest in known]
        if old:
            rows[old] = self.vectors.take(np.array([known[digests[number]] for number in old], dtype=np.int64))
        for number, digest in enumerate(digests):
            if digest not in known:
                rows[number] = self.fresh[digest]
        return rows

    def same(self) -> NDArray[np.int64]:
        """For each item its position in the index before, if its row, its name and its label are what they were there; else -1."""
        known = {(item.name, item.label, item.digest): place for place, item in enumerate(self.before)}
        return np.array([known.get((item.name, item.label, item.digest), -1) for item in self.items], dtype=np.int64)


def located(source: Source, collection: Collection) -> Source:
    """The source with the folder that its files are below."""
    items = next(iter(collection.parts.values())).items
    files = getattr(items, "files", items)
    return replace(source, folder=os.path.abspath(files.root) if isinstance(files, ImageFiles) else None)


def prefixed(source: Source, collection: Collection, others: Sequence[Item]) -> Source:
    """The source with a prefix for its names, if they would be those of other items."""
    whole, _ = collection.joined()
    taken, own = {item.name for item in others}, [whole.name(index) for index in range(len(whole))]
    for prefix in ("", f"{short_name(source.data)}/"):
        both = [name for name in own if prefix + name in taken]
        if not both:
            return replace(source, prefix=prefix)
    raise InputError(f"{source.data}: {len(both):,} of its items have names that are in the index: {some(both)}; rename its folder")


def items_of(source: Source, number: int, collection: Collection, before: Sequence[Item], progress: Progress) -> tuple[list[Item], Part]:
    """The items of a collection as they are now, but for those that were removed, and the part that holds them in the same order."""
    whole, _ = collection.joined()
    removed, earlier = {*source.removed}, {item.name: item for item in before}
    names = [source.prefix + whole.name(index) for index in range(len(whole))]
    taken = [index for index, name in enumerate(names) if name not in removed]
    part = whole.take(np.array(taken, dtype=np.int64))
    labels = [label or None for label in part.classes.tolist()]  # what has no label is of the class ""
    place = {position: index for index, position in enumerate(part.positions.tolist())}

    def look(position: int) -> Item:
        index = place[position]
        name = names[taken[index]]
        return stamped(part.items, position, name, labels[index], number, earlier.get(name))

    items: list[Item] = []
    for index, item in each_item(part, look):
        if isinstance(item, InputError):
            check_readable(collection, progress)  # one file cannot be read: name all that cannot
            raise item
        items.append(item)
        progress("looking at the items", index + 1, len(part))
    return items, part


def embed_new(
    kept: Partial, embedder: Callable[[], Embedder], part: Part, items: Sequence[Item], known: Container[str], how: Pass
) -> tuple[dict[str, Rows], int]:
    """Rows by the digests of the items whose content is not known, and how many were embedded for that. Rows are kept as they come."""
    rows = kept.read()
    first = {item.digest: index for index, item in reversed([*enumerate(items)]) if item.digest not in rows and item.digest not in known}
    wanted = sorted(first.values())
    if wanted:
        device, model = choose_device(how.device), embedder()
        if (computed := how.known(part, device)) is not None:
            return dict(zip((item.digest for item in items), computed, strict=True)), 0
        new = part.take(np.array(wanted))
        new = new if model.preprocessing is None else at_a_test(new, model.preprocessing)
        digests, done = [items[index].digest for index in wanted], 0
        how.progress("embedding", 0, len(wanted))
        fast = at_work(model, len(wanted), how)
        batches = embedded(fast, new, batch_size=how.batch_size, workers=workers_for(new, how), device=device)
        try:
            for found in batches:
                own = digests[done : done + len(found)]
                kept.add(own, found)
                rows |= dict(zip(own, found, strict=True))
                done += len(found)
                how.progress("embedding", done, len(wanted))
        finally:  # stopped, or an image cannot be read: what was done is not done again
            batches.close()
            kept.write()
    return rows, len(wanted)


def save_model(folder: Path, embedder: Embedder) -> dict[str, Stored]:
    embedder.save(folder / MODEL)
    return {name: stored(folder, f"{MODEL}/{name}") for name in ("model.json", "model.safetensors")}


def updated(
    kept: Partial, embedder: Callable[[], Embedder], sources: Sequence[Source], opened: Mapping[int, Collection], before: Content, how: Pass
) -> tuple[Content, int]:
    """The content of these sources: those that were opened as they are now, the others as before; and how many items were embedded."""
    items, fresh, embedded_now, known = list[Item](), dict[str, Rows](), 0, {item.digest for item in before.items}
    for number, source in enumerate(sources):
        own = [item for item in before.items if item.source == number]
        if number in opened:
            own, part = items_of(source, number, opened[number], own, how.progress)
            try:
                rows, count = embed_new(kept, embedder, part, own, known, how)
            except InputError:
                check_readable(opened[number], how.progress)  # one image cannot be read: name all that cannot
                raise
            fresh, embedded_now = fresh | rows, embedded_now + count
        removed = {*source.removed}
        items += [item for item in own if item.name not in removed]
    names = [item.name for item in items]
    if len({*names}) < len(names):
        both = sorted({name for name in names if names.count(name) > 1})
        raise InputError(f"{len(both):,} names are in two collections of the index: {some(both)}; rename these files in one of them")
    return before._replace(items=items, fresh=fresh), embedded_now


def switch(folder: Path, settings: Settings, content: Content, fit: Fit, progress: Progress) -> Settings:
    """Write the content as the next generation with these settings; then it is the index. Its re-rankers are fitted anew."""
    settings = replace(settings, generation=settings.generation + 1, items=len(content.items), files=dict(settings.files))
    progress("writing the index", 0, 1)
    settings, rows = (_in_folder if settings.store is None else _in_milvus)(folder, settings, content, progress)
    items = store(folder, f"items-{settings.generation}.parquet", partial(write_items, items=content.items))
    progress("writing the index", 1, 1)
    rerank = {}
    for number, spec in enumerate(settings.rerank):
        rerank[spec] = store_arrays(folder, f"rerank-{settings.generation}-{number}.npz", fit(spec, rows()))
    new = replace(settings, files={**settings.files, "items": items}, rerank=rerank)
    write_settings(folder, new)
    tidy(folder, new)
    return new


def _in_folder(folder: Path, settings: Settings, content: Content, progress: Progress) -> tuple[Settings, Callable[[], Rows]]:
    """The settings with a FAISS file of the content, and all its rows."""
    rows = content.rows(np.arange(settings.items), settings.dim)
    vectors = made(settings.kind, rows)
    recall = tuned(settings.kind, vectors, rows)
    file = store(folder, f"vectors-{settings.generation}.faiss", lambda file: write_vectors(file.write, vectors))
    return replace(settings, recall=recall, files={**settings.files, "vectors": file}), lambda: rows


def _in_milvus(folder: Path, settings: Settings, content: Content, progress: Progress) -> tuple[Settings, Callable[[], Rows]]:
    """The settings with a file of the numbers of the items in Milvus, where new rows were put, and all rows."""
    assert settings.store is not None
    old = content.vectors if isinstance(content.vectors, InMilvus) and settings.store.next else None
    same = np.full(settings.items, -1) if old is None else content.same()
    new = np.flatnonzero(same < 0)
    rows = content.rows(new, settings.dim)
    ids = np.empty(len(same), dtype=np.int64)
    ids[same >= 0] = [] if old is None else old.ids[same[same >= 0]]
    ids[new] = settings.store.next + np.arange(len(new))
    target = send(folder, settings.store, ids[new], rows, [content.items[place] for place in new.tolist()], progress)
    file = store(folder, f"vectors-{settings.generation}.npy", partial(np.save, arr=ids))
    changed = replace(settings, recall=1.0, store=target, files={**settings.files, "vectors": file})
    return changed, InMilvus(target, ids, settings.dim).rows


def tidy(folder: Path, settings: Settings) -> None:
    """Remove what the settings do not name. If Milvus is gone meanwhile, the next change does it."""
    with suppress(InputError):
        clean(folder, settings)
        remove_old(folder, settings, partial=True)
