"""Train several presets with several seeds and compare them: obdsd compare DATA --presets ms,ms+psd,ms+obd-sd.

Options of obdsd train hold for every row; --loss, --teacher, --targets, --matching and --system, in which presets differ, only with --rows.
--presets arena are all systems that there are, on one ground. Finished runs are not repeated, interrupted ones go on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

from obdsd.convert import convert
from obdsd.errors import InputError, Terminated
from obdsd.files import check_file, read_mapping
from obdsd.options import LARGEST, PARTS, TrainOptions, as_dict, converted, option

WITHOUT = {  # options of a training that are no options here, and what to do instead
    "preset": "name several with --presets",
    "seed": "say how many with --seeds, and where they begin with --first-seed",
    "resume": "a comparison goes on by itself, give the same command without it",
}
SHARED = ("data", "seed", "out", "resume", "report")  # options that a row cannot have


@dataclass(frozen=True)
class Options:
    data: str = option(MISSING, "The collection, as for obdsd train.", positional=True)
    presets: tuple[str, ...] = option(
        ("ms", "ms+psd", "ms+obd-sd"), "The presets to compare; the first is the baseline. arena stands for all systems at equal budget."
    )
    rows: str | None = option(
        None, "A YAML file of rows to compare instead of presets, each a name with its settings; the first is the baseline."
    )
    tune: bool = option(
        False,
        "First choose each row's main setting on held-out training classes, among three values: λ where something is taught, the learning "
        "rate of a plain loss.",
    )
    similarities: str | None = option(
        None, "A file of similarities between the classes, for the row ms+plg of the arena, which is left out without one."
    )
    seeds: int = option(5, "How many seeds each row is trained with.", at_least=1)
    first_seed: int = option(0, "The first seed; the others count up from it.", at_least=0, below=LARGEST)
    out: str = option("comparison", "The folder of all runs and tables.")
    jobs: int = option(1, "Runs at a time, each in a process with its share of the cores.", at_least=1)
    keep_going: bool = option(False, "Train the other runs to the end when one fails, then tell of it.")
    report: bool = option(True, "Write report.html into that folder at the end.")
    for_all: dict[str, Any] = field(default_factory=dict, metadata={"positional": False, "group": "options"})

    def __post_init__(self) -> None:
        if self.rows is not None and self.presets != Options.presets:
            raise InputError(f"rows={self.rows} and presets={','.join(self.presets)} are two ways to choose what is compared; give one")
        if len(set(self.presets)) < len(self.presets) or not self.presets:
            raise InputError(f"presets={','.join(self.presets)!r} must name different presets, as ms,ms+obd-sd")
        if self.tune and self.rows is not None:
            raise InputError(f"tune=True chooses what presets are weighed by, rows={self.rows} say it themselves; leave one of them out")
        held_out = [f"{name}={self.for_all[name]}" for name in ("val_fraction", "val_fold", "score") if self.for_all.get(name)]
        if self.tune and held_out:
            raise InputError(f"{held_out[0]} and tune=True both hold training classes out; leave one of them out")
        from obdsd import arena  # here, as --help imports this file

        if self.similarities is not None and (self.rows is not None or arena.NAME not in self.presets):
            raise InputError(f"similarities={self.similarities} are for presets={arena.NAME}; leave them out")
        erasing = [f"{name}={value}" for name, value in self.for_all.items() if name in PARTS]
        if erasing and self.rows is None:
            raise InputError(f"{erasing[0]} for every row would undo what the presets differ in; write the rows in a YAML file (--rows)")


def look(given: dict[str, Any]) -> None:
    """What is seen to be wrong before anything is imported for it. A comparison that goes on knows where its data are."""
    from obdsd.data import check_there
    from obdsd.models.places import check_backbone

    if "similarities" in given:
        check_file(Path(str(given["similarities"])).expanduser())
    if not Path(given.get("out", Options.out)).exists():
        check_there(str(given["data"]))
        if "backbone" in given:
            check_backbone(str(given["backbone"]))


def make(given: dict[str, Any]) -> Options:
    """Options of the comparison; what is an option of a training holds for every row."""
    if wrong := next((name for name in given if name in WITHOUT), None):
        raise InputError(f"{wrong}={given[wrong]} is no option of a comparison; {WITHOUT[wrong]}")
    own = {each.name: given[each.name] for each in fields(Options) if each.name in given and "sentence" in each.metadata}
    for_all = {name: value for name, value in given.items() if name not in own}
    omega = {"omega": convert("omega", float, for_all.pop("omega"))} if "omega" in for_all else {}
    return Options(**converted(Options, own), for_all={**converted(TrainOptions, for_all), **omega})


def configuration(options: Options) -> dict[str, Any]:
    plain = as_dict(options)
    for_all = plain.pop("for_all")
    return {**plain, **for_all}


def run(options: Options) -> None:
    from obdsd import arena

    rows, out = asked_rows(options), Path(options.out)
    asks_arena = options.rows is None and arena.NAME in options.presets
    optional = {name for name in arena.ROWS if asks_arena and name not in options.presets}
    if not out.exists():  # one that goes on knows where its data are
        from obdsd.training.build import check_sources

        for name, row in rows.items():
            if name not in optional:
                check_sources(row)
    from obdsd.experiments import compare  # seconds of imports: what is wrong is told before
    from obdsd.experiments.leaving_out import left_out
    from obdsd.experiments.tables import aligned, caption, rows_of, sentences, write_tables

    known = arena.without(options.similarities) if optional else {}
    missing = left_out(rows, optional, out, known, tune=options.tune)
    rows = {name: row for name, row in rows.items() if name not in missing}
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    with going_on(out):
        comparison = compare(rows, seeds, out, jobs=options.jobs, keep_going=options.keep_going, tuned=options.tune, left_out=missing)
    write_tables(comparison, out)
    print(aligned(rows_of(comparison)), caption(comparison), "\n".join(sentences(comparison)), sep="\n\n")
    print(f"\nruns, each with its model: {out}/ROW/seed-N\ntables: {out}/comparison.md, .csv, .json")
    if options.report:
        from obdsd.cli.report import write_at_the_end

        write_at_the_end(out, str(options.for_all.get("device", "auto")))


@contextmanager
def going_on(out: Path) -> Iterator[None]:
    """Say, where it ends early, how it goes on."""
    try:
        yield
    except (KeyboardInterrupt, Terminated):
        print(f"stopped; {out} keeps what is finished: the same command goes on from there", file=sys.stderr)
        raise


def asked_rows(options: Options) -> dict[str, TrainOptions]:
    """The settings of each row: its preset's, then its own, then what was given for all."""
    from obdsd.presets import resolve_with_idle

    entries = _read(Path(options.rows)) if options.rows else _of_presets(options)
    rows, idle_in = {}, []
    for name, entry in entries.items():
        try:
            rows[name], idle = resolve_with_idle({"data": options.data, **entry, **options.for_all})
        except InputError as fault:
            raise InputError(f"row {name}: {fault}") from fault
        idle_in.append(idle)
        if own := [fault for setting, fault in idle.items() if setting in entry]:
            raise InputError(f"row {name}: {own[0]}")
    for setting, value in options.for_all.items():
        if all(setting in idle for idle in idle_in):
            raise InputError(f"{setting}={value} does nothing in any row; leave it out")
    return rows


def _of_presets(options: Options) -> dict[str, dict[str, Any]]:
    """A row for each preset; where the arena is named, its rows that are not named beside it."""
    from obdsd import arena

    found: dict[str, dict[str, Any]] = {}
    for name in options.presets:
        more = arena.entries(options.data, options.for_all, options.similarities) if name == arena.NAME else {name: {"preset": name}}
        found |= {row: entry for row, entry in more.items() if row == name or row not in options.presets}
    return found


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """Rows of a YAML file."""
    if not path.is_file():
        raise InputError(f"rows={path}: no such file; give a YAML file of rows")
    rows = read_mapping(path)
    if not rows or not all(isinstance(entry, dict) for entry in rows.values()):
        raise InputError(f"{path}: must hold rows, NAME with settings below it, as 'ours: {{preset: ms+obd-sd, omega: 0.5}}'")
    for name, entry in rows.items():
        if taken := [option for option in entry if option in SHARED]:
            raise InputError(f"{path}: row {name}: {taken[0]} is the same for all rows; leave it out there")
    return rows
