"""Check a collection before training on it: obdsd data check DATA."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from typing import Any, Literal

from obdsd.errors import InputError, printable
from obdsd.options import LARGEST, option


@dataclass(frozen=True)
class Options:
    action: Literal["check"] = option(MISSING, "What to do; check reads every item and names what is wrong.", positional=True)
    data: str = option(MISSING, "The collection: NAME:PATH, glyphs, or an embeddings file.", positional=True)
    split_seed: int = option(0, "Seed of the split by class, where the data give none.", at_least=0, below=LARGEST)
    test_fraction: float = option(0.5, "Share of the classes that are test classes where the data give no split.")
    allow_incomplete: bool = option(False, "Accept a benchmark with missing classes or files.")


def run(options: Options) -> None:
    import numpy as np

    from obdsd.data import open_data
    from obdsd.data.check import check
    from obdsd.terminal import bar

    split: dict[str, Any] = {"seed": options.split_seed, "test_fraction": options.test_fraction}
    problems = []
    try:
        collection = open_data(options.data, **split, allow_incomplete=options.allow_incomplete)
    except InputError as incomplete:
        # A benchmark that is not complete is read all the same, to name everything that is wrong at once.
        collection = open_data(options.data, **split, allow_incomplete=True)
        problems.append(f"incomplete: {incomplete}")
    with bar("reading", sum(map(len, collection.parts.values()))) as advance:
        problems += check(collection, advance)
    print(f"{'part':<8} {'classes':>8} {'items':>8} {'classes of one item':>20}")
    for name, part in collection.parts.items():
        sizes = np.bincount(part.labels)
        print(f"{name:<8} {(sizes > 0).sum():>8,} {len(part):>8,} {(sizes == 1).sum():>20,}")
    print(*map(printable, problems or ["no problem found"]), sep="\n")
    if problems:
        raise InputError(f"{options.data}: training on it would be wrong; mend the {len(problems)} problems listed")
