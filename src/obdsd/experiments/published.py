"""Every number that the paper prints in its tables, to stand beside ours; for RCL and two forms of MemVir those of their own authors."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from obdsd.method.checks import refuse
from obdsd.parts import suggestion


@dataclass(frozen=True)
class Published:
    """A printed number: recall and NMI, extra time and relative improvements in percent, the rest as it is.

    Args:
        table: Which table: strong-baselines, sota, elements, sampling, self-distillation, obdp, manifolds, space, noise or omega.
        row: The row's name here.
        label: The row's name in print.
        venue: Where a row of the literature was published; empty for the paper's own.
        architecture: Backbone and length of the rows; R50 is ResNet50, IBN BN-Inception, +D average and max pooling.
        data: cub200, cars196 or sop.
        metric: recall@1, recall@2, recall@10, nmi, extra-time, density, spectral-decay, relative-recall@1 or relative-nmi.
        value: The number.
    """

    table: str
    row: str
    label: str
    venue: str
    architecture: str
    data: str
    metric: str
    value: float


def published(table: str) -> dict[tuple[str, str, str], Published]:
    """The numbers of a table by (row, data, metric), in the order of print.

    >>> published("elements")["obd-sd", "cub200", "recall@1"].value
    67.8
    """
    tables = _tables()
    if table not in tables:
        refuse("table", repr(table), "is not in the paper", suggestion(table, tables))
    return tables[table]


@cache
def _tables() -> dict[str, dict[tuple[str, str, str], Published]]:
    found: dict[str, dict[tuple[str, str, str], Published]] = {}
    for line in csv.DictReader(files("obdsd.experiments").joinpath("published.csv").read_text(encoding="utf-8").splitlines()):
        value = float(line.pop("value"))
        number = Published(**line, value=value)
        found.setdefault(number.table, {})[number.row, number.data, number.metric] = number
    return found
