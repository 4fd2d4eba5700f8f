"""How an index is built and changed: only what is not known yet is embedded, and the new index takes the place of the old one at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
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
from obdsd.search.table import Item, stamped, write_items
from obdsd.search.vectors import made, tuned, write_vectors
from obdsd.search.working import at_work, workers_for

Rows = NDArray[np.float32]
Fit = Callable[[str, Rows], Arrays]


class Content(NamedTuple):
    """Items and a unit row for each."""

    items: list[Item]
    rows: Rows

    def of(self, source: int) -> Content:
        """Those of one source."""
        places = [place for place, item in enumerate(self.items) if item.source == source]
        return Content([self.items[place] for place in places], self.rows[places])

    def without(self, names: Sequence[str]) -> Content:
        gone = {*names}
        places = [place for place, item in enumerate(self.items) if item.name not in gone]
        return Content([self.items[place] for place in places], self.rows[places])


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
    labels = [None] * len(part) if part.unlabelled else part.classes.tolist()
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
    kept: Partial, embedder: Callable[[], Embedder], part: Part, items: Sequence[Item], known: Mapping[str, Rows], how: Pass
) -> tuple[Rows, int]:
    """A row for each item, and how many were embedded for that: those whose content is not known. Rows are kept as they come."""
    rows = {**kept.read(), **known}
    first = {item.digest: index for index, item in reversed([*enumerate(items)]) if item.digest not in rows}
    wanted = sorted(first.values())
    if wanted:
        device, model = choose_device(how.device), embedder()
        if (computed := how.known(part, device)) is not None:
            return computed, 0
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
    return np.stack([rows[item.digest] for item in items]), len(wanted)


def save_model(folder: Path, embedder: Embedder) -> dict[str, Stored]:
    embedder.save(folder / MODEL)
    return {name: stored(folder, f"{MODEL}/{name}") for name in ("model.json", "model.safetensors")}


def updated(
    kept: Partial, embedder: Callable[[], Embedder], sources: Sequence[Source], opened: Mapping[int, Collection], before: Content, how: Pass
) -> tuple[Content, int]:
    """The content of these sources: those that were opened as they are now, the others as before; and how many items were embedded."""
    parts, embedded_now = [], 0
    for number, source in enumerate(sources):
        old = before.of(number)
        if number in opened:
            items, part = items_of(source, number, opened[number], old.items, how.progress)
            known = {item.digest: row for item, row in zip(before.items, before.rows, strict=True)}
            try:
                rows, count = embed_new(kept, embedder, part, items, known, how)
            except InputError:
                check_readable(opened[number], how.progress)  # one image cannot be read: name all that cannot
                raise
            old, embedded_now = Content(items, rows), embedded_now + count
        parts.append(old.without(source.removed))
    items = [item for part in parts for item in part.items]
    names = [item.name for item in items]
    if len({*names}) < len(names):
        both = sorted({name for name in names if names.count(name) > 1})
        raise InputError(f"{len(both):,} names are in two collections of the index: {some(both)}; rename these files in one of them")
    return Content(items, np.concatenate([part.rows for part in parts])), embedded_now


def switch(folder: Path, settings: Settings, content: Content, fit: Fit, progress: Progress) -> Settings:
    """Write the content as the next generation with these settings; then it is the index. Its re-rankers are fitted anew."""
    generation, kind = settings.generation + 1, settings.kind
    progress("writing the index", 0, 1)
    vectors = made(kind, content.rows)
    recall = tuned(kind, vectors, content.rows)
    files = dict(settings.files)
    files["vectors"] = store(folder, f"vectors-{generation}.faiss", lambda file: write_vectors(file.write, vectors))
    files["items"] = store(folder, f"items-{generation}.parquet", partial(write_items, items=content.items))
    progress("writing the index", 1, 1)
    rerank = {}
    for number, spec in enumerate(settings.rerank):
        rerank[spec] = store_arrays(folder, f"rerank-{generation}-{number}.npz", fit(spec, content.rows))
    new = replace(settings, generation=generation, items=len(content.items), recall=recall, files=files, rerank=rerank)
    write_settings(folder, new)
    remove_old(folder, new, partial=True)
    return new
