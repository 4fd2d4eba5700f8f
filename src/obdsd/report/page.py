"""The report as one self-contained page: words and tables in its HTML, numbers and pictures once as JSON, plots drawn by the browser."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import jinja2
from plotly.offline import get_plotlyjs

from obdsd.report.content import Content, Run
from obdsd.report.payload import compressed, curve_names, numbers_json, pictures_json, run_labels

SCRIPTS = ("data.js", "plots.js", "batch.js", "map.js", "gallery.js", "start.js")  # one after the other, in one scope

CURVES = (  # part of a curve's name: what one sees, and which direction is better; the first that fits
    ("share of the distillation", "How much of the gradient comes from the teacher. Near 0 it changes nothing, near 1 it decides alone."),
    ("distill", "How far the student still is from the teacher's targets, with its weight in the loss. Lower is closer."),
    ("loss", "What training makes small. Lower is better, but only the scores tell how well unseen classes are found."),
    ("recall", "Share of queries whose nearest other item has the same class. Higher is better."),
    ("map@r", "How far up all items of the query's class are in its list. Higher is better."),
    (
        "density",
        "Distance inside classes over distance between them. Higher if classes keep their variety, or if all is drawn together.",
    ),
    ("class means", "How far apart the classes are, as cosine distance. Near 0 all embeddings are nearly one, and density says nothing."),
    ("spectral", "How unevenly the embedding uses its directions. Lower means more directions in use."),
)
ALONE = "The teacher's similarities, each row made a distribution (PSD). Every pair is judged on its own."
DIFFUSED = "The same after diffusion over the batch (OBD-SD): pairs joined through others that both resemble become brighter."
SOFTENED = "Targets softened without looking at the graph. What diffusion shows beyond this comes from the manifold."
MATRICES = (  # the same for a batch's matrices
    ("teacher", "How similar the teacher finds each pair. Blocks on the diagonal are pairs of one class."),
    ("student", "How similar the trained model finds each pair. It should resemble the targets that it was taught."),
    ("control", SOFTENED),
    ("mix", SOFTENED),
    ("diffus", DIFFUSED),
    ("obd", DIFFUSED),
    ("pair", ALONE),
    ("psd", ALONE),
)


def render(content: Content) -> str:
    """The page as text: opens from the disk, asks no host for anything, and is the same for the same content."""
    labels = run_labels(content.runs)
    differing, common = split_options(content.runs)
    return (
        _environment()
        .get_template("page.html")
        .render(
            content=content,
            labels=labels,
            curves=[(name, explanation(name, CURVES)) for name in curve_names(content.runs)],
            matrices=[(name, matrix_kind(name), explanation(name, MATRICES)) for name in matrix_names(content.runs)],
            differing=differing,
            common=common,
            versions=version_rows(content.runs),
            score_names=list(dict.fromkeys(name for run in content.runs for name in run.scores)),
            has_memory=any(run.cost.memory_mib is not None for run in content.runs),
            numbers=numbers_json(content),
            pictures=pictures_json(content),
            plotly=_plotly(),
            style=_source("style.css"),
            script="\n".join(map(_source, SCRIPTS)),
        )
    )


def explanation(name: str, table: Sequence[tuple[str, str]]) -> str:
    """The sentences beside a plot, by the first word of the table that is in its name.

    >>> explanation("Recall@1, held-out", CURVES)
    'Share of queries whose nearest other item has the same class. Higher is better.'
    """
    return next((words for word, words in table if word in name.lower()), "")


def matrix_names(runs: Sequence[Run]) -> list[str]:
    """All matrices that any run has, in the order of their first appearance."""
    return list(dict.fromkeys(name for run in runs for name in run.heatmaps.matrices))


def matrix_kind(name: str) -> str:
    """Whether a matrix holds targets without diffusion, targets refined from those, or similarities.

    >>> [matrix_kind(name) for name in ("targets, PSD", "targets, OBD-SD", "student similarity")]
    ['alone', 'refined', '']
    """
    return {ALONE: "alone", DIFFUSED: "refined", SOFTENED: "refined"}.get(explanation(name, MATRICES), "")


def flat(options: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Options of options under dotted names, as people write them on the command line.

    >>> dict(flat({"omega": 0.3, "data": {"size": 64, "crop": None}}))
    {'omega': '0.3', 'data.size': '64', 'data.crop': 'none'}
    """
    for name, value in options.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, "none" if value is None else str(value)


def split_options(runs: Sequence[Run]) -> tuple[list[tuple[str, list[str]]], list[tuple[str, str]]]:
    """Options in which runs differ, with a value for each run, and those that all share."""
    tables = [dict(flat(run.options)) for run in runs]
    names = list(dict.fromkeys(name for table in tables for name in table))
    rows = [(name, [table.get(name, "–") for table in tables]) for name in names]
    return [(name, values) for name, values in rows if len(set(values)) > 1], [
        (name, values[0]) for name, values in rows if len(set(values)) == 1
    ]


def version_rows(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Each part's version, all of them where runs had several."""
    names = list(dict.fromkeys(name for run in runs for name in run.versions))
    return [(name, ", ".join(dict.fromkeys(run.versions[name] for run in runs if name in run.versions))) for name in names]


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
    return environment


def _source(name: str) -> str:
    environment = _environment()
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


@cache
def _plotly() -> str:
    """Compressed, because 5 MB of script would leave too little of the page's 15 MB for pictures."""
    return compressed(get_plotlyjs())
