"""Check a collection before training on it, or get a benchmark: obdsd data check DATA, obdsd data get cub200 --to DIR."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from obdsd.errors import InputError, Terminated, printable
from obdsd.options import LARGEST, OpeningOptions, opening, option

if TYPE_CHECKING:
    from obdsd.data import Collection


@dataclass(frozen=True)
class Options(OpeningOptions):
    action: Literal["check", "get"] = option(
        MISSING, "What to do; check reads every item and names what is wrong, get downloads a benchmark and unpacks it.", positional=True
    )
    data: str = option(MISSING, "The collection: NAME:PATH, glyphs, or an embeddings file. For get: cub200 or sop.", positional=True)
    to: str | None = option(None, "For get: the folder that the benchmark's own folder is put into.")
    mirror: str | None = option(None, "For get: another address of the same archive; its checksum must be the official one.")
    split_seed: int = option(0, "Seed of the split by class, where the data give none.", at_least=0, below=LARGEST)
    test_fraction: float = option(0.5, "Share of the classes that are test classes where the data give no split.")

    def __post_init__(self) -> None:
        for each in fields(self):
            of = "get" if each.name in ("to", "mirror") else "check"
            given = getattr(self, each.name)
            if each.name not in ("action", "data") and given != each.default and self.action != of:
                raise InputError(f"{each.name}={given} is for obdsd data {of}; leave it out")
        if self.action == "get" and self.to is None:
            raise InputError(f"--to must be given: obdsd data get {self.data} --to DIR")


def run(options: Options) -> None:
    if options.action == "get":
        _get(options)
    else:
        _check(options)


def _get(options: Options) -> None:
    from obdsd.data.archives import get, known
    from obdsd.terminal import stages

    archive, to = known(options.data), Path(str(options.to)).expanduser()
    try:
        with stages(unit="MB") as progress:
            folder = get(options.data, to, options.mirror, progress)
    except (KeyboardInterrupt, Terminated):
        print(f"stopped; {to} keeps what came of {archive.name}: the same command goes on from there", file=sys.stderr)
        raise
    print(f"{folder}: unpacked; {to / archive.name} is no longer needed")
    source = shlex.quote(f"{options.data}:{folder}")
    print(f"go on with: obdsd data check {source}", f"and with: obdsd train {source}", sep="\n")


def _check(options: Options) -> None:
    from obdsd.data.check import check
    from obdsd.terminal import bar

    collection, problems = _opened(options)
    with bar("reading", sum(map(len, collection.parts.values()))) as advance:
        found = check(collection, advance)
    problems += found.problems
    print(f"{'part':<8} {'classes':>8} {'items':>8} {'classes of one item':>20}")
    for name, part in collection.parts.items():
        classes, alone = (0, 0) if part.unlabelled else (len(set(part.labels.tolist())), _alone(part.labels.tolist()))
        print(f"{name:<8} {classes:>8,} {len(part):>8,} {alone:>20,}")
    print(
        *map(printable, [*problems, *(f"remark: {remark}" for remark in found.remarks)]),
        sep="\n",
        end="\n" * bool(problems + found.remarks),
    )
    if problems:
        listed = "problem" if len(problems) == 1 else f"{len(problems):,} problems"
        remedy = "; --skip-unreadable leaves out what cannot be read" if found.unreadable else ""
        raise InputError(f"{options.data}: training on it would be wrong; mend the {listed} listed{remedy}")
    print("no problem found")


def _opened(options: Options) -> tuple[Collection, list[str]]:
    """The collection. A benchmark that is not complete is read all the same, to name everything that is wrong at once."""
    from obdsd.data import open_data
    from obdsd.terminal import stages

    split: dict[str, Any] = {"seed": options.split_seed, "test_fraction": options.test_fraction}
    with stages() as progress:
        try:
            return open_data(options.data, **split, **opening(options), progress=progress), []
        except InputError as incomplete:
            how = {**opening(options), "allow_incomplete": True}
            return open_data(options.data, **split, **how, progress=progress), [f"incomplete: {incomplete}"]


def _alone(labels: list[int]) -> int:
    """How many classes have one item."""
    return sum(count == 1 for count in Counter(labels).values())
