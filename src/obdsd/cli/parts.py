"""Show what there is: losses, teachers, targets, systems, data sets and metrics, with their settings.

obdsd parts lists all; obdsd parts loss lists one kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from obdsd.catalogue import TABLES
from obdsd.errors import InputError
from obdsd.options import option
from obdsd.convert import MISSING as REQUIRED
from obdsd.parts import Table, suggestion

KINDS = (*TABLES, "metric")


@dataclass(frozen=True)
class Options:
    kind: str | None = option(None, f"One kind of part: {', '.join(KINDS)}.", positional=True)

    def __post_init__(self) -> None:
        if self.kind is not None and self.kind not in KINDS:
            raise InputError(f"kind={self.kind} is not known; {suggestion(self.kind, KINDS)}")


def run(options: Options) -> None:
    kinds = KINDS if options.kind is None else (options.kind,)
    for number, kind in enumerate(kinds):
        print("\n" * (number > 0) + f"{kind}:")
        for line in _metrics() if kind == "metric" else listed(TABLES[kind]):
            print(line)


def listed(table: Table) -> Iterator[str]:
    """Each part with its summary, and its settings below it."""
    for name in table.names:
        yield f"  {name}: {table.summary(name)}"
        for setting in table.settings(name).values():
            default = "must be given" if setting.default is REQUIRED else f"default {setting.default}"
            yield f"      {setting.name}: {setting.sentence} [{default}]"


def _metrics() -> Iterator[str]:
    from obdsd.evaluation.metrics import METRICS

    for metric in METRICS.values():
        yield f"  {metric.name}: {metric.sentence}"
