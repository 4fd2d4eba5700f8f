"""Every number that the paper prints in its tables, to stand beside ours."""

from __future__ import annotations

import csv
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from obdsd.method.checks import refuse
from obdsd.parts import suggestion

FILE = "published.csv"


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


def published(table: str, row: str | None = None) -> dict[tuple[str, str, str], Published]:
    """The numbers of a table, or of one row of it, by (row, data, metric), in the order of print.

    >>> published("elements")["obd-sd", "cub200", "recall@1"].value
    67.8
    >>> [number.value for number in published("omega", "omega-0.3").values()]
    [67.76, 82.82, 78.77]
    """
    tables = _tables()
    _check_known("table", table, tables)
    found = tables[table]
    if row is not None:
        _check_known("row", row, dict.fromkeys(name for name, _, _ in found))
        found = {key: number for key, number in found.items() if key[0] == row}
    return dict(found)


@cache
def _tables() -> dict[str, dict[tuple[str, str, str], Published]]:
    found: dict[str, dict[tuple[str, str, str], Published]] = {}
    lines = csv.DictReader(files("obdsd.experiments").joinpath(FILE).read_text("utf-8").splitlines())
    for line in lines:
        value = float(line.pop("value"))
        number = Published(**line, value=value)
        found.setdefault(number.table, {})[number.row, number.data, number.metric] = number
    return found


def _check_known(field: str, name: str, known: Collection[str]) -> None:
    if name not in known:
        refuse(field, repr(name), "is not in the paper", suggestion(name, known))
