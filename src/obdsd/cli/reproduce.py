"""Run a table of the paper, with its published numbers beside ours: obdsd reproduce TABLE, or --list."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from obdsd.cli.compare import going_on
from obdsd.errors import InputError
from obdsd.options import option
from obdsd.parts import suggestion

if TYPE_CHECKING:
    from obdsd.experiments.reproduction import Reproduction

CHANGES = ("backbone", "pretrained", "batch_size", "epochs", "allow_incomplete")  # of every row, told in the caption


@dataclass(frozen=True)
class Options:
    table: str | None = option(None, "Which table of the paper; --list names them all.", positional=True)
    list: bool = option(False, "Show all tables with their rows, and run nothing.")
    scale: Literal["paper", "small", "tiny"] = option(
        "paper",
        "paper trains whole networks on a benchmark (GPUs, days), small a head on frozen features (two cores, minutes a row), "
        "tiny takes a few steps on built-in letters, to see that everything runs.",
    )
    data: str | None = option(
        None, "A benchmark for scale=paper, as cub200:PATH; frozen features of CUB-200-2011 for small, as cub.npz; nothing for tiny."
    )
    seeds: int = option(5, "How many seeds each row is trained with.", at_least=1)
    only: str | None = option(None, "One row of the table alone.")
    out: str = option("reproduction", "The folder of all runs, results and tables; finished runs there are not repeated.")
    jobs: int = option(1, "Runs at a time, each in a process with its share of the cores.", at_least=1)
    backbone: str | None = option(None, "Another network than the paper's, for every row.")
    pretrained: str | None = option(None, "Its weights, as for obdsd train.")
    batch_size: int | None = option(None, "Another batch size than the table's, for every row.", at_least=1)
    epochs: int | None = option(None, "Another length of the training, for every row.", at_least=1)
    similarities: str | None = option(
        None, "A file of similarities between the classes (.csv, .parquet, .npz), for rows that learn from one (ms+plg of sota)."
    )
    allow_incomplete: bool = option(False, "Accept a benchmark with missing classes or files.")


def run(options: Options) -> None:
    from obdsd.experiments.reproduction import reproduce
    from obdsd.experiments.reproduction_tables import caption, rows_of, write
    from obdsd.experiments.tables import aligned

    if options.list:
        return print(listing())
    asked = asked_for(options)
    with going_on(asked.out):
        reproduce(asked)
    files = write(asked)
    print(aligned(rows_of(asked)), caption(asked), sep="\n\n")
    print(f"\nresults, a line a run: {asked.out / 'results.jsonl'}\ntables: {', '.join(map(str, files))}")


def listing() -> str:
    """Every table with its rows on CUB-200-2011."""
    from obdsd.experiments.recipes import BENCHMARKS, TABLES

    lines = []
    for name, table in TABLES.items():
        rows = [row.name for row in table.rows(BENCHMARKS[0])]
        lines.append(f"{name}: {table.title}; {', '.join(table.benchmarks)}{'; needs images' if table.needs_images else ''}")
        lines.append(f"  {len(rows)} rows: {', '.join(rows)}")
    return "\n".join(lines)


def asked_for(options: Options) -> Reproduction:
    from obdsd.experiments.recipes import TABLES
    from obdsd.experiments.reproduction import REMEDY, Reproduction

    if options.table is None:
        raise InputError(f"table must be given; there are {', '.join(TABLES)}, and --list shows what is in them")
    if options.table not in TABLES:
        raise InputError(f"table={options.table} is not known; {suggestion(options.table, TABLES)}")
    data = options.data or ("glyphs" if options.scale == "tiny" else None)
    if data is None:
        raise InputError(f"data must be given with scale={options.scale}; {REMEDY[options.scale]}")
    given = {name: value for name, value in vars(options).items() if name not in ("list", *CHANGES)}
    changes = {name: getattr(options, name) for name in CHANGES if getattr(options, name)}
    return Reproduction(**{**given, "data": data, "out": Path(options.out).expanduser(), "changes": changes})
