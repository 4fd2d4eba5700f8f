"""Show finished runs or a comparison as one page: obdsd report RUN [RUN …] --out report.html."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, Literal

from obdsd.cli.embed import check_suffix
from obdsd.errors import InputError, MissingExtra, Terminated, explain_missing, printable
from obdsd.files import check_place, replacing
from obdsd.options import LARGEST, option

NAME = "report.html"


@dataclass(frozen=True)
class Options:
    runs: list[str] = option(
        MISSING, "Folders of finished runs, shown side by side, the first as the baseline; or the folder of a comparison.", positional=True
    )
    out: str = option(NAME, "The page to write, of suffix .html.")
    map: Literal["tsne", "umap"] = option("tsne", 'How the embedding map is drawn; umap needs pip install "obdsd[umap]".')
    points: Literal["test", "train"] = option(
        "test", "What is on the map: the scored classes, or the first 20 training classes as in the paper."
    )
    queries: str | None = option(None, "A text file of item names, one a line, that the gallery shows first.")
    pictures: str | None = option(
        None,
        "The images that an embeddings file was made of, as a collection whose items have the same names, such as cub200:PATH; "
        "a file of obdsd embed remembers them.",
    )
    seed: int = option(
        0, "Seed of the map, of the crops that search, and of the classes left out where there are too many for a page.",
        at_least=0, below=LARGEST,
    )  # fmt: skip
    device: str = option("auto", "Where the models run, such as cpu or cuda:0; auto takes the accelerator if there is one.")

    def __post_init__(self) -> None:
        check_suffix(self.out, (".html",))
        if not self.runs:
            raise InputError("runs must be given; add --help to see how")


def run(options: Options) -> None:
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
    from obdsd.training.run_folder import check_finished

    check_place(out)
    check_finished(folders)
    with explain_missing():
        from obdsd.report import gather, render
        from obdsd.terminal import stages

    with stages() as show:
        content = gather(folders, show=show, **how)
        page = render(content)
    with replacing(out) as file:
        file.write(page.encode())
    print(f"report: {out}")
    if "pictures" in content.facts:
        print(f"pictures: {printable(content.facts['pictures'])}")


def write_at_the_end(folder: Path, device: str) -> None:
    """Into the folder of what has just been finished, which is complete whether this succeeds or not."""
    try:
        write([folder], folder / NAME, device=device)
    except MissingExtra as missing:  # no fault: one can train without it
        print(f"no report: {missing}", file=sys.stderr)
    except (KeyboardInterrupt, Terminated):
        print(f"{folder} is complete but for its report: obdsd report {folder} --out {folder / NAME} makes it", file=sys.stderr)
        raise
    except InputError as fault:  # what was finished stays finished
        print(f"obdsd: {folder} is complete, but its report could not be made: {printable(str(fault))}", file=sys.stderr)
