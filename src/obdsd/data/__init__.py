"""What there is to train and test on: benchmarks, folders, manifests, embedding files and built-in glyphs."""

from __future__ import annotations

import difflib
from pathlib import Path

from obdsd.data.collection import Collection, Part
from obdsd.errors import InputError, explain_missing

__all__ = ["Collection", "Part", "open_data"]

BENCHMARKS = ("cub200", "cars196", "sop", "inshop")
KINDS = (*BENCHMARKS, "folder", "manifest", "embeddings", "glyphs")


@explain_missing()
def open_data(source: str, *, seed: int = 0, test_fraction: float = 0.5, allow_incomplete: bool = False) -> Collection:
    """A collection by `name:path` (`cub200:/data/CUB`, `folder:photos`, `manifest:list.csv`, `embeddings:x.npz`), `glyphs`, or the path of
    an embeddings file (`.npz`, `.npy`, `.parquet`). `seed` and `test_fraction` split the classes where no split is given;
    `allow_incomplete` accepts a benchmark with missing files."""
    kind, colon, rest = source.partition(":")
    path = Path(rest).expanduser()
    if kind == "glyphs" and not rest:
        from obdsd.data.glyphs import glyphs

        return glyphs()
    if not colon and Path(source).suffix.lower() in (".npz", ".npy", ".parquet"):
        kind, path = "embeddings", Path(source).expanduser()
    elif kind not in KINDS or not rest:
        if Path(source).expanduser().is_dir():
            raise InputError(f"data={source!r} must be NAME:PATH, glyphs, or an embeddings file; did you mean folder:{source}?")
        close = difflib.get_close_matches(kind, KINDS, n=1)
        meant = f"did you mean {close[0]}{':PATH' if close[0] != 'glyphs' else ''}?" if close else f"names are {', '.join(KINDS)}"
        raise InputError(f"data={source!r} must be NAME:PATH, glyphs, or an embeddings file (.npz, .npy, .parquet); {meant}")
    if kind in BENCHMARKS:
        from obdsd.data import benchmarks

        return {"cub200": benchmarks.cub200, "cars196": benchmarks.cars196, "sop": benchmarks.sop, "inshop": benchmarks.inshop}[kind](
            path, allow_incomplete=allow_incomplete
        )
    if kind == "folder":
        from obdsd.data.folders import folder

        return folder(path, seed, test_fraction)
    if kind == "manifest":
        from obdsd.data.manifests import manifest

        return manifest(path, seed, test_fraction)
    from obdsd.data.embeddings import embeddings

    return embeddings(path, seed=seed, test_fraction=test_fraction)
