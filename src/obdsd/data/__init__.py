"""What there is to train and test on: benchmarks, folders, manifests, embedding files and built-in letters.

A data set is a file of this room, its test, and a line in `obdsd.catalogue.DATA`.
"""

from __future__ import annotations

import difflib
import inspect
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

from obdsd.catalogue import DATA
from obdsd.errors import InputError, explain_missing

with explain_missing():
    from obdsd.data.collection import Collection, Photos, collect, training_defaults
    from obdsd.data.part import Part

__all__ = [
    "Collection", "Part", "Photos", "absolute_source", "check_there", "collect", "data_kind", "data_name", "lies_on_disk", "open_data",
    "short_name", "training_defaults",
]  # fmt: skip


def open_data(
    source: str,
    *,
    seed: int = 0,
    test_fraction: float = 0.5,
    merge: bool = False,
    root: str | None = None,
    allow_incomplete: bool = False,
    skip_unreadable: bool = False,
    drop_nan: bool = False,
    beside: bool = False,
    progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> Collection:
    """A collection by its name and path.

    Args:
        source: `NAME:PATH` (`cub200:/data/CUB`, `folder:photos`, `manifest:list.csv`), the name alone of data that need no path
            (`glyphs`), or the path of an embeddings file (`.npz`, `.npy`, `.parquet`, `.pt`, `.safetensors`).
        seed: Splits the classes where the data give no split.
        test_fraction: Share of the classes that test where the data give no split; 0 trains on all of them, 1 tests all.
        merge: Join the parts that the data give and split all classes anew.
        root: The folder that the paths of a manifest are below, if not the manifest's own.
        allow_incomplete: Accept a benchmark with missing classes or files.
        skip_unreadable: Leave out images that cannot be read; `Collection.left_out` names them.
        drop_nan: Leave out vectors that hold NaN or infinity, or only zeros.
        beside: Also take images that lie beside the class folders of a folder: the part `unlabelled`. They have no label.
        progress: Told the stage, how much of it is done, and of how much.
    """
    from obdsd.data.unusable import usable

    kind, path = _parsed(source)
    load = DATA.find(kind)
    context = {"path": path, "seed": seed, "test_fraction": test_fraction, "allow_incomplete": allow_incomplete, "beside": beside}
    wanted = inspect.signature(load).parameters
    if root is not None:
        if "root" not in wanted:
            raise InputError(f"root={root} is the folder of a manifest's paths, {kind} has none; leave it out")
        context["root"] = Path(root).expanduser()
    collection = usable(load(**{name: value for name, value in context.items() if name in wanted}), skip_unreadable, drop_nan, progress)
    return collection.merged(seed, test_fraction) if merge else collection


def data_kind(source: str) -> str:
    """The name of the data set that a source asks for.

    >>> data_kind("cub200:/data/CUB"), data_kind("clip.npz"), data_kind("glyphs")
    ('cub200', 'embeddings', 'glyphs')
    """
    return _parsed(source)[0]


def data_name(source: str) -> str:
    """The one way to write a source: paths below the working directory are relative to it, others absolute.

    >>> data_name("./cub.npz"), data_name("cub200:birds/../CUB/"), data_name("embeddings:/data/cub.npz")
    ('cub.npz', 'cub200:CUB', '/data/cub.npz')
    """
    kind, path = _parsed(source)
    if not _has_path(kind):
        return kind
    absolute, here = Path(os.path.abspath(path)), Path.cwd()
    written = absolute.relative_to(here) if absolute.is_relative_to(here) else absolute
    return str(written) if kind == "embeddings" else f"{kind}:{written}"


def short_name(source: str) -> str:
    """What people call the data: the last part of a source or a path.

    >>> [short_name(source) for source in ("folder:/data/photos/", "folder:photos", "clip.npz", "glyphs")]
    ['photos', 'photos', 'clip.npz', 'glyphs']
    """
    return re.split(r"[/\\:]", source.rstrip("/\\"))[-1]


def absolute_source(source: str) -> str:
    """The same data from any working directory.

    >>> absolute_source("folder:/data/birds/../photos"), absolute_source("glyphs")
    ('folder:/data/photos', 'glyphs')
    """
    kind, path = _parsed(source)
    return f"{kind}:{os.path.abspath(path)}" if _has_path(kind) else source


def lies_on_disk(source: str) -> bool:
    """Whether the data are somewhere, and not made when they are opened."""
    return _has_path(data_kind(source))


def check_there(source: str) -> None:
    """Refuse data whose path leads nowhere, in the words of their loader, before anything is loaded for them."""
    kind, path = _parsed(source)
    if _has_path(kind) and not path.exists():
        open_data(source)


def _parsed(source: str) -> tuple[str, Path]:
    kind, colon, path = source.partition(":")
    if kind in DATA.names and _has_path(kind) == bool(path):
        return kind, Path(path).expanduser()
    from obdsd.data.embeddings import SUFFIXES

    if not colon and Path(source).suffix.lower() in SUFFIXES:
        return "embeddings", Path(source).expanduser()
    if Path(source).expanduser().is_dir():
        meant = f"did you mean {shlex.quote(f'folder:{source}')}?"
    elif close := difflib.get_close_matches(kind, DATA.names, n=1):
        meant = f"did you mean {close[0]}{':PATH' if _has_path(close[0]) else ''}?"
    else:
        meant = f"names are {', '.join(DATA.names)}"
    raise InputError(f"data={source!r} must be NAME:PATH, glyphs, or an embeddings file ({', '.join(SUFFIXES)}); {meant}")


def _has_path(kind: str) -> bool:
    return "path" in inspect.signature(DATA.find(kind)).parameters
