"""`obdsd report`, and the report that a training or a comparison leaves in its folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from obdsd.cli.progress import stages
from obdsd.errors import InputError
from obdsd.experiments.reporting import gather
from obdsd.files import check_place, replacing
from obdsd.options import ReportOptions
from obdsd.report.page import render

NAME = "report.html"


def run(options: ReportOptions) -> None:
    write(
        [Path(folder).expanduser() for folder in options.runs],
        Path(options.out).expanduser(),
        map=options.map,
        points=options.points,
        queries=None if options.queries is None else Path(options.queries).expanduser(),
        pictures=options.pictures,
        seed=options.seed,
        device=options.device,
    )


def write(folders: Sequence[Path], out: Path, **how: Any) -> None:
    """The page of these runs, whole or not at all; its path is printed."""
    check_place(out)
    with stages() as show:
        page = render(gather(folders, show=show, **how))
    with replacing(out) as file:
        file.write(page.encode())
    print(f"report: {out}")


def write_at_the_end(folder: Path, device: str) -> None:
    """Into the folder of what has just been finished, which is complete whether this succeeds or not."""
    try:
        write([folder], folder / NAME, device=device)
    except InputError as fault:
        raise InputError(f"{folder} is complete, but its report could not be made: {fault}") from fault
