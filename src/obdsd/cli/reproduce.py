"""`obdsd reproduce`."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

from obdsd.errors import InputError, Terminated
from obdsd.experiments.recipes import BENCHMARKS, TABLES
from obdsd.experiments.reproduction import REMEDY, Reproduction, reproduce
from obdsd.experiments.reproduction_tables import caption, rows_of, write
from obdsd.experiments.tables import aligned
from obdsd.settings import ReproduceOptions


def run(options: ReproduceOptions) -> None:
    if options.list:
        print(listing())
        return
    asked = asked_for(options)
    try:
        reproduce(asked)
    except (KeyboardInterrupt, Terminated):
        print(f"stopped; {asked.out} keeps what is finished: the same command goes on from there", file=sys.stderr)
        raise
    files = write(asked)
    print(aligned(rows_of(asked)), caption(asked), sep="\n\n")
    print(f"\nresults, a line a run: {asked.out / 'results.jsonl'}\ntables: {', '.join(map(str, files))}")


def listing() -> str:
    """Every table with its rows on CUB-200-2011."""
    lines = []
    for name, table in TABLES.items():
        rows = [row.name for row in table.rows(BENCHMARKS[0])]
        lines.append(f"{name}: {table.title}; {', '.join(table.benchmarks)}{'; needs images' if table.needs_images else ''}")
        lines.append(f"  {len(rows)} rows: {', '.join(rows)}")
    return "\n".join(lines)


def asked_for(options: ReproduceOptions) -> Reproduction:
    if options.table is None:
        raise InputError(f"table must be given; there are {', '.join(TABLES)}, and --list says what is in them")
    if options.table not in TABLES:
        close = difflib.get_close_matches(options.table, TABLES, n=1)
        raise InputError(f"table={options.table} is not known; {f'did you mean {close[0]}?' if close else 'see --list'}")
    data = options.data or ("glyphs" if options.scale == "tiny" else None)
    if data is None:
        raise InputError(f"data must be given with scale={options.scale}; {REMEDY[options.scale]}")
    return Reproduction(
        table=options.table,
        scale=options.scale,
        data=data,
        seeds=options.seeds,
        out=Path(options.out).expanduser(),
        only=options.only,
        jobs=options.jobs,
    )
