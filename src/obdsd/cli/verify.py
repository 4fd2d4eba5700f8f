"""Check that a finished run or comparison says what is true: obdsd verify RUN."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from obdsd.errors import InputError
from obdsd.options import option

if TYPE_CHECKING:
    from obdsd.training.verifying import Check

SHOWN = 5  # differences of one kind


@dataclass(frozen=True)
class Options:
    folder: str = option(MISSING, "The folder of a finished obdsd train or obdsd compare.", positional=True)
    data: str | None = option(None, "Where the data are now, if not where they were.")
    device: str = option("auto", "Where the model runs, such as cpu or cuda:0; auto takes the accelerator if there is one.")
    tolerance: float = option(
        1e-4, "How far a score, a share in 0..1, may be from the one that is computed again; rounding differs between machines.", at_least=0
    )


def run(options: Options) -> None:
    wrong = total = 0
    for name, check in _checks(options):
        total, wrong = total + 1, wrong + bool(check.differences)
        print(f"{'differs' if check.differences else 'agrees':<8} {name}{check.what}")
        more = len(check.differences) - SHOWN
        print(*(f"         {each}\n" for each in check.differences[:SHOWN]), f"         and {more:,} more\n" * (more > 0), sep="", end="")
    if wrong:
        raise InputError(f"{options.folder}: {wrong} of {total} checks found differences; restore the files, or train again")


def _checks(options: Options) -> Iterator[tuple[str, Check]]:
    """Everything that is looked at, with the name of the run where there are several."""
    from obdsd.training.run_folder import check_finished

    folder = Path(options.folder).expanduser()
    check_finished([folder])
    from obdsd.experiments.comparison import read_comparison
    from obdsd.experiments.tables import verify_tables
    from obdsd.terminal import stages
    from obdsd.training.verifying import verify_run

    names = {"": folder}
    if (folder / "comparison.json").exists():
        runs, comparison = read_comparison(folder)
        names = {f"{record.folder.relative_to(folder)}: ": record.folder for row in runs.values() for record in row}
        yield "", verify_tables(comparison, folder)
    with stages() as tell:
        for name, place in names.items():
            for check in verify_run(place, data=options.data, device=options.device, tolerance=options.tolerance, progress=tell):
                yield name, check
