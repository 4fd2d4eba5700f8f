"""`obdsd compare`."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import ArgumentError, ArgumentParser

from obdsd.cli.report import write_at_the_end
from obdsd.errors import InputError, Terminated
from obdsd.experiments import compare
from obdsd.experiments.tables import caption, plain_words, text_table, write_tables
from obdsd.presets import idle_options, preset_settings
from obdsd.settings import CompareOptions, TrainOptions


def run(options: CompareOptions) -> None:
    out = Path(options.out)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    try:
        comparison = compare(rows_of(options), seeds, out, jobs=options.jobs)
    except (KeyboardInterrupt, Terminated):
        print(f"stopped; {out} keeps what is finished: the same command goes on from there", file=sys.stderr)
        raise
    write_tables(comparison, out)
    print(text_table(comparison), caption(comparison), plain_words(comparison), sep="\n\n")
    print(f"\nruns, each with its model: {out}/ROW/seed-N\ntables: {out}/comparison.md, .csv, .json")
    if options.report:
        write_at_the_end(out, options.device)


def rows_of(options: CompareOptions) -> dict[str, TrainOptions]:
    """The settings of each row: its preset's, then its own, then what was given for all."""
    entries = _read(Path(options.rows)) if options.rows else {name: {"preset": name} for name in _names(options.presets)}
    shared = {name: getattr(options, name) for name in options.given}
    erased = next((name for name in shared if name in ("loss", "teacher", "targets", "form")), None)
    if erased and not options.rows:
        raise InputError(
            f"{erased}={shared[erased]} for every row would undo what the presets differ in; write the rows in a YAML file (--rows)"
        )
    rows, idle_in = {}, {}
    for name, entry in entries.items():
        if not re.fullmatch(r"[\w.+-]+", name):
            raise InputError(f"row={name!r} names a folder; use letters, digits and . + - _")
        start = entry.get("preset", TrainOptions.preset)
        settings = preset_settings(start, options.data, {**entry, **shared})
        rows[name] = TrainOptions(options.data, **{**settings, **entry, **shared})
        idle_in[name] = idle_options(options.data, settings, {**entry, **shared})
        if own := [fault for option, fault in idle_in[name].items() if option in entry]:
            raise InputError(f"row {name}: {own[0]}")
    for option in shared:
        if all(option in idle for idle in idle_in.values()):
            raise InputError(f"{option}={shared[option]} does nothing in any row; leave it out")
    return rows


def _names(presets: str) -> list[str]:
    names = [name.strip() for name in presets.split(",") if name.strip()]
    if len(set(names)) < len(names) or not names:
        raise InputError(f"presets={presets!r} must name different presets, as ms,ms+obd-sd")
    return names


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """Rows of a YAML file, their values checked as on the command line."""
    try:
        content = yaml.safe_load(path.read_bytes())
    except (yaml.YAMLError, UnicodeError) as fault:
        raise InputError(f"{path}: is not YAML ({' '.join(str(fault).split())[:120]})") from fault
    if not isinstance(content, dict) or not content or not all(isinstance(entry, dict) for entry in content.values()):
        raise InputError(f"{path}: must hold rows, NAME with settings below it, as 'ours: {{preset: ms+obd-sd, omega: 0.5}}'")
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(TrainOptions, skip={"data", "out", "seed", "resume", "report"})
    rows = {}
    for name, entry in content.items():
        try:
            rows[str(name)] = parser.parse_object(entry, defaults=False).as_dict()
        except ArgumentError as fault:
            raise InputError(f"{path}: row {name}: {' '.join(str(fault).split())}") from fault
    return rows
