"""`obdsd embed`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obdsd.cli.embedding import embed_part, open_both
from obdsd.data import Part
from obdsd.data.vectors import Vectors, write_vectors
from obdsd.files import check_place
from obdsd.options import EmbedOptions


def run(options: EmbedOptions) -> None:
    out = Path(options.out).expanduser()
    check_place(out)
    embedder, collection = open_both(options.data, options)
    items, splits = _joined(collection.parts if options.part == "all" else {options.part: collection[options.part]})
    start = time.monotonic()
    matrix = embed_part(embedder, items, options)
    speed = len(items) / (time.monotonic() - start)
    labels = np.array(items.class_names)[items.labels]
    names = np.array([items.name(index) for index in range(len(items))])
    write_vectors(out, Vectors(matrix, labels, splits, items.groups, names))
    print(f"{out}: {matrix.shape[0]:,} rows of length {matrix.shape[1]:,}, {speed:,.0f} {collection.kind}/s")


def _joined(parts: Mapping[str, Part]) -> tuple[Part, NDArray[Any]]:
    """The items of all parts in the order in which the data have them, and the part of each."""
    several = list(parts.values())
    positions = np.concatenate([part.positions for part in several])
    order = np.argsort(positions)
    class_of = np.concatenate([np.array(part.class_names)[part.labels] for part in several])[order]
    class_names, labels = np.unique(class_of, return_inverse=True)
    groups = [part.groups for part in several if part.groups is not None]
    joined = Part(
        items=several[0].items,
        positions=positions[order],
        labels=labels,
        class_names=tuple(class_names.tolist()),
        groups=np.concatenate(groups)[order] if groups else None,
    )
    return joined, np.repeat(list(parts), [len(part) for part in several])[order]
