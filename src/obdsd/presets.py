"""Settings by name: the paper's, for its benchmarks, and what fits data of other kinds. Imports no torch."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from obdsd.errors import InputError
from obdsd.settings import PROXY_LOSSES, CompareOptions, Settings, TrainOptions

LOSSES: dict[str, dict[str, Any]] = {
    "ms": {"loss": "multi-similarity"},
    "margin": {"loss": "margin", "sampling": "distance"},
    "r-margin": {"loss": "r-margin"},
    "proxy-anchor": {"loss": "proxy-anchor"},
    "proxy-nca": {"loss": "proxy-nca"},
    "soft-triple": {"loss": "soft-triple"},
    "nt-xent": {"loss": "nt-xent", "supervision": "none"},
}
BORN_AGAIN = {"teacher": "born-again", "ramp": "constant", "weight": 100.0}
HEADS = {"teacher": "heads", "ramp": "constant", "weight": 50.0}
METHODS: dict[str, dict[str, Any]] = {
    "": {"teacher": "none"},
    "psd": {"teacher": "previous-epoch", "targets": "pairwise"},
    "psd-balanced": {"teacher": "previous-epoch", "targets": "pairwise", "balanced": True},  # not the paper's: docs/results.md
    "psd-constant": {"teacher": "previous-epoch", "targets": "pairwise", "ramp": "constant"},
    "obd-sd": {"teacher": "previous-epoch", "targets": "batch-diffusion", "form": "symmetric"},
    "obd-sd-softmax": {"teacher": "previous-epoch", "targets": "batch-diffusion", "form": "softmax"},
    "anchor": {  # not the paper's: docs/results.md
        "teacher": "features",
        "targets": "pairwise",
        "ramp": "constant",
        "temperature": 0.2,
        "weight": 100.0,
    },
    "mean-mix": {"teacher": "previous-epoch", "targets": "mean-mix"},
    "uniform-mix": {"teacher": "previous-epoch", "targets": "uniform-mix"},
    "bar": {**BORN_AGAIN, "targets": "pairwise"},
    "bar+obdp": {**BORN_AGAIN, "targets": "batch-diffusion", "form": "symmetric"},
    "s2sd-dsd": {**HEADS, "heads": "2048", "targets": "pairwise"},
    "s2sd-msd": {**HEADS, "targets": "pairwise"},
    "s2sd-msdf": {**HEADS, "targets": "pairwise", "feature_weight": 50.0},
    "s2sd-dsd+obdp": {**HEADS, "heads": "2048", "targets": "batch-diffusion", "form": "symmetric"},
    "s2sd-msd+obdp": {**HEADS, "targets": "batch-diffusion", "form": "symmetric"},
    "s2sd-msdf+obdp": {**HEADS, "targets": "batch-diffusion", "form": "symmetric", "feature_weight": 50.0},
    "global": {"teacher": "previous-epoch", "targets": "global-diffusion"},
    "proxy-diffusion": {"teacher": "previous-epoch", "targets": "proxy-diffusion"},
}
"""`mean-mix` and `uniform-mix` are controls: what the walk does without its graph. (The third, a flatter teacher, is `targets=pairwise
scale=1-omega`.)"""

METHODS_ON_DATA: dict[tuple[str, str], dict[str, Any]] = {  # where a method's own setting depends on the data
    ("bar", "cars196"): {"weight": 50.0},
    ("s2sd", "sop"): {"heads_pooling": "avg"},
    ("s2sd", "inshop"): {"heads_pooling": "avg"},
    ("s2sd-msdf", "sop"): {"feature_weight": 5.0},
    ("s2sd-msdf", "inshop"): {"feature_weight": 5.0},
    ("obd-sd", "embeddings"): {"weight": 1.0},
    ("mean-mix", "embeddings"): {"weight": 1.0},
    ("uniform-mix", "embeddings"): {"weight": 1.0},
}
"""By the beginning of the method's name and the kind of the data; of embeddings what does well on held-out classes of
two data sets (docs/results.md)."""

NAMES = [
    loss + (f"+{method}" if method else "")
    for loss, settings in LOSSES.items()
    for method in METHODS
    if method != "proxy-diffusion" or settings["loss"] in PROXY_LOSSES
]

SETTINGS = {field.name for field in fields(Settings)}
IDLE: list[tuple[str, Any, tuple[str, ...]]] = [  # an option, a value of it (or "not " and one), and what then does nothing
    (
        "teacher",
        "none",
        ("weight", "temperature", "ramp", "balanced", "targets", "omega", "form", "walk_temperature", "scale", "neighbours"),
    ),
    ("teacher", "not ema", ("ema_decay",)),
    ("teacher", "not heads", ("heads", "heads_pooling", "feature_weight", "feature_from")),
    ("feature_weight", 0.0, ("feature_from",)),
    ("targets", "not global-diffusion", ("neighbours", "affinity_power")),
    ("targets", "not pairwise", ("scale",)),
    ("targets", "not batch-diffusion", ("form", "walk_temperature")),
    ("targets", "pairwise", ("omega",)),
    ("form", "symmetric", ("walk_temperature",)),
    ("loss", "not margin", ("sampling",)),
    ("loss", "multi-similarity", ("objective_lr",)),
    ("loss", "nt-xent", ("objective_lr",)),
    ("head", "none", ("head_lr",)),
    ("supervision", "none", ("replacement",)),
    ("optimizer", "not sgd", ("momentum",)),
    ("schedule", "not steps", ("lr_gamma",)),
    ("backbone", "features", ("crop", "flip", "size", "pooling", "weights", "channels_last", "batchnorm", "heads_pooling")),
]

DATA: dict[str, dict[str, Any]] = {
    "cub200": {"epochs": 150, "weight": 1000.0, "omega": 0.3, "walk_temperature": 1.0},
    "cars196": {"epochs": 150, "weight": 75.0, "omega": 0.99, "walk_temperature": 1.0},
    "sop": {"epochs": 100, "weight": 100.0, "omega": 0.5, "walk_temperature": 0.005, "ks": "1,10,100"},
    "inshop": {"epochs": 100, "weight": 100.0, "omega": 0.5, "walk_temperature": 0.005, "ks": "1,10,20,30"},  # SOP's: the paper has none
    "glyphs": {"epochs": 20, "backbone": "tiny-conv", "lr": 1e-3, "crop": 0.7, "flip": False, "weight": 1.0},
    "embeddings": {"epochs": 40, "backbone": "features", "head_init": "projection", "lr": 1e-4, "weight": 100.0},
}


def preset(name: str, data: str, **changes: Any) -> TrainOptions:
    """The options of a training on `data` by a preset's name, with changes.

    >>> preset("ms+obd-sd", "cars196:cars").omega
    0.99
    >>> preset("ms", "glyphs", epochs=3).teacher
    'none'
    """
    known = [field.name for field in fields(TrainOptions)]
    for option in changes:
        if option not in known:
            close = difflib.get_close_matches(option, known, n=1)
            raise InputError(f"{option}={changes[option]!r} is no option of a training{f'; did you mean {close[0]}?' if close else ''}")
    return TrainOptions(data, **{"preset": name, **preset_settings(name, data, changes), **changes})


def preset_settings(name: str, data: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What a preset sets for data of this kind beside what is given; all else keeps its default, which is the paper's on CUB-200-2011."""
    if name not in NAMES:
        close = difflib.get_close_matches(name.lower(), NAMES, n=1)
        raise InputError(f"preset={name!r} is not known; {f'did you mean {close[0]}?' if close else 'there are ' + ', '.join(NAMES)}")
    loss, _, method = name.partition("+")
    kind = data_kind(data)
    found = {**DATA.get(kind, {}), **LOSSES[loss], **METHODS[method]}
    for (beginning, where), own in METHODS_ON_DATA.items():
        if where == kind and method.startswith(beginning):
            found |= own
    if given.get("head", "linear") != "linear":
        found.pop("head_init", None)  # no other head can begin as a projection
    return found


def train_layers(given: dict[str, Any]) -> dict[str, Any]:
    """What lies between the defaults and what a user of the command line gave: the preset's settings."""
    settings = preset_settings(given.get("preset", TrainOptions.preset), given["data"], given)
    if idle := idle_options(given["data"], settings, given):
        raise InputError(next(iter(idle.values())))
    return settings


def idle_options(data: str, settings: dict[str, Any], given: dict[str, Any]) -> dict[str, str]:
    """What was given but would do nothing beside the other options, and why; not what says what holds anyway (a run's own config.yaml)."""
    usual = {**asdict(TrainOptions(data)), **settings}
    counts = {**usual, **given}
    found: dict[str, str] = {}
    for other, value, names in IDLE:
        negated = isinstance(value, str) and value.startswith("not ")
        idle = counts[other] != value[4:] if negated else counts[other] == value
        for name in names:
            if idle and given.get(name, usual[name]) != usual[name]:
                found.setdefault(name, f"{name}={given[name]} does nothing with {other}={counts[other]}; leave it out or change {other}")
    return found


def configuration(options: TrainOptions | CompareOptions) -> dict[str, Any]:
    """What a YAML file for --config would hold; of a comparison its own options and what holds for every row."""
    named = asdict(options)
    if isinstance(options, TrainOptions):
        return named
    return {name: value for name, value in named.items() if name not in SETTINGS and name != "given"} | {
        name: named[name] for name in options.given
    }


def compare_layers(given: dict[str, Any]) -> dict[str, Any]:
    """A comparison has a preset for each row; what the user gave holds for all of them."""
    if given.get("rows") and given.get("presets", CompareOptions.presets) != CompareOptions.presets:
        raise InputError(f"rows={given['rows']} and presets={given['presets']} are two ways to say what is compared; give one")
    return {"given": tuple(name for name in given if name in SETTINGS)}


def data_kind(data: str) -> str:
    """`cub200:/data/CUB` → `cub200`; the path of an embeddings file → `embeddings`."""
    kind, colon, _ = data.partition(":")
    return "embeddings" if not colon and kind != "glyphs" else kind
