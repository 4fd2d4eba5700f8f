"""The report as one self-contained page: words and tables in its HTML, the content once as JSON, plots drawn by the browser."""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import jinja2
import numpy as np
from plotly.offline import get_plotlyjs

from obdsd.report.content import Content, Run


def render(content: Content) -> str:
    """The page as text: opens from the disk, asks no host for anything, and is the same for the same content."""
    runs = content.runs
    differing, common = split_options(runs)
    return _template().render(
        content=content,
        several=len(runs) > 1,
        differing=differing,
        common=common,
        versions=version_rows(runs),
        score_names=list(dict.fromkeys(name for run in runs for name in run.scores)),
        taught=any(run.taught for run in runs),
        has_gradient=any(run.geometry.gradient for run in runs),
        with_batch=[(number, run.name) for number, run in enumerate(runs) if run.batch.matrices],
        has_memory=any(run.cost is not None and run.cost.memory_mib is not None for run in runs),
        has_refined=any(matrix.kind == "refined" for run in runs for matrix in run.batch.matrices),
        packed=safe_json(packed(content)),
        plotly=_plotly(),
    )


@cache
def _template() -> jinja2.Template:
    loader = jinja2.PackageLoader("obdsd.report")
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"duration": duration, "share": share}
    return environment.get_template("page.html")


@cache
def _plotly() -> str:
    """Compressed, because 5 MB of script would leave too little of the page's 15 MB for pictures; the same each time."""
    return b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode()


def split_options(runs: Sequence[Run]) -> tuple[list[tuple[str, list[str]]], list[tuple[str, str]]]:
    """Options in which runs differ, with a value for each run, and those that all share; as people write them on the command line."""
    names = list(dict.fromkeys(name for run in runs for name in run.options))
    values = {name: [run.options.get(name, "–") for run in runs] for name in names}
    rows = [(name, ["none" if value is None else str(value) for value in own]) for name, own in values.items()]
    common = [(name, own[0]) for name, own in rows if len(set(own)) == 1]
    return [(name, own) for name, own in rows if len(set(own)) > 1], common


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


def safe_json(value: object) -> str:
    """JSON that ends no script element and no line of JavaScript, whatever names are in it.

    >>> print(safe_json({"class": "</script>"}))
    {"class":"\\u003c/script\\u003e"}
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def packed(value: Any) -> Any:
    """A value of the content, ready for JSON: arrays and pictures as base64; six digits of a number, or nothing if it is not finite."""
    if dataclasses.is_dataclass(value):
        return packed(vars(value))
    if isinstance(value, Mapping):
        return {name: packed(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [packed(entry) for entry in value]
    if isinstance(value, np.ndarray):
        kind = "float32" if value.dtype.kind == "f" else "int32"
        return {"kind": kind, "shape": value.shape, "data": packed(value.astype(f"<{kind[0]}4").tobytes())}
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return b64encode(value).decode() if isinstance(value, bytes) else value
