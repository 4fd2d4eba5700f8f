"""Check a collection, find its wrong labels, or get a benchmark: obdsd data check DATA, obdsd data suspects MODEL DATA.

obdsd data get cub200 --to DIR downloads a benchmark. obdsd data suspects also takes an embeddings file alone. Its list begins with
the labels that are most likely wrong; near-copies across classes, and inside a class, follow.
"""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from obdsd.cli.embed import PassOptions, check_suffix
from obdsd.errors import InputError, Terminated, printable
from obdsd.options import LARGEST, OPENING, opening, option

if TYPE_CHECKING:
    from obdsd.data import Collection


ONLY = {
    "get": ("to", "mirror"),
    "check": ("split_seed", "test_fraction"),
    "suspects": ("size", "resize", "pooling", "batch_size", "workers", "cache", "device", "out", "most"),
}
"""The options that one action alone has; those of opening the data are for check and suspects."""


@dataclass(frozen=True)
class Options(PassOptions):
    action: Literal["check", "get", "suspects"] = option(
        MISSING,
        "What to do; check reads every item and names what is wrong, get downloads a benchmark and unpacks it, suspects lists labels that "
        "the other items contradict, and near-copies.",
        positional=True,
    )
    data: list[str] = option(
        MISSING,
        "The collection: NAME:PATH, glyphs, or an embeddings file. For get: cub200 or sop. For suspects: MODEL DATA, or such a file alone.",
        positional=True,
    )
    to: str | None = option(None, "For get: the folder that the benchmark's own folder is put into.")
    mirror: str | None = option(None, "For get: another address of the same archive; its checksum must be the official one.")
    split_seed: int | None = option(
        None, "For check: seed of the split by class, where the data give none; default 0.", at_least=0, below=LARGEST
    )
    test_fraction: float | None = option(
        None, "For check: share of the classes that are test classes where the data give no split; default 0.5."
    )
    out: tuple[str, ...] = option((), "For suspects: a .csv file, an .html page with the pictures, or both: suspects.csv,suspects.html.")
    most: int | None = option(
        None, "For suspects: how many labels to list; default as many as are estimated to be wrong.", at_least=1, below=LARGEST
    )

    def __post_init__(self) -> None:
        of = {name: action for action, names in ONLY.items() for name in names}
        for each in fields(self):
            given, wanted = getattr(self, each.name), of.get(each.name, "check")
            shared = each.name in OPENING and self.action == "suspects"
            if each.name not in ("action", "data") and given != each.default and self.action != wanted and not shared:
                raise InputError(f"{each.name}={_typed(given)} is for obdsd data {wanted}; leave it out")
        if len(self.data) > 1 + (self.action == "suspects"):
            form = "MODEL DATA, or an embeddings file" if self.action == "suspects" else "one collection"
            raise InputError(f"obdsd data {self.action} takes {form}, not {len(self.data)} words: {' '.join(self.data)}")
        if self.action == "get" and self.to is None:
            raise InputError(f"--to must be given: obdsd data get {self.data[0]} --to DIR")
        for path in self.out:
            check_suffix(path, (".csv", ".html"))


def _typed(value: object) -> object:
    return ",".join(map(str, value)) if isinstance(value, tuple) else value


def run(options: Options) -> None:
    if options.action == "get":
        _get(options)
    elif options.action == "check":
        _check(options)
    else:
        from obdsd.cli.suspects import find

        find(options.data, options, [Path(path).expanduser() for path in options.out], options.most)


def _get(options: Options) -> None:
    from obdsd.data.archives import get, known
    from obdsd.terminal import stages

    archive, to = known(options.data[0]), Path(str(options.to)).expanduser()
    try:
        with stages(unit="MB") as progress:
            folder = get(options.data[0], to, options.mirror, progress)
    except (KeyboardInterrupt, Terminated):
        print(f"stopped; {to} keeps what came of {archive.name}: the same command goes on from there", file=sys.stderr)
        raise
    print(f"{folder}: unpacked; {to / archive.name} is no longer needed")
    source = shlex.quote(f"{options.data[0]}:{folder}")
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
        raise InputError(f"{options.data[0]}: training on it would be wrong; mend the {listed} listed{remedy}")
    print("no problem found")


def _opened(options: Options) -> tuple[Collection, list[str]]:
    """The collection. A benchmark that is not complete is read all the same, to name everything that is wrong at once."""
    from obdsd.data import open_data
    from obdsd.terminal import stages

    asked = {"seed": options.split_seed, "test_fraction": options.test_fraction}
    split: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    with stages() as progress:
        try:
            return open_data(options.data[0], **split, **opening(options), progress=progress), []
        except InputError as incomplete:
            how = {**opening(options), "allow_incomplete": True}
            return open_data(options.data[0], **split, **how, progress=progress), [f"incomplete: {incomplete}"]


def _alone(labels: list[int]) -> int:
    """How many classes have one item."""
    return sum(count == 1 for count in Counter(labels).values())
