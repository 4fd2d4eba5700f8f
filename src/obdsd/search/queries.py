"""What is searched for: images, folders of images, items of the index by their names, rows of an embeddings file, pictures in memory."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from obdsd.data import Part
from obdsd.data.embeddings import SUFFIXES as FILES_OF_ROWS
from obdsd.data.embeddings import read_vectors
from obdsd.data.folders import SUFFIXES as IMAGES
from obdsd.data.folders import scan
from obdsd.data.items import Rows as RowItems
from obdsd.data.items import read_image
from obdsd.errors import InputError
from obdsd.search.how import FEW, Pass, silent
from obdsd.search.naming import alikeness, nearest_name
from obdsd.search.stores import Vectors

if TYPE_CHECKING:
    from obdsd.models import Embedder

Rows = NDArray[np.float32]


class Query(NamedTuple):
    """One thing that is searched for: a position in the index, an image (a file or in memory), or a row."""

    name: str
    position: int | None = None
    image: Path | Image.Image | None = None
    row: Rows | None = None


@dataclass(frozen=True, eq=False)
class _Pictures:
    """Images of queries as items."""

    queries: Sequence[Query]
    on_disk = True

    def read(self, position: int) -> Image.Image:
        return _picture(self.queries[position])

    def name(self, position: int) -> str:
        return self.queries[position].name

    def content(self, position: int) -> bytes:
        return self.name(position).encode()


def _picture(query: Query, side: int | None = None) -> Image.Image:
    assert query.image is not None
    if not isinstance(query.image, Path):
        return query.image.convert("RGB")
    try:
        return read_image(query.image, side)
    except InputError as damage:
        raise InputError(f"{str(damage).rpartition(';')[0]}; give an image") from damage


def queries_of(asked: Any, places: Mapping[str, int], file: Callable[[int], Path | None]) -> list[Query]:
    """Queries of what a caller gives: one or several of words (see `of_word`), paths, PIL images and queries, or a matrix of rows.

    `places` are the positions of the items by their names, `file` tells where one is that has a file.
    """
    if isinstance(asked, np.ndarray):
        return [Query(f"row {number}", row=row) for number, row in enumerate(np.atleast_2d(asked))]
    several = [asked] if isinstance(asked, (str, os.PathLike, Image.Image, Query)) else list(asked)
    found: list[Query] = []
    for number, one in enumerate(several):
        if isinstance(one, Query):
            found.append(one)
        elif isinstance(one, Image.Image):
            found.append(Query(f"image {number}", image=one))
        else:
            found += of_word(os.fspath(one), places, file)
    if not found:
        raise InputError("queries= must hold something to search for; give an image, a folder, or an item's name")
    return found


def of_word(word: str, places: Mapping[str, int], file: Callable[[int], Path | None]) -> list[Query]:
    """What a word means: an image file, a folder of images, an item of the index by its name, or an embeddings file, FILE or FILE:NAME.

    Where a file has the name of an item, but is not that item's own file, the file is meant.
    """
    path = Path(word.removeprefix("folder:")).expanduser()
    if word in places and not (path.is_file() and not _same(path, file(places[word]))):
        return [Query(word, position=places[word])]
    table, name = _row_named(word)
    if table is not None:
        return _rows(table, name)
    if path.is_dir():
        found = scan(path)
        images = [*found.loose, *(image for images in found.classes.values() for image in images)]
        if not images:
            raise InputError(f"{path}: holds no image ({', '.join(IMAGES)}); give a folder of images")
        return [Query(f"{path}/{image}", image=path / image) for image in images]
    if not path.exists():
        raise InputError(_unknown(word, places, file))
    return [Query(word, image=path)]


def _unknown(word: str, places: Mapping[str, int], file: Callable[[int], Path | None]) -> str:
    """What is wrong with a word that means nothing."""
    inside = [name for name in places if name.startswith(f"{word.rstrip('/')}/")]
    if inside:
        where = str(file(places[inside[0]]) or "")
        folder = where[: -len(inside[0])] + word if where.endswith(inside[0]) else ""
        whole = f", or the whole folder by its path, {folder}" if folder and Path(folder).is_dir() else ""
        return f"{word!r} is a folder in the index, with {len(inside):,} of its items; give one by its name, {inside[0]}{whole}"
    path = Path(word).expanduser()
    nearest = [nearest_name(word, places), *difflib.get_close_matches(word, _siblings(path), n=1)]
    near = max(filter(None, nearest), key=partial(alikeness, word), default=None)
    remedy = f"did you mean {near}?" if near else f"items have names such as {next(iter(places))}"
    return f"{word!r} is no file, no folder and no item of the index; {remedy}"


def _same(path: Path, other: Path | None) -> bool:
    try:
        return other is not None and path.samefile(other)
    except OSError:  # the photos moved
        return False


def _siblings(path: Path) -> list[str]:
    """Files beside a path that is not there."""
    folder = path.parent
    return [str(folder / name) for name in (os.listdir(folder) if folder.is_dir() else ())]


def _row_named(word: str) -> tuple[Path | None, str | None]:
    """An embeddings file, and the name of the row in it that is meant, if only one is."""
    whole = Path(word.removeprefix("embeddings:")).expanduser()
    if whole.suffix.lower() in FILES_OF_ROWS and whole.is_file():
        return whole, None
    for suffix in FILES_OF_ROWS:
        before, found, name = word.partition(f"{suffix}:")
        if found:
            return Path(before.removeprefix("embeddings:") + suffix).expanduser(), name
    return None, None


def _rows(file: Path, name: str | None) -> list[Query]:
    vectors = read_vectors(file)
    items = RowItems(vectors.matrix, vectors.names)
    queries = [Query(f"{file}:{items.name(number)}", row=row) for number, row in enumerate(vectors.matrix)]
    if name is None:
        return queries
    chosen = [query for query in queries if query.name == f"{file}:{name}"]
    if not chosen:
        names = [items.name(number) for number in range(len(queries))]
        near = difflib.get_close_matches(name, names, n=1)
        remedy = f"did you mean {near[0]!r}?" if near else f"names are such as {names[0]!r}"
        raise InputError(f"{file}: has no row {name!r}; {remedy}")
    return chosen[:1]


def rows_of_queries(queries: Sequence[Query], vectors: Vectors, dim: int, embedder: Any, how: Pass) -> Rows:
    """A unit row for each query, of length `dim`. `embedder()` is the index's model, asked for only if something must be embedded."""
    made = np.empty((len(queries), dim), dtype=np.float32)
    items = [number for number, query in enumerate(queries) if query.position is not None]
    if items:
        made[items] = vectors.take(np.array([queries[number].position for number in items], dtype=np.int64))
    given = [number for number, query in enumerate(queries) if query.row is not None]
    if given:
        made[given] = _given_rows([queries[number] for number in given], dim, embedder())
    images = [number for number, query in enumerate(queries) if query.image is not None]
    for number in [number for number in images if isinstance(queries[number].image, Path)][:FEW]:
        _picture(queries[number], side=1)  # what is no image is told before seconds of imports
    if images:
        made[images] = _embedded([queries[number] for number in images], embedder(), how)
    return made


def _given_rows(queries: Sequence[Query], dim: int, embedder: Embedder) -> Rows:
    """Rows as they are for an index of images; features for an index of these go through its head, as the index's own did."""
    import torch

    wanted = dim if embedder.preprocessing is not None else embedder.feature_dim
    for query in queries:
        assert query.row is not None
        if query.row.shape != (wanted,):
            remedy = "give rows of the model that made the index" if wanted == dim else "give the features that its model takes"
            raise InputError(f"{query.name}: has length {len(query.row)}, but the index wants {wanted}; {remedy}")
        if not np.isfinite(query.row).all() or not query.row.any():
            raise InputError(f"{query.name}: holds NaN or infinity, or only zeros; give another row")
    matrix = np.stack([np.asarray(query.row, dtype=np.float32) for query in queries])
    if embedder.preprocessing is None:
        with torch.inference_mode():
            return embedder(torch.from_numpy(matrix)).numpy()
    return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


def _embedded(queries: Sequence[Query], embedder: Embedder, how: Pass) -> Rows:
    from obdsd.counting import counted
    from obdsd.data.decoded import at_a_test  # these import torch, which a search by names does without
    from obdsd.evaluation.embedding import embed
    from obdsd.models.devices import choose_device
    from obdsd.search.working import at_work, workers_for

    if embedder.preprocessing is None:
        remedy = "give an item's name, or FILE:NAME of an embeddings file"
        raise InputError(f"{queries[0].name}: is an image, but the index holds rows whose images its model does not know; {remedy}")
    count = len(queries)
    zeros = np.zeros(count, dtype=np.int64)
    part = at_a_test(Part(_Pictures(queries), np.arange(count), zeros, ("",)), embedder.preprocessing)
    model, device = at_work(embedder, count, how), choose_device(how.device)
    advance = counted(silent if count < FEW else how.progress, "embedding", count)
    return embed(model, part, batch_size=how.batch_size, workers=workers_for(part, how), device=device, advance=advance)
