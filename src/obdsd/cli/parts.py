"""List losses, teachers, targets, matchings, systems, data sets, re-rankers and metrics, with settings: obdsd parts, obdsd parts loss."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from obdsd.catalogue import TABLES
from obdsd.errors import InputError
from obdsd.options import option
from obdsd.parts import MISSING, Setting, suggestion
from obdsd.spec import written

KINDS = (*TABLES, "metric")
FORMS = {  # a kind, a part, a setting, a setting's default that must be given, and one that is there
    "text": ("{kind}:", "  {}: {}", "      {0}: {1} [{2}]", "must be given", "default {}"),
    "markdown": ("## {title}\n| name | meaning |\n|---|---|", "| **`{}`** | {} |", "| `{0}={2}` | {1} |", "…", "{}"),
}
HEADINGS = {
    "loss": "Losses: `--loss`",
    "teacher": "Teachers: `--teacher`",
    "targets": "Targets: `--targets`",
    "matching": "Matchings: `--matching`",
    "system": "Systems: `--system`",
    "data": "Data",
    "rerank": "Re-rankers: `--rerank`",
    "metric": "Metrics",
}
INTRODUCTION = """# All parts
Made from the code by `obdsd parts --format markdown`.

A part is written with the settings that you change: `--loss "margin(beta=0.6, sampling=random)"`, `loss: margin(beta=0.6)` in YAML,
`preset("ms", data, loss="margin(beta=0.6)")` in Python. The tables show each setting with its default; `…` must be given.

The **loss** learns from labels. Beside it a **teacher** may say how alike the items of a batch are, **targets** make of that what is to be
learned, and a **matching** compares the model with it. A **system** says how these are trained together. `standard` adds them up; the
others bring what their papers train, remember or hold out beside the model, and refuse in one line what does not go with them. A preset is
a good choice of all of these under one name, such as `pads` or `ms+s2sd-msd`: `obdsd presets` lists them.
"""


@dataclass(frozen=True)
class Options:
    kind: str | None = option(None, f"One kind of part: {', '.join(KINDS)}.", positional=True)
    format: Literal["text", "markdown"] = option("text", "Lines for people, or the page of the documentation.")

    def __post_init__(self) -> None:
        if self.kind is not None and self.kind not in KINDS:
            raise InputError(f"kind={self.kind} is not known; {suggestion(self.kind, KINDS)}")


def run(options: Options) -> None:
    heading, part, row, needed, given = FORMS[options.format]
    if options.format == "markdown":
        print(INTRODUCTION)
    for number, kind in enumerate(KINDS if options.kind is None else (options.kind,)):
        print("\n" * (number > 0) + heading.format(kind=kind, title=HEADINGS[kind]))
        for name, sentence, settings in entries(kind):
            print(part.format(name, sentence))
            for setting in settings:
                default = needed if setting.default is MISSING else given.format(written(setting.default))
                print(row.format(setting.name, _meaning(setting), default))


def _meaning(setting: Setting) -> str:
    choices = typing.get_args(setting.type) if typing.get_origin(setting.type) is Literal else ()
    return f"{setting.sentence} One of {', '.join(choices)}." if choices else setting.sentence


def entries(kind: str) -> Iterator[tuple[str, str, list[Setting]]]:
    """The parts of a kind: name, sentence, settings."""
    if kind == "metric":
        from obdsd.evaluation.metrics import METRICS

        yield from ((metric.name, metric.sentence, []) for metric in METRICS.values())
    else:
        table = TABLES[kind]
        yield from ((name, table.summary(name), [*table.settings(name).values()]) for name in table.names)
