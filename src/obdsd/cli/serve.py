"""Search an index by a page in the browser, and by HTTP: obdsd serve photos.index.

It listens to this machine alone, unless --host says otherwise, and ends with SIGTERM or Ctrl-C, when what is under way is answered.
"""

from __future__ import annotations

import sys
from dataclasses import MISSING, dataclass
from pathlib import Path

from obdsd.errors import explain_missing, printable
from obdsd.options import option


@dataclass(frozen=True)
class Options:
    index: str = option(MISSING, "An index that obdsd index wrote.", positional=True)
    host: str = option("127.0.0.1", "Address to listen at; 0.0.0.0 is for everybody who can reach this machine, without a password.")
    port: int = option(8000, "Port to listen at; 0 takes one that is free.", at_least=0, below=65536)
    rerank: str = option(
        "diffusion", "The re-ranker that can be switched on; its work on the index is done once and kept. none offers none."
    )
    max_mb: float = option(20, "Megabytes that an image may have.", above=0)
    max_pixels: int = option(50_000_000, "Pixels that an image may have.", at_least=1, below=89_000_001)
    max_waiting: int = option(64, "Searches that may be under way at once; others are asked to come again.", at_least=1)
    timeout: float = option(30, "Seconds within which an image must have arrived.", above=0)
    device: str = option("auto", "Where the model runs, such as cpu or cuda:0; auto takes the accelerator if there is one.")


def run(options: Options) -> None:
    from obdsd.search.folder import read_settings

    path = Path(options.index).expanduser()
    read_settings(path)  # seconds of imports: what is wrong is told before
    with explain_missing():
        from obdsd.serve import Engine, Limits, listen, open_index, serve
        from obdsd.serve.guard import is_loopback
        from obdsd.serve.server import address
    from obdsd.terminal import stages

    limits = Limits(
        max_bytes=round(1e6 * options.max_mb), max_pixels=options.max_pixels, max_waiting=options.max_waiting, seconds=options.timeout
    )
    with listen(options.host, options.port) as listening:
        with stages(unit="items") as progress:
            opened = open_index(path, options.rerank, options.device, progress=progress)
        if not is_loopback(listening.getsockname()[0]):
            print("obdsd: everybody who can reach this machine can search, and see the photos; there is no password", file=sys.stderr)
        facts = f"{len(opened.index.items):,} items" + ("" if opened.rerank is None else f", re-ranked by {opened.rerank} on demand")
        print(printable(f"{opened.index.path}: {facts}"))
        place = address(listening)
        serve(Engine(opened), listening, limits, ready=lambda: print(f"open {place} (Ctrl-C ends it)", flush=True))
