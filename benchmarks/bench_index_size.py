"""What one machine holds: vectors of an index in FAISS and in Milvus Lite, from ten thousand to a million. Made-up rows of length 128."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.harness import clustered_rows, status_kib, watched, write
from obdsd.search import milvus
from obdsd.search.flat import flat_search
from obdsd.search.folder import Store
from obdsd.search.milvus import Collection
from obdsd.search.reranker import silent
from obdsd.search.stores import InFolder, InMilvus, Vectors
from obdsd.search.table import Item
from obdsd.search.vectors import made, tuned

SIZES, DIM, FOUND = (10_000, 100_000, 1_000_000), 128, 10
ASKED, FEW_ASKED = 500, 50  # queries one after the other; of Milvus Lite fewer


def in_faiss(kind: Any, rows: np.ndarray) -> Vectors:
    index = made(kind, rows)
    tuned(kind, index, rows)
    return InFolder(kind, index)


def in_milvus_lite(file: Path, rows: np.ndarray) -> Vectors:
    ids, name = np.arange(len(rows)), "made_up"
    collection = Collection(str(file), name, make=True)
    collection.make(DIM)
    items = [Item(f"{place}.jpg", f"class {place // 5}", 0, None, None, 0, 0, "") for place in range(len(rows))]
    collection.put(ids, rows, items, silent)
    return InMilvus(Store(uri=str(file), collection=name, next=len(rows)), ids, DIM)


def measured(store: str, rows: np.ndarray, queries: np.ndarray, truth: np.ndarray, build: Callable[[], Vectors]) -> dict[str, Any]:
    """Building, its memory above that of the rows themselves, single queries, and how much of the 10 nearest is found."""
    box: list[Vectors] = []
    watched(lambda: None)  # what was there before is given back
    before = status_kib("VmRSS")
    seconds, peak = watched(lambda: box.append(build()))
    vectors, times = box[0], []
    vectors.search(queries[:1], FOUND, None)
    kept = (status_kib("VmRSS") - before) / 1024
    found = []
    for query in queries:
        start = time.perf_counter()
        found.append(vectors.search(query[None], FOUND, None).positions[0])
        times.append(1e3 * (time.perf_counter() - start))
    recall = np.mean([len({*one.tolist()} & {*other.tolist()}) / FOUND for one, other in zip(found, truth, strict=True)])
    p50, p95 = np.percentile(times, [50, 95]).tolist()
    facts = {"store": store, "items": len(rows), "seconds": seconds, "peak_mib": peak, "kept_mib": kept, "p50_ms": p50, "p95_ms": p95}
    return {**facts, "recall": float(recall), "load_average": os.getloadavg()[0]}


def row(entry: dict[str, Any]) -> str:
    peak = "" if entry["peak_mib"] is None else f"{entry['peak_mib']:,.0f}"
    cells = [f"{entry['items']:,}", entry["store"], f"{entry['seconds']:,.1f}", peak, f"{entry['kept_mib']:,.0f}"]
    cells += [f"{entry['p50_ms']:,.2f}", f"{entry['p95_ms']:,.2f}", f"{100 * entry['recall']:.1f}", f"{entry['load_average']:.1f}"]
    return f"| {' | '.join(cells)} |"


def table(entries: list[dict[str, Any]]) -> list[str]:
    return [
        "| items | vectors in | build, s | peak, MiB | kept, MiB | query p50, ms | p95, ms | recall, % | load |",
        "|---:|---|---:|---:|---:|---:|---:|---:|---:|",
        *map(row, entries),
    ]


def main() -> None:
    milvus.PATIENCE = milvus.LOADING  # this machine may be busy
    entries: list[dict[str, Any]] = []
    title, lite = "What one machine holds", f"milvus-lite {version('milvus-lite')}, pymilvus {version('pymilvus')}"
    about = (
        f", {lite}. Unit rows of length {DIM} of made-up classes with spread. Queries of the same classes that are not among them ask one "
        f"after the other, {ASKED} ({FEW_ASKED} of Milvus Lite), for the {FOUND} nearest. *Peak* and *kept* are memory above the rows "
        "themselves: FAISS and Milvus Lite hold a copy of them. *Recall* is the share of the exact 10 nearest. *Load* is the load average "
        "when a line was done: other work ran beside, so times are upper bounds."
    )
    for size in SIZES:
        whole = clustered_rows(size + ASKED, DIM, 5).numpy()
        rows, queries = whole[:size].copy(), whole[size:].copy()
        del whole
        truth = flat_search(rows, queries, FOUND).positions
        with TemporaryDirectory() as folder:
            file = Path(folder) / "made_up.db"
            for store, asked, build in (
                ("FAISS, flat", ASKED, partial(in_faiss, "flat", rows)),
                ("Milvus Lite", FEW_ASKED, partial(in_milvus_lite, file, rows)),
                ("FAISS, hnsw", ASKED, partial(in_faiss, "hnsw", rows)),
                ("FAISS, ivf", ASKED, partial(in_faiss, "ivf", rows)),
            ):
                entries.append(measured(store, rows, queries[:asked], truth[:asked], build))
                print(row(entries[-1]), flush=True)
                write(title, "index_size", about, table(entries), {"sizes": entries})
