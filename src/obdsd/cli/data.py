"""`obdsd data check`."""

from __future__ import annotations

from obdsd.cli.progress import bar
from obdsd.data import open_data
from obdsd.data.check import check
from obdsd.errors import InputError
from obdsd.options import DataOptions


def run(options: DataOptions) -> None:
    problems = []
    try:
        collection = open_data(
            options.data, seed=options.split_seed, test_fraction=options.test_fraction, allow_incomplete=options.allow_incomplete
        )
    except InputError as incomplete:
        # A benchmark that is not complete is read all the same, to name everything that is wrong at once.
        collection = open_data(options.data, seed=options.split_seed, test_fraction=options.test_fraction, allow_incomplete=True)
        problems.append(f"incomplete: {incomplete}")
    with bar("reading", sum(map(len, collection.parts.values()))) as advance:
        findings = check(collection, advance)
    print(f"{'part':<8} {'classes':>8} {'items':>8} {'classes of one item':>20}")
    for part in findings.parts:
        print(f"{part.name:<8} {part.classes:>8,} {part.items:>8,} {part.singletons:>20,}")
    problems += [f"unreadable: {line}" for line in findings.unreadable]
    problems += [f"same content in training and test: {trained} = {tested}" for trained, tested in findings.crossing]
    print(*(problems or ["no problem found"]), sep="\n")
    if problems:
        raise InputError(f"{options.data}: training on it would be wrong; mend the {len(problems)} problems listed")
