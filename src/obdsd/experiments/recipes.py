"""The tables of the paper as recipes: a table is a function that returns its rows, a row is a preset with what it changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from obdsd.catalogue import DATA

BENCHMARKS = ("cub200", "cars196", "sop")
WALK_SHARES = (0.1, 0.3, 0.5, 0.7, 0.9, 0.99)
NOISE = (0.1, 0.2, 0.3, 0.4)
WEIGHTS = {"cub200": (100, 500, 1000, 2000, 5000), "cars196": (10, 50, 75, 100, 200), "sop": (10, 50, 100, 200, 500)}
PROXY_LOSSES = ("proxy-anchor", "proxy-nca", "soft-triple")
SAMPLING = ("random", "semihard", "softhard", "distance")
RESNET50 = "resnet50.tv_in1k"  # torchvision's weights, as the paper's
ARCHITECTURES = {"r50-128": (RESNET50, 128), "ibn-512": ("bn-inception", 512), "r50-512": (RESNET50, 512)}
LONGER: dict[str, dict[str, Any]] = {  # Table 2's training
    "cub200": {},
    "cars196": {"weight": 200.0, "epochs": 300, "schedule": "steps", "lr_steps": (200, 250), "lr_gamma": 0.3},
    "sop": {"weight": 200.0, "epochs": 200, "schedule": "steps", "lr_steps": (70, 100), "lr_gamma": 0.2},
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A system of a table: how to train it, and which row of the table it is compared with (None: others are compared with it)."""

    name: str
    preset: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    against: str | None = None
    searched: bool = False  # the paper chose its weight by a search of its own


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of the paper, or one that it asks for: its rows on a benchmark, and what they are judged by."""

    title: str
    rows: Callable[[str], list[Row]]
    metrics: tuple[str, ...] = ("recall@1", "nmi")
    benchmarks: tuple[str, ...] = BENCHMARKS
    needs_images: bool = False
    printed: bool = True  # whether the paper gives numbers


def strong_baselines(benchmark: str) -> list[Row]:
    rows = []
    for loss in ("margin", "r-margin", "ms"):
        rows += [Row(name=loss, preset=loss), Row(name=f"{loss}+obd-sd", preset=f"{loss}+obd-sd", against=loss)]
    return rows


def state_of_the_art(benchmark: str) -> list[Row]:
    rows: list[Row] = []
    for name, (backbone, dim) in ARCHITECTURES.items():
        for suffix, pooling in (("", "avg"), ("+d", "avg+max")):
            changes = {**LONGER[benchmark], "backbone": backbone, "dim": dim, "pooling": pooling}
            rows.append(Row(name=name + suffix, preset="ms+obd-sd", changes=changes, against="r50-128" if rows else None))
    return rows


def elements(benchmark: str) -> list[Row]:
    """Table 3, then what the paper leaves out: the published code's form, the three controls, other teachers."""
    omega = DATA.find(benchmark).training_defaults["omega"]  # type: ignore[attr-defined]
    ours = [
        Row(name=name, preset=f"ms+{name}", against="ms", searched=name == "psd-constant")
        for name in ("psd-constant", "psd", "obd-sd", "obd-sd-softmax", "mean-mix", "uniform-mix")
    ]
    return [
        Row(name="ms", preset="ms"),
        *ours,
        Row(name="flat", preset="ms+psd", changes={"targets": f"pairwise(scale={1 - omega:.2g})"}, against="ms"),
        Row(name="ema", preset="ms+psd", changes={"teacher": "ema"}, against="ms"),
        Row(name="memory", preset="ms+psd", changes={"teacher": "memory"}, against="ms"),
    ]


def sampling(benchmark: str) -> list[Row]:
    rows = []
    for name in SAMPLING:
        drawn = {"loss": f"margin(sampling={name})"}
        rows.append(Row(name=f"margin-{name}", preset="margin", changes=drawn))
        rows.append(Row(name=f"margin-{name}+obd-sd", preset="margin+obd-sd", changes=drawn, against=f"margin-{name}"))
    return rows


def self_distillation(benchmark: str) -> list[Row]:
    systems = ("bar", "psd", "s2sd-msd", "obd-sd")
    return [Row(name="ms", preset="ms"), *(Row(name=name, preset=f"ms+{name}", against="ms") for name in systems)]


def diffusion_on_others(benchmark: str) -> list[Row]:
    return with_and_without("bar", "s2sd-msd")


def heads_of_s2sd(benchmark: str) -> list[Row]:
    """S2SD's own three forms: one head, several, several and the features."""
    return with_and_without("s2sd-dsd", "s2sd-msd", "s2sd-msdf")


def with_and_without(*names: str) -> list[Row]:
    """Each system beside itself with OBDP."""
    rows = []
    for name in names:
        rows += [Row(name=name, preset=f"ms+{name}"), Row(name=f"{name}+obdp", preset=f"ms+{name}+obdp", against=name)]
    return rows


def manifolds(benchmark: str) -> list[Row]:
    return [
        Row(name="ms", preset="ms"),
        Row(name="global", preset="ms+global", against="ms"),
        Row(name="batch", preset="ms+obd-sd", against="ms"),
    ]


def embedding_space(benchmark: str) -> list[Row]:
    return [Row(name="ms", preset="ms"), *(Row(name=name, preset=f"ms+{name}", against="ms") for name in ("psd", "obd-sd"))]


def label_noise(benchmark: str) -> list[Row]:
    rows = []
    for share in NOISE:
        wrong = {"label_noise": share}
        rows.append(Row(name=f"ms-{share}", preset="ms", changes=wrong))
        rows.append(Row(name=f"obd-sd-{share}", preset="ms+obd-sd", changes=wrong, against=f"ms-{share}"))
    return rows


def walk_share(benchmark: str) -> list[Row]:
    walks = [Row(name=f"omega-{omega}", preset="ms+obd-sd", changes={"omega": omega}, against="psd") for omega in WALK_SHARES]
    return [Row(name="psd", preset="ms+psd"), *walks]


def final_weight(benchmark: str) -> list[Row]:
    weights = [Row(name=f"lambda-{w}", preset="ms+obd-sd", changes={"weight": float(w)}, against="ms") for w in WEIGHTS[benchmark]]
    return [Row(name="ms", preset="ms"), *weights]


def proxies(benchmark: str) -> list[Row]:
    """The paper's stated limit, and the future work that it names: the walk over samples and proxies."""
    rows = []
    for loss in PROXY_LOSSES:
        taught = [Row(name=f"{loss}+{method}", preset=f"{loss}+{method}", against=loss) for method in ("psd", "obd-sd", "proxy-diffusion")]
        rows += [Row(name=loss, preset=loss), *taught]
    return rows


def self_supervised(benchmark: str) -> list[Row]:
    """The other future work: no labels, two views of each image."""
    taught = [Row(name=f"nt-xent+{method}", preset=f"nt-xent+{method}", against="nt-xent") for method in ("psd", "obd-sd")]
    return [Row(name="nt-xent", preset="nt-xent"), *taught]


TWO = ("cub200", "cars196")
TABLES: dict[str, Table] = {
    "strong-baselines": Table(title="OBD-SD on strong baselines (Table 1)", rows=strong_baselines),
    "sota": Table(
        title="Architectures and dimensions (Table 2)",
        rows=state_of_the_art,
        metrics=("recall@1", "recall@2", "recall@10", "nmi"),
        needs_images=True,
    ),
    "elements": Table(title="Ablation of the elements (Table 3)", rows=elements, benchmarks=TWO),
    "sampling": Table(title="Sampling strategies of the Margin loss (Table 4)", rows=sampling, benchmarks=TWO),
    "self-distillation": Table(title="Self-distillation methods, with training time (Table 5)", rows=self_distillation, benchmarks=TWO),
    "obdp": Table(title="OBDP on other self-distillation methods (Table 6)", rows=diffusion_on_others, benchmarks=TWO),
    "manifolds": Table(title="Batch against global manifold, with training time (Table 7)", rows=manifolds, benchmarks=TWO),
    "space": Table(
        title="Embedding-space metrics (Table 8)", rows=embedding_space, metrics=("density", "spectral-decay", "recall@1"), benchmarks=TWO
    ),
    "noise": Table(title="Wrong training labels (Table 9)", rows=label_noise),
    "omega": Table(title="Probability of continuing the walk (supplement)", rows=walk_share, metrics=("recall@1",)),
    "lambda": Table(title="Weight of the distillation (supplement)", rows=final_weight, metrics=("recall@1",), printed=False),
    "s2sd": Table(title="The forms of S2SD, with and without OBDP", rows=heads_of_s2sd, printed=False),
    "proxies": Table(title="Proxy losses and their manifold (the paper's limit and future work)", rows=proxies, printed=False),
    "self-supervised": Table(title="Without labels (the paper's future work)", rows=self_supervised, needs_images=True, printed=False),
}
