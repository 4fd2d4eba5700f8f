"""An index, opened: a model, the vectors of a collection, and where its items are."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from obdsd.errors import InputError
from obdsd.search.answers import Answer, Hit
from obdsd.search.fitting import canonical, fitted
from obdsd.search.folder import MODEL, Settings, alone, checked, read_consistently, read_settings, write_settings
from obdsd.search.how import Change, Pass
from obdsd.search.naming import nearest_first
from obdsd.search.queries import queries_of, rows_of_queries
from obdsd.search.ranking import nearest, reranked
from obdsd.search.reranker import Fitted
from obdsd.search.stores import Allowed, Vectors, moved, opened
from obdsd.search.table import Item, read_items
from obdsd.search.vectors import Kind

if TYPE_CHECKING:
    from obdsd.data import Collection
    from obdsd.models import Embedder

Rows = NDArray[np.float32]


class Index:
    """A collection that can be searched, in a folder that is all one needs.

    Attributes:
        path: The folder.
        settings: What its `index.json` says.
        items: Names, labels and files, in the order of the rows.
        vectors: The rows, in the folder or in Milvus.
        change: What the call that made it so did; None after `open`.
    """

    def __init__(self, path: Path, settings: Settings, items: list[Item], vectors: Vectors, change: Change | None = None) -> None:
        self.path, self.settings, self.items, self.vectors, self.change = path, settings, items, vectors, change
        self._fitted: dict[str, Fitted] = {}

    @classmethod
    def open(cls, path: str | Path, store: str | None = None) -> Index:
        """The index in a folder, as it is now. Files that are damaged or missing are refused. `store` says where its Milvus is, if that
        moved."""
        folder = Path(path).expanduser()

        def read(settings: Settings) -> Index:
            items = read_items(checked(folder, settings.files["items"]))
            if len(items) != settings.items or not all(0 <= item.source < len(settings.sources) for item in items):
                raise InputError(f"{folder}: its table of items does not go with index.json; restore it, or build the index anew")
            file = checked(folder, settings.files["vectors"])
            settings = settings if store is None else moved(settings, folder, store)
            return cls(folder, settings, items, opened(settings, file))

        return read_consistently(folder, read)

    @classmethod
    def build(
        cls,
        model: str | Embedder,
        data: str,
        out: str | Path,
        *,
        kind: Kind | None = None,
        store: str | None = None,
        rerank: Sequence[str] = (),
        how: Pass | None = None,
        collection: Collection | None = None,
        **opening: Any,
    ) -> Index:
        """Embed a collection and write its index. What an earlier call that was stopped has embedded is not embedded again.

        Where the index is there already, only what is new or changed in the collection is embedded.

        Args:
            model: A model, or what `open_model` takes: a model folder, a run folder, or BACKBONE:WEIGHTS.
            data: The collection, as `open_data` takes it.
            out: The folder to write.
            kind: `flat` is exact, and the default. `hnsw` and `ivf` are faster for very many items, and find nearly all.
            store: Where the vectors are: `folder`, the default, `milvus:FILE.db` or `milvus:http://HOST:PORT`.
            rerank: Re-rankers to be fitted at once, such as `diffusion`. Others are fitted when they are first asked for.
            how: Batch size, workers, device, progress.
            collection: The data, if they are open already.
            opening: What else `open_data` is told, such as `skip_unreadable=True`.
        """
        from obdsd.search import changing  # it imports torch, which a search by names does without

        embedder = model if not isinstance(model, str) else changing.open_model(model)
        change = changing.build(Path(out).expanduser(), embedder, data, collection, kind, store, rerank, how or Pass(), opening)
        return cls._opened(out, change)

    def add(self, data: str, *, how: Pass | None = None, **opening: Any) -> Index:
        """The index with the items of one more collection; only what is not known is embedded."""
        from obdsd.search import changing

        return Index._opened(self.path, changing.add(self, data, how or Pass(), opening))

    def remove(self, names: Sequence[str], *, how: Pass | None = None) -> Index:
        """The index without these items. `refresh` does not bring them back, `add` of their collection does."""
        from obdsd.search import changing

        return Index._opened(self.path, changing.remove(self, names, how or Pass()))

    def refresh(self, data: str | None = None, *, how: Pass | None = None, **opening: Any) -> Index:
        """The index of its collections as they are now; only new and changed items are embedded. `data` says where one is that moved."""
        from obdsd.search import changing

        return Index._opened(self.path, changing.refresh(self, data, how or Pass(), opening))

    def of_kind(self, kind: Kind, *, how: Pass | None = None) -> Index:
        """The index with its vectors in another form."""
        from obdsd.search import changing

        return Index._opened(self.path, changing.of_kind(self, kind, how or Pass()))

    def of_store(self, store: str, *, how: Pass | None = None) -> Index:
        """The index with its vectors elsewhere, or with the new address of where they are."""
        from obdsd.search import changing

        return Index._opened(self.path, changing.of_store(self, store, how or Pass()))

    def fit(self, rerank: str, *, how: Pass | None = None) -> Index:
        """The index with a re-ranker's work on it, which is kept in its folder and done anew whenever items change."""
        self._reranker(canonical(rerank), how or Pass())
        return Index.open(self.path)

    def _reranker(self, spec: str, how: Pass) -> Fitted:
        if spec not in self._fitted:
            if self.settings.store is not None and "rows" not in vars(self):
                how.progress("reading the vectors", 0, 1)
            self._fitted[spec] = fitted(self.path, self.settings, self.rows, spec, how.progress)
        return self._fitted[spec]

    @classmethod
    def _opened(cls, path: str | Path, change: Change) -> Index:
        """The index after a change."""
        index = cls.open(path)
        index.change = change
        return index

    def set_thresholds(self, thresholds: Mapping[float, Mapping[str, Any]]) -> Index:
        """Keep for each false-match rate the `similarity` at which it is reached, and what else is known of it, such as
        `{0.01: {"similarity": 0.62}}`. A search then finds nothing below that of the largest rate, unless it is told otherwise."""
        for rate, known in thresholds.items():
            similarity = known.get("similarity")
            if not 0 < float(rate) < 1 or not isinstance(similarity, (int, float)) or not math.isfinite(similarity):
                raise InputError(f"thresholds: {rate}={known} must be a rate between 0 and 1 with a finite similarity; measure it anew")
        with alone(self.path):
            new = {f"{float(rate):g}": {**known} for rate, known in thresholds.items()}
            write_settings(self.path, replace(read_settings(self.path), thresholds=new))
        return Index.open(self.path)

    def threshold(self, false_match_rate: float | None = None) -> float | None:
        """The similarity that is kept for a false-match rate; without one, that of the largest rate, or None if none is kept."""
        kept = {float(rate): float(known["similarity"]) for rate, known in self.settings.thresholds.items()}
        if false_match_rate is None:
            return kept[max(kept)] if kept else None
        if false_match_rate not in kept:
            there = f"it has {', '.join(map('{:g}'.format, sorted(kept)))}" if kept else "none was measured"
            rates = ",".join(f"{rate:g}" for rate in sorted({*kept, false_match_rate}, reverse=True))
            command = f"obdsd calibrate {shlex.quote(str(self.path))} DATA --rates {rates}"
            raise InputError(f"{self.path}: has no threshold for false_match_rate={false_match_rate:g}; {there}; to measure it: {command}")
        return kept[false_match_rate]

    @cached_property
    def rows(self) -> Rows:
        """The unit rows of all items."""
        return self.vectors.rows()

    @cached_property
    def embedder(self) -> Embedder:
        """The model that made the rows."""
        for name in ("model.json", "model.safetensors"):
            try:
                checked(self.path, self.settings.files[name])
            except FileNotFoundError as missing:
                raise InputError(f"{missing}: no such file; restore it, or build the index anew") from missing
        from obdsd.models import Embedder

        return Embedder.load(self.path / MODEL)

    @cached_property
    def places(self) -> dict[str, int]:
        """The position of each item by its name."""
        return {item.name: place for place, item in enumerate(self.items)}

    def file(self, place: int) -> Path | None:
        """Where an item's file is, or was when it was embedded."""
        item = self.items[place]
        folder = self.settings.sources[item.source].folder
        return None if item.file is None or folder is None else Path(folder) / item.file

    def labelled(self, label: str) -> NDArray[np.int64]:
        """The positions of the items with a label."""
        labels = [item.label for item in self.items]
        found = np.array([place for place, own in enumerate(labels) if own == label], dtype=np.int64)
        if not len(found):
            known = sorted({own for own in labels if own is not None})
            near = nearest_first(label, known)
            more = f", … ({len(known):,})" if len(near) < len(known) else ""
            there = f"its labels, the most alike first: {', '.join(near)}{more}" if known else "its items have no labels; leave it out"
            raise InputError(f"within={label!r} is no label of the index; {there}")
        return found

    def search(
        self,
        images: Any,
        k: int = 5,
        *,
        rerank: str | None = None,
        threshold: float | None = None,
        within: str | None = None,
        how: Pass | None = None,
    ) -> list[Answer]:
        """The `k` best items for each query, best first.

        Args:
            images: One or several of: the path of an image or of a folder of images, an item's name (it does not find itself), a PIL image,
                an embeddings file or FILE:NAME, one of its rows, a `Query`; or a matrix of rows.
            k: How many to find.
            rerank: A re-ranker, such as `diffusion`. Its work on the whole index is done once and kept.
            threshold: Items less similar than this are not found; default that which `set_thresholds` keeps. With a re-ranker a query
                finds nothing if no item is as similar.
            within: Only items with this label.
            how: Batch size, workers, device, progress, for images.
        """
        if not isinstance(k, int) or k < 1:
            raise InputError(f"k={k} must be a whole number of 1 or more; try 5")
        how = how or Pass()
        threshold = self.threshold() if threshold is None else threshold
        spec = None if rerank is None else canonical(rerank)
        allowed = None if within is None else Allowed(within, self.labelled(within))
        queries = queries_of(images, self.places, self.file)
        rows = rows_of_queries(queries, self.vectors, self.settings.dim, lambda: self.embedder, how)
        own = np.array([-1 if query.position is None else query.position for query in queries])
        found = nearest(self.vectors, rows, own, k, allowed)
        most = found.scores[:, 0].copy()
        if spec is not None:
            found = reranked(self._reranker(spec, how), rows, own, k, allowed)
        least = -math.inf if threshold is None else threshold
        answers = []
        for query, row, scores, places, nearest_one in zip(queries, rows, *found, most.tolist(), strict=True):
            hits = self._hits(None if spec is None else row, scores, places)
            enough = [hit for hit in hits if (hit.similarity if spec is None else nearest_one) >= least]
            answers.append(Answer(query, enough, nearest_one if hits else None))
        return answers

    def _hits(self, row: Rows | None, scores: Rows, places: NDArray[np.int64]) -> list[Hit]:
        """What was found for a query; its row is given where scores are no cosines."""
        there = places >= 0
        similar = scores[there] if row is None else self.rows[places[there]] @ row
        return [
            Hit(self.items[place].name, self.items[place].label, cosine, score, self.file(place), self.items[place].box)
            for place, cosine, score in zip(places[there].tolist(), similar.tolist(), scores[there].tolist(), strict=True)
        ]
