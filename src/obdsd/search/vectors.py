"""The vectors of an index in FAISS: exact (`flat`), or faster and nearly exact (`hnsw`, `ivf`) with a recall that is measured."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import faiss as typed_faiss
import numpy as np
from numpy.typing import NDArray

from obdsd.errors import InputError
from obdsd.search.flat import flat_search
from obdsd.search.reranker import Found

faiss: Any = typed_faiss  # half of what it has is not in its types
Kind = Literal["flat", "hnsw", "ivf"]
KINDS: tuple[Kind, ...] = ("flat", "hnsw", "ivf")
LINKS = 32  # of each item in the graph of hnsw
DEPTH = 10  # nearest items whose recall is measured
SAMPLE = 200  # items that ask for them
WANTED = 0.97  # recall at which no more places are looked at
AT_ONCE = 2048  # queries

Rows = NDArray[np.float32]


def made(kind: Kind, rows: Rows) -> Any:
    """A FAISS index of unit rows."""
    count, dim = rows.shape
    index = faiss.IndexFlatIP(dim)
    if kind == "hnsw":
        index = faiss.IndexHNSWFlat(dim, LINKS, faiss.METRIC_INNER_PRODUCT)
    elif kind == "ivf":
        cells = max(1, min(round(4 * math.sqrt(count)), count // 39))  # FAISS wants 39 rows a cell to learn from
        index = faiss.IndexIVFFlat(index, dim, cells, faiss.METRIC_INNER_PRODUCT)
        index.cp.spherical, index.cp.min_points_per_centroid = True, 1
        index.train(rows)
    index.add(rows)
    return index


def tuned(kind: Kind, index: Any, rows: Rows) -> float:
    """Let the index look at more places until its recall is `WANTED`, or at all of them; the recall of the nearest `DEPTH`, by a sample."""
    if kind == "flat":
        return 1.0
    queries = rows[np.random.default_rng(0).permutation(len(rows))[:SAMPLE]]
    depth = min(DEPTH, len(rows))
    truth = flat_search(rows, queries, depth).positions
    setting, most = ("efSearch", len(rows)) if kind == "hnsw" else ("nprobe", index.nlist)
    home, places = index.hnsw if kind == "hnsw" else index, min(most, 16 if kind == "hnsw" else 1)
    while True:
        setattr(home, setting, places)
        found = index.search(queries, depth)[1]
        recall = float(np.mean([len({*one} & {*other}) / depth for one, other in zip(found.tolist(), truth.tolist(), strict=True)]))
        if recall >= WANTED or places >= most:
            return recall
        places = min(most, 2 * places)


def rows_of(kind: Kind, index: Any) -> Rows:
    """All rows, in their order."""
    if kind == "ivf":
        index.make_direct_map()
    return index.reconstruct_n(0, index.ntotal)


def some_of(kind: Kind, index: Any, places: NDArray[np.int64]) -> Rows:
    """The rows at some positions."""
    if kind == "ivf":
        index.make_direct_map()
    return index.reconstruct_batch(places)


def search(kind: Kind, index: Any, queries: Rows, k: int, allowed: NDArray[np.int64] | None = None) -> Found:
    """The `k` nearest of each query by cosine, or as many as there are; of the allowed positions only, if these are given."""
    few = min(k, index.ntotal if allowed is None else len(allowed))
    found = Found(np.empty((len(queries), few), dtype=np.float32), np.empty((len(queries), few), dtype=np.int64))
    selector = None if allowed is None else faiss.IDSelectorBatch(allowed)
    for start in range(0, len(queries), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        found.scores[part], found.positions[part] = index.search(queries[part], few, params=_parameters(kind, index, few, selector))
    lost = np.flatnonzero((found.positions < 0).any(axis=1))
    if len(lost):  # a graph or a few cells may lead to too few that are allowed: these queries are then compared with all
        own = np.arange(index.ntotal) if allowed is None else allowed
        found.scores[lost], places = flat_search(rows_of(kind, index)[own], queries[lost], few)
        found.positions[lost] = own[places]
    return found


def _parameters(kind: Kind, index: Any, few: int, selector: Any) -> Any:
    if kind == "hnsw":
        return faiss.SearchParametersHNSW(sel=selector, efSearch=max(index.hnsw.efSearch, few))
    return faiss.SearchParametersIVF(sel=selector, nprobe=index.nprobe) if kind == "ivf" else faiss.SearchParameters(sel=selector)


def write_vectors(write: Callable[[bytes], Any], index: Any) -> None:
    faiss.write_index(index, faiss.PyCallbackIOWriter(write))


def read_vectors(path: Path, kind: Kind, count: int, dim: int) -> Any:
    """A FAISS file, which must be what the index's settings say."""
    try:
        index = faiss.read_index(str(path))
    except (RuntimeError, MemoryError) as damage:
        reason = " ".join(str(damage).split())[-80:]
        raise InputError(f"{path}: cannot be read by FAISS ({reason}); restore it, or build the index anew") from damage
    wanted = {"flat": faiss.IndexFlat, "hnsw": faiss.IndexHNSWFlat, "ivf": faiss.IndexIVFFlat}[kind]
    if not isinstance(index, wanted) or (index.ntotal, index.d) != (count, dim) or index.metric_type != faiss.METRIC_INNER_PRODUCT:
        holds = f"{index.ntotal:,} vectors of length {index.d} ({type(index).__name__})"
        raise InputError(f"{path}: holds {holds}, not {count:,} of length {dim} ({kind}); restore it, or build the index anew")
    return index
