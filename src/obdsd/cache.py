"""What takes long to compute and depends on data and a model alone: kept for later runs, in a folder that may be deleted at any time."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from obdsd.errors import InputError
from obdsd.files import cache_folder, replacing

Arrays = dict[str, NDArray[Any]]
LARGEST = 4 * 2**30  # bytes that all files may take together


def cached(key: Mapping[str, Any], make: Callable[[], Arrays]) -> Arrays:
    """The arrays that `make` computes, or that it computed before for an equal key.

    Of several processes that want the same, one computes and the others wait for it. Where nothing can be kept (no room, no rights), it
    is computed each time.
    """
    path = _place(key)
    with ExitStack() as held:
        with suppress(OSError, NotImplementedError):  # a disk that cannot be written, or knows no locks
            path.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(FileLock(path.with_suffix(".lock")))
        arrays = _read(path)
        if arrays is None:
            arrays = make()
            with suppress(InputError):
                with replacing(path) as file:
                    np.savez(file, **arrays)  # type: ignore[arg-type]
                _make_room(path)
        return arrays


def kept(key: Mapping[str, Any]) -> Arrays | None:
    """The arrays that were computed before for an equal key; None if there are none."""
    return _read(_place(key))


def _place(key: Mapping[str, Any]) -> Path:
    name = hashlib.blake2b(json.dumps(key, sort_keys=True).encode(), digest_size=16).hexdigest()
    return cache_folder() / "computed" / f"{name}.npz"


def _read(path: Path) -> Arrays | None:
    """None if there is nothing, or nothing whole."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
            arrays = {name: kept[name] for name in kept.files}
        os.utime(path)  # what is used stays
    except (OSError, ValueError, EOFError, TypeError, AttributeError, zipfile.BadZipFile):  # damaged, or a bare array
        return None
    return arrays


def _make_room(newest: Path) -> None:
    """Remove what was not used for the longest time, until the rest is not too large. The newest stays."""
    with suppress(OSError):  # others make room, too
        files = sorted(newest.parent.glob("*.npz"), key=lambda file: file.stat().st_mtime)
        size = sum(file.stat().st_size for file in files)
        for file in files:
            if size > LARGEST and file != newest:
                size -= file.stat().st_size
                file.unlink()
                file.with_suffix(".lock").unlink(missing_ok=True)
