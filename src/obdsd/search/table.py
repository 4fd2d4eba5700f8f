"""The items of an index: a Parquet table with what each is called, where it is, and how it is known again."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet

from obdsd.data.items import Box, ImageFiles, Items
from obdsd.data.tables import cells, read_table
from obdsd.errors import InputError
from obdsd.files import check_file, file_digest


class Item(NamedTuple):
    """An item of an index.

    `source` is the number of the collection that it comes from; `file` its path below that collection's folder, if it is a file, and `box`
    the part of the image that is meant. `bytes` and `modified` (nanoseconds) are those of the file when it was embedded. `digest` tells its
    content from all others.
    """

    name: str
    label: str | None
    source: int
    file: str | None
    box: Box | None
    bytes: int
    modified: int
    digest: str


def stamped(items: Items, position: int, name: str, label: str | None, source: int, before: Item | None) -> Item:
    """The item at a position as it is now. A file of the size and time of `before` is not read again."""
    files = getattr(items, "files", items)  # those behind a cache of decoded images
    if not isinstance(files, ImageFiles):
        content = items.content(position)
        return Item(name, label, source, None, None, len(content), 0, hashlib.blake2b(content, digest_size=16).hexdigest())
    file, box = files.paths[position], None if files.boxes is None else files.boxes[position]
    path = files.root / file
    check_file(path)
    about = path.stat()  # before it is read: what changes meanwhile is embedded again next time
    same = before is not None and (before.bytes, before.modified, before.box) == (about.st_size, about.st_mtime_ns, box)
    digest = before.digest if before is not None and same else file_digest(path, repr(box).encode()).hex()
    return Item(name, label, source, file, box, about.st_size, about.st_mtime_ns, digest)


def write_items(file: IO[bytes], items: Sequence[Item]) -> None:
    columns: dict[str, Any] = {name: [getattr(item, name) for item in items] for name in Item._fields}
    columns["box"] = [None if box is None else " ".join(map(str, box)) for box in columns["box"]]
    texts, numbers = ("name", "label", "file", "box", "digest"), {"source": pa.int32(), "bytes": pa.int64(), "modified": pa.int64()}
    kinds = {**dict.fromkeys(texts, pa.string()), **numbers}
    pa.parquet.write_table(pa.table({name: pa.array(columns[name], kinds[name]) for name in Item._fields}), file)


def read_items(path: Path) -> list[Item]:
    """What `write_items` wrote; anything else is refused."""
    table = read_table(path, lambda names: [name for name in names if name in Item._fields])
    try:
        columns = [cells(path, name, table[name]) for name in Item._fields]
        items = [Item(*row)._replace(box=_box(row[4])) for row in zip(*columns, strict=True)]
        if not all(isinstance(item.name, str) and isinstance(item.digest, str) and isinstance(item.source, int) for item in items):
            raise ValueError("cells are empty")
        if len({item.name for item in items}) < len(items):
            raise ValueError("names repeat")
    except (KeyError, ValueError, TypeError, AttributeError) as damage:
        if isinstance(damage, InputError):
            raise
        reason = " ".join(str(damage).split())[:80]
        raise InputError(f"{path}: is no table of an index ({reason}); restore it, or build the index anew") from damage
    return items


def _box(text: str | None) -> Box | None:
    if text is None:
        return None
    x1, y1, x2, y2 = map(int, text.split())
    return x1, y1, x2, y2
