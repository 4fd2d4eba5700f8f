"""The report as one self-contained page: words and tables in its HTML, numbers and pictures once as JSON, plots drawn by the browser."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import jinja2
from plotly.offline import get_plotlyjs

from obdsd.report.chart import drawing_of
from obdsd.report.content import Content, Run
from obdsd.report.payload import compressed, numbers_json, pictures_json

SCRIPTS = ("data.js", "plots.js", "batch.js", "map.js", "gallery.js", "start.js")  # one after the other, in one scope


def render(content: Content) -> str:
    """The page as text: opens from the disk, asks no host for anything, and is the same for the same content."""
    differing, common = split_options(content.runs)
    return (
        _environment()
        .get_template("page.html")
        .render(
            content=content,
            drawing=drawing_of(content.chart),
            several=len(content.runs) > 1,
            differing=differing,
            common=common,
            versions=version_rows(content.runs),
            score_names=list(dict.fromkeys(name for run in content.runs for name in run.scores)),
            has_memory=any(run.cost is not None and run.cost.memory_mib is not None for run in content.runs),
            has_refined=any(matrix.kind == "refined" for run in content.runs for matrix in run.batch.matrices),
            numbers=numbers_json(content),
            pictures=pictures_json(content),
            plotly=_plotly(),
            style=_source("style.css"),
            script="\n".join(map(_source, SCRIPTS)),
        )
    )


def split_options(runs: Sequence[Run]) -> tuple[list[tuple[str, list[str]]], list[tuple[str, str]]]:
    """Options in which runs differ, with a value for each run, and those that all share; as people write them on the command line."""
    names = list(dict.fromkeys(name for run in runs for name in run.options))
    rows = [(name, [_written(run.options.get(name, "–")) for run in runs]) for name in names]
    common = [(name, values[0]) for name, values in rows if len(set(values)) == 1]
    return [(name, values) for name, values in rows if len(set(values)) > 1], common


def _written(value: object) -> str:
    return "none" if value is None else str(value)


def version_rows(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Each part's version, all of them where runs had several."""
    names = list(dict.fromkeys(name for run in runs for name in run.versions))
    return [(name, ", ".join(dict.fromkeys(run.versions[name] for run in runs if name in run.versions))) for name in names]


def share(value: float | None) -> str:
    """In percent; a dash where it is not known."""
    return "–" if value is None else f"{100 * value:.1f} %"


def duration(seconds: float) -> str:
    """As people say it.

    >>> [duration(seconds) for seconds in (0.0421, 1.5, 75, 7384)]
    ['42.1 ms', '1.5 s', '1 min 15 s', '2 h 3 min']
    """
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes = round(seconds) // 60
    return f"{minutes} min {round(seconds) % 60} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("obdsd.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["duration"] = duration
    environment.filters["share"] = share
    return environment


def _source(name: str) -> str:
    environment = _environment()
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


@cache
def _plotly() -> str:
    """Compressed, because 5 MB of script would leave too little of the page's 15 MB for pictures."""
    return compressed(get_plotlyjs())
