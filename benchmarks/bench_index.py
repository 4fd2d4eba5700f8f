"""An index of as many items as SOP has: building it, opening it, and a search as a user's program asks it, from the row to the names."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.harness import clustered_rows, seconds_of, watched, write
from obdsd.models import Embedder
from obdsd.search import Index, Pass, milvus
from obdsd.search.folder import GENERATIONS

ITEMS, DIM, PER_CLASS, FOUND = 60_502, 128, 5, 10
ASKED = 300  # queries, one after the other
RERANK = "diffusion"
HOW = Pass(device="cpu")


def times_of(index: Index, queries: np.ndarray, **how: Any) -> list[float]:
    """p50 and p95 in ms of single queries from outside; the first one is not counted."""
    search: Callable[[np.ndarray], Any] = partial(index.search, k=FOUND, how=HOW, **how)
    search(queries[:1])
    return np.percentile([1e3 * seconds_of(partial(search, query[None])) for query in queries], [50, 95]).tolist()


def measured(folder: Path, name: str, queries: np.ndarray, **how: Any) -> dict[str, Any]:
    """Of an index built anew: seconds, memory above what was there, its size on the disk, and searches."""
    out = folder / "made_up.index"
    seconds, peak = watched(lambda: Index.build(str(folder / "model"), str(folder / "rows.npz"), out, how=HOW, **how))
    written = [file for pattern in (*GENERATIONS, "model/*") for file in out.glob(pattern)]
    start = time.perf_counter()
    index = Index.open(out)
    facts = {"vectors": name, "build_s": seconds, "peak_mib": peak, "open_s": time.perf_counter() - start}
    facts |= {"mib": sum(file.stat().st_size for file in written) / 2**20, "search_ms": times_of(index, queries)}
    if name == "folder, flat":
        fit_seconds, fit_peak = watched(lambda: index.fit(RERANK, how=HOW))
        again = Index.open(out)
        facts |= {"fit_s": fit_seconds, "fit_mib": fit_peak, "reranked_ms": times_of(again, queries, rerank=RERANK)}
    return facts | {"load_average": os.getloadavg()[0]}


def row(entry: dict[str, Any]) -> str:
    p50, p95 = entry["search_ms"]
    cells = [entry["vectors"], f"{entry['build_s']:.1f}", f"{entry['peak_mib'] or 0:,.0f}", f"{entry['mib']:.0f}", f"{entry['open_s']:.2f}"]
    return f"| {' | '.join([*cells, f'{p50:.1f}', f'{p95:.1f}', format(entry['load_average'], '.1f')])} |"


def main() -> None:
    milvus.PATIENCE = milvus.LOADING  # this machine may be busy
    whole = clustered_rows(ITEMS + ASKED, DIM, PER_CLASS).numpy()
    entries: list[dict[str, Any]] = []
    lines = [
        "| vectors in | build, s | peak, MiB | in the folder, MiB | open, s | a search, p50, ms | p95, ms | load |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, how in (
        ("folder, flat", {}),
        ("folder, hnsw", {"kind": "hnsw"}),
        ("folder, ivf", {"kind": "ivf"}),
        ("Milvus Lite", {"store": "milvus:{}/made_up.db"}),
    ):
        with TemporaryDirectory() as place:
            folder = Path(place)
            np.savez(folder / "rows.npz", embeddings=whole[:ITEMS], labels=np.arange(ITEMS) // PER_CLASS)
            Embedder("features", features=DIM, dim=DIM).save(folder / "model")
            entries.append(measured(folder, name, whole[ITEMS:], **{key: value.format(place) for key, value in how.items()}))
        print(row(entries[-1]), flush=True)
    flat = entries[0]
    (p50, p95), seconds, peak = flat["reranked_ms"], flat["fit_s"], flat["fit_mib"] or 0
    work = f"The work of `{RERANK}` on the flat one: {seconds:.0f} s once, {peak:,.0f} MiB"
    more = f"{work}; a re-ranked search then takes {p50:.1f} ms (p95 {p95:.1f})."
    about = (
        f". {ITEMS:,} made-up items of {-(-ITEMS // PER_CLASS):,} classes, rows of length {DIM}, through a head of {DIM} by {DIM}: "
        f"`Index.build`, `Index.open`, and {ASKED} rows from outside that `Index.search` is asked one after the other for {FOUND} items. "
        "*Peak* is memory above what was there before, the rows included. *Load* is the load average when a line was done; beside other "
        "work times are upper bounds. Embedding of photos comes on top."
    )
    write("An index of SOP's size", "index", about, [*lines, *map(row, entries), "", more], {"entries": entries})
