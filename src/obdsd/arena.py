"""The arena: systems of many papers on one ground, and what each row of a comparison is tuned by. Imports no torch.

A system joins by its preset's name in `ROWS`. What it cannot do without has a line in `NEEDS`, and a main setting that is not λ one in
`MAIN`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from obdsd.catalogue import TABLES, TEACHERS
from obdsd.errors import InputError
from obdsd.options import TrainOptions, as_dict, why_idle
from obdsd.presets import resolve_with_idle

NAME = "arena"
"""`obdsd compare DATA --presets arena`."""

ROWS: tuple[str, ...] = (
    *("ms", "ms-tuned", "margin", "supcon", "proxy-anchor"),  # plain losses; the first is the baseline
    *("ms+obd-sd", "ms+psd", "ms+mean-mix", "ms+uniform-mix", "ms+flat"),  # the paper's, and its controls
    *("supcon+soft-labels", "supcon+smooth-labels"),  # ours, and its control
    *("epshn", "proxy-gml", "ms+rcl", "ms+plg", "ms+bar", "ms+s2sd-msd", "rankmi"),  # of other papers
    *("pads", "mic", "dcml-mdw", "diva", "ms+das", "norm-softmax+memvir", "div-conq", "drml"),
)
"""The presets that the arena compares."""

NEEDS: dict[str, dict[str, Any]] = {"epshn": {"per_class": 4}}
"""Options of `EQUAL` that a row keeps, because without them it is no longer what it is."""

EVEN: dict[str, dict[str, Any]] = {"mic": {"system": "mic(within=true)"}}
"""Settings that bring a row's epochs to the length of the baseline's."""

GUIDED = "ms+plg"
"""The row that needs a file of similarities between classes, as none fits all data."""

BUDGET = ("epochs", "epoch_batches", "batch_size", "per_class", "batches")
"""Options that say how much a training sees, and how."""

EQUAL = (
    *BUDGET,
    *("replacement", "crop", "flip", "optimizer", "lr", "head_lr", "weight_decay", "momentum", "clip"),
    *("schedule", "lr_steps", "lr_gamma", "warmup_epochs", "head_only_epochs"),
    *("backbone", "pretrained", "frozen", "feature_power", "pooling", "dim", "size", "batchnorm"),
)
"""Options in which rows of the arena are like the baseline, whatever their presets say."""


def tenfold(value: float) -> tuple[float, ...]:
    """Candidates of a weight λ."""
    return value / 10, value, 10 * value


def threefold(value: float) -> tuple[float, ...]:
    """Candidates of a learning rate."""
    return 0.3 * value, value, 3 * value


def share(value: float) -> tuple[float, ...]:
    """Candidates of a share: half of the way to 0 and to 1."""
    return value / 2, value, (1 + value) / 2


Candidates = Callable[[float], tuple[float, ...]]
MAIN: dict[str, tuple[str, Candidates]] = {
    "soft-labels": ("weight", share),
    "smooth-labels": ("weight", share),
    "proxy-gml": ("loss.regulariser", tenfold),
    "mic": ("system.decorrelation", tenfold),
    "diva": ("system.decorrelation", tenfold),
}
"""By a preset's method, or by its loss if it has none: its main setting, an option or PART.SETTING, and the values among which held-out
classes choose. Of others it is λ where something is taught, else the learning rate."""


def main_of(options: TrainOptions) -> tuple[str, Candidates]:
    """The main setting of a training, and the values to choose from."""
    loss, _, method = options.preset.partition("+")
    usual = ("lr", threefold) if why_idle(options, "weight") else ("weight", tenfold)
    return MAIN.get(method or loss, usual)


def value_of(options: TrainOptions, setting: str) -> float:
    """A training's value of an option, or of PART.SETTING."""
    kind, _, name = setting.partition(".")
    if not name:
        return float(getattr(options, kind))
    part = getattr(options, kind)
    return float(TABLES[kind].named(part).get(name, TABLES[kind].settings(part.name)[name].default))


def candidates_of(options: TrainOptions) -> dict[str, TrainOptions]:
    """A training with each value of its main setting, by `SETTING=VALUE`; first its own, which of equals is kept."""
    setting, values = main_of(options)
    now = value_of(options, setting)
    if now == 0:
        raise InputError(f"{setting}={now} leaves tune nothing to choose from; give another, or leave tune out")
    kind, _, name = setting.partition(".")
    found = {}
    for value in sorted((float(f"{value:.6g}") for value in values(now)), key=lambda value: value != now):
        changed = getattr(options, kind).with_setting(name, value) if name else value
        found[f"{setting}={value:g}"] = options.replace(**{kind: changed})
    return found


def entries(data: str, for_all: Mapping[str, Any], similarities: str | None) -> dict[str, dict[str, Any]]:
    """The rows of the arena on these data, each a preset with what makes it equal to the baseline; `for_all` was given for all rows."""
    ground = as_dict(resolve_with_idle({"data": data, "preset": ROWS[0], **for_all})[0])
    found: dict[str, dict[str, Any]] = {}
    for name in ROWS:
        if name == GUIDED:
            if similarities is not None:
                found[name] = {"preset": name, "teacher": f"classes(file={similarities!r})"}
            continue
        own = as_dict(resolve_with_idle({"data": data, "preset": name, **for_all})[0])
        found[name] = {"preset": name, **{option: ground[option] for option in EQUAL if own[option] != ground[option]}}
        found[name] |= NEEDS.get(name, {}) | EVEN.get(name, {})
    return found


def without(similarities: str | None) -> dict[str, str]:
    """Rows that are left out of the arena whatever the data are, with the reason."""
    return {} if similarities is not None else {GUIDED: "needs a file of similarities between the classes (--similarities)"}


def budget_of(options: TrainOptions) -> dict[str, str]:
    """How much a training sees, and how, as people read it."""
    trainings = 2 if getattr(TEACHERS.find(options.teacher.name), "trains_first", False) else 1
    return {**{name: str(value) for name, value in as_dict(options).items() if name in BUDGET}, "trainings": str(trainings)}
