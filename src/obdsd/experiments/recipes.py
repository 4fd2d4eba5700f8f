"""The tables of the paper as recipes: a table is a function that returns its rows, a row is a preset with what it changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from obdsd.catalogue import DATA

BENCHMARKS = ("cub200", "cars196", "sop")
WEIGHTS = {"cub200": (100, 500, 1000, 2000, 5000), "cars196": (10, 50, 75, 100, 200), "sop": (10, 50, 100, 200, 500)}
RESNET50 = "resnet50.tv_in1k"  # torchvision's weights, as the paper's
ARCHITECTURES = {"r50-128": (RESNET50, 128), "ibn-512": ("bn-inception", 512), "r50-512": (RESNET50, 512)}
LONGER: dict[str, dict[str, Any]] = {  # Table 2's training
    "cub200": {},
    "cars196": {"weight": 200.0, "epochs": 300, "schedule": "steps", "lr_steps": (200, 250), "lr_gamma": 0.3},
    "sop": {"weight": 200.0, "epochs": 200, "schedule": "steps", "lr_steps": (70, 100), "lr_gamma": 0.2},
}


@dataclass(frozen=True)
class Row:
    """A system of a table: how to train it, and which row of the table it is compared with (None: others are compared with it)."""

    name: str
    preset: str
    against: str | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    searched: bool = False  # the paper chose its weight by a search of its own
    similarities: bool = False  # it learns from a file of similarities between the classes, which must be given


@dataclass(frozen=True)
class Table:
    """A table of the paper, or one that it asks for: its rows on a benchmark, and what they are judged by."""

    title: str
    rows: Callable[[str], list[Row]]
    benchmarks: tuple[str, ...] = BENCHMARKS
    metrics: tuple[str, ...] = ("recall@1", "nmi")
    needs_images: bool = False
    printed: bool = True  # whether the paper gives numbers


def on_ms(*methods: str) -> list[Row]:
    """Multi-Similarity, and beside it with each method."""
    return [Row("ms", "ms"), *(Row(method, f"ms+{method}", "ms") for method in methods)]


def on_loss(loss: str, *methods: str) -> list[Row]:
    """A loss, and beside it with each method; the rows name both."""
    return [Row(loss, loss), *(Row(f"{loss}+{method}", f"{loss}+{method}", loss) for method in methods)]


def with_obdp(*systems: str) -> list[Row]:
    """Each system on Multi-Similarity, and beside it with OBDP."""
    return [Row(name + more, f"ms+{name}{more}", name if more else None) for name in systems for more in ("", "+obdp")]


def strong_baselines(benchmark: str) -> list[Row]:
    return [row for loss in ("margin", "r-margin", "ms") for row in on_loss(loss, "obd-sd")]


def state_of_the_art(benchmark: str) -> list[Row]:
    rows: list[Row] = []
    for name, (backbone, dim) in ARCHITECTURES.items():
        for suffix, pooling in (("", "avg"), ("+d", "avg+max")):
            changes = {**LONGER[benchmark], "backbone": backbone, "dim": dim, "pooling": pooling}
            rows.append(Row(name + suffix, "ms+obd-sd", "r50-128" if rows else None, changes))
    if benchmark in _PLG:
        changes = {**_PLG[benchmark], "backbone": RESNET50, "dim": 128}
        rows.append(Row("ms+plg", "ms+plg", "r50-128", changes, similarities=True))
    return [*rows, *(Row(name, preset, "r50-128", changes(benchmark)) for name, (preset, changes) in OTHERS.items())]


def _epshn(benchmark: str) -> dict[str, Any]:
    """Its published command, which is for CARS196, on ResNet50; classes of SOP are too small for its rounds of 16."""
    how: dict[str, Any] = {"backbone": RESNET50, "dim": 512, "batchnorm": "train", "batch_size": 128}
    how |= {"per_class": 4} if benchmark == "sop" else {"per_class": 16, "batches": "rounds"}
    how |= {"optimizer": "sgd", "momentum": 0.0, "weight_decay": 0.0, "lr": 0.03}
    return how | {"epochs": 100, "schedule": "steps", "lr_steps": (50, 75), "lr_gamma": 0.1}


def _proxy_gml(benchmark: str) -> dict[str, Any]:
    """Its published commands, which take 32 shuffled images; here they are 16 classes of 2."""
    how: dict[str, Any] = {"backbone": "bn-inception", "dim": 512, "batch_size": 32, "head_only_epochs": 1}
    how |= {"lr": 1e-4, "weight_decay": 1e-4}
    if benchmark == "sop":
        how |= {"loss": "proxy-gml(proxies=1, regulariser=0.0)", "objective_lr": 0.3, "batchnorm": "train"}
    return how | {"epochs": 50, "schedule": "steps", "lr_steps": (20, 40), "lr_gamma": 0.1}


def _divide_and_conquer(benchmark: str) -> dict[str, Any]:
    """The settings of its README, which are for SOP."""
    how: dict[str, Any] = {"backbone": RESNET50, "dim": 128, "batch_size": 80, "per_class": 4, "lr": 1e-5, "weight_decay": 1e-4}
    return how | {"epochs": 200, "system": "divide-and-conquer(clustered=features, whole_from=0.4)"}


def _drml(benchmark: str) -> dict[str, Any]:
    """The settings of its published configuration; how many epochs is not in what we know of it."""
    how: dict[str, Any] = {"backbone": "bn-inception", "dim": 512, "batch_size": 180, "head_only_epochs": 1, "optimizer": "adamw"}
    how |= {"lr": 5e-5, "head_lr": 1e-3, "weight_decay": 1e-4, "clip": 10.0}
    return how | {"epochs": 50, "schedule": "steps", "lr_steps": (10, 20, 30, 40), "lr_gamma": 0.5}


def _mic(benchmark: str) -> dict[str, Any]:
    """Its published settings; an epoch has the batches of clusters beside as many batches of classes as the images fill."""
    systems = {
        "cub200": "mic",
        "cars196": "mic(clusters=150, decorrelation=500.0)",
        "sop": "mic(clusters=50, share=0.5, decorrelation=250.0)",
    }
    epochs, steps = {"cub200": (100, (50,)), "cars196": (110, (60,)), "sop": (45, (20, 35))}[benchmark]
    how: dict[str, Any] = {"system": systems[benchmark], "backbone": RESNET50, "dim": 128, "per_class": 4}
    return how | {"epochs": epochs, "schedule": "steps", "lr_steps": steps, "lr_gamma": 0.3}


def _rankmi(benchmark: str) -> dict[str, Any]:
    """Its own settings are not known to us: those of the data, as all losses of the paper have them."""
    return {"backbone": RESNET50, "dim": 128}


def _dcml(benchmark: str) -> dict[str, Any]:
    """Its published settings for CUB-200-2011, the only ones known to us, on all."""
    how: dict[str, Any] = {"backbone": RESNET50, "dim": 512, "batch_size": 100, "epochs": 300}
    return how | {"schedule": "steps", "lr_steps": (55,), "lr_gamma": 0.2}


def _diva(benchmark: str) -> dict[str, Any]:
    """Its published settings; classes and images are drawn with replacement, which triplets inside a class need."""
    systems = {"cub200": "diva", "cars196": "diva(alpha=0.15, decorrelation=100.0)"}
    systems["sop"] = "diva(alpha=0.2, decorrelation=150.0, queue=7840)"
    epochs, step, gamma = {"cub200": (350, 55, 0.2), "cars196": (350, 70, 0.2), "sop": (150, 70, 0.3)}[benchmark]
    how: dict[str, Any] = {"system": systems[benchmark], "backbone": RESNET50, "dim": 512, "replacement": True}
    return how | {"epochs": epochs, "schedule": "steps", "lr_steps": (step,), "lr_gamma": gamma}


def _pads(benchmark: str) -> dict[str, Any]:
    """Its published settings; of SOP whole classes are held out."""
    how: dict[str, Any] = {"backbone": RESNET50, "dim": 128, "replacement": True, "objective_lr": 1e-3, "epochs": 300}
    how |= {"schedule": "steps", "lr_steps": (150,), "lr_gamma": 0.3}
    if benchmark == "cars196":
        how |= {"system": "pads(held_out=0.1, with_nmi=true)", "per_class": 4, "objective_lr": 5e-4, "lr_steps": (140,)}
    if benchmark == "sop":
        how |= {
            "system": "pads(held_out=0.1, of_classes=true, every=60, with_nmi=true)",
            "loss": "margin",
            "epochs": 120,
            "lr_steps": (80,),
        }
    return how


def _das(benchmark: str) -> dict[str, Any]:
    """Its published commands for ResNet50 with 512 numbers."""
    how: dict[str, Any] = {
        "backbone": RESNET50,
        "dim": 512,
        "pooling": "avg+max",
        "epochs": 300,
        "schedule": "steps",
        "lr_steps": (200, 250),
    }
    how |= {"batch_size": 180, "weight_decay": 8e-4} if benchmark == "cub200" else {}
    own = "low=0.5, high=2.0, moved=0.1, constant=false" if benchmark == "sop" else ""
    return how | {"lr_gamma": 0.3, "system": f"das(scaled=8{', ' * bool(own)}{own})"}


def _memvir(benchmark: str) -> dict[str, Any]:
    """Its published command for norm-softmax on CARS196, elsewhere too; of the many classes of SOP fewer sets, in a shorter training."""
    how: dict[str, Any] = {"backbone": "bn-inception", "dim": 512, "batch_size": 128, "lr": 1e-4, "weight_decay": 1e-4}
    return how | ({"system": "memvir(sets=4, gap=2)", "epochs": 200} if benchmark == "sop" else {"system": "memvir", "epochs": 2000})


def _memvir_nca(benchmark: str) -> dict[str, Any]:
    """The same for ProxyNCA of scale 12, which is the norm-softmax of scale 24."""
    how = _memvir(benchmark)
    own = how["system"] if benchmark == "sop" else "memvir(sets=20, gap=25)"
    return how | {"loss": "norm-softmax(scale=24)", "system": own}


def _rcl(benchmark: str) -> dict[str, Any]:
    """Its published student; the teacher is trained with Proxy-Anchor by the same settings."""
    how: dict[str, Any] = {"backbone": "bn-inception", "dim": 512, "pooling": "avg+max", "batchnorm": "train", "optimizer": "adamw"}
    how |= {"lr": 1e-4, "weight_decay": 1e-4, "schedule": "cosine", "epochs": 150 if benchmark == "sop" else 90}
    return how | {"batch_size": 180, "per_class": 4}


_PLG: dict[str, dict[str, Any]] = {  # published for these two alone
    "cub200": {"weight": 7.5, "batch_size": 90, "epochs": 200},
    "cars196": {"weight": 6.0, "batch_size": 108, "epochs": 250},
}
OTHERS: dict[str, tuple[str, Callable[[str], dict[str, Any]]]] = {
    "epshn": ("epshn", _epshn),
    "proxygml": ("proxy-gml", _proxy_gml),
    "div-and-conq": ("div-conq", _divide_and_conquer),
    "pa+drml": ("drml", _drml),
    "mic": ("mic", _mic),
    "dcml-mdw": ("dcml-mdw", _dcml),
    "diva": ("diva", _diva),
    "rankmi": ("rankmi", _rankmi),
    "pads": ("pads", _pads),
    "rcl": ("none+self-transfer", _rcl),
    "ms+das": ("ms+das", _das),
    "norm-softmax+memvir": ("norm-softmax+memvir", _memvir),
    "proxynca+memvir": ("norm-softmax+memvir", _memvir_nca),
    "pa+memvir": ("proxy-anchor+memvir", _memvir),
}
"""Systems of other papers: the row's name, its preset, and its paper's settings on a benchmark."""


def elements(benchmark: str) -> list[Row]:
    """Table 3, then what the paper leaves out: the published code's form, the three controls, other teachers."""
    omega = DATA.find(benchmark).training_defaults["omega"]  # type: ignore[attr-defined]
    plain, *ours = on_ms("psd", "obd-sd", "obd-sd-softmax", "mean-mix", "uniform-mix")
    others = {"flat": {"targets": f"pairwise(scale={1 - omega:.2g})"}, "ema": {"teacher": "ema"}, "memory": {"teacher": "memory"}}
    constant = Row("psd-constant", "ms+psd-constant", "ms", searched=True)
    return [plain, constant, *ours, *(Row(name, "ms+psd", "ms", changes) for name, changes in others.items())]


def sampling(benchmark: str) -> list[Row]:
    return [
        Row(f"margin-{drawn}{more}", f"margin{more}", f"margin-{drawn}" if more else None, {"loss": f"margin(sampling={drawn})"})
        for drawn in ("random", "semihard", "softhard", "distance")
        for more in ("", "+obd-sd")
    ]


def manifolds(benchmark: str) -> list[Row]:
    return [*on_ms("global"), Row("batch", "ms+obd-sd", "ms")]


def label_noise(benchmark: str) -> list[Row]:
    return [
        Row(f"{name}-{share}", preset, None if name == "ms" else f"ms-{share}", {"label_noise": share})
        for share in (0.1, 0.2, 0.3, 0.4)
        for name, preset in (("ms", "ms"), ("obd-sd", "ms+obd-sd"))
    ]


def walk_share(benchmark: str) -> list[Row]:
    shares = (0.1, 0.3, 0.5, 0.7, 0.9, 0.99)
    return [Row("psd", "ms+psd"), *(Row(f"omega-{omega}", "ms+obd-sd", "psd", {"omega": omega}) for omega in shares)]


def final_weight(benchmark: str) -> list[Row]:
    return [Row("ms", "ms"), *(Row(f"lambda-{w}", "ms+obd-sd", "ms", {"weight": float(w)}) for w in WEIGHTS[benchmark])]


def proxies(benchmark: str) -> list[Row]:
    """The paper's stated limit, and the future work that it names: the walk over samples and proxies."""
    return [row for loss in ("proxy-anchor", "proxy-nca", "soft-triple") for row in on_loss(loss, "psd", "obd-sd", "proxy-diffusion")]


TWO = ("cub200", "cars196")
TABLES: dict[str, Table] = {
    "strong-baselines": Table("OBD-SD on strong baselines (Table 1)", strong_baselines),
    "sota": Table(
        "Architectures and dimensions, and systems of other papers (Table 2)",
        state_of_the_art,
        metrics=("recall@1", "recall@2", "recall@10", "nmi"),
        needs_images=True,
    ),
    "elements": Table("Ablation of the elements (Table 3)", elements, TWO),
    "sampling": Table("Sampling strategies of the Margin loss (Table 4)", sampling, TWO),
    "self-distillation": Table(
        "Self-distillation methods, with training time (Table 5)", lambda _: on_ms("bar", "psd", "s2sd-msd", "obd-sd"), TWO
    ),
    "obdp": Table("OBDP on other self-distillation methods (Table 6)", lambda _: with_obdp("bar", "s2sd-msd"), TWO),
    "manifolds": Table("Batch against global manifold, with training time (Table 7)", manifolds, TWO),
    "space": Table(
        "Embedding-space metrics (Table 8)", lambda _: on_ms("psd", "obd-sd"), TWO, metrics=("density", "spectral-decay", "recall@1")
    ),
    "noise": Table("Wrong training labels (Table 9)", label_noise),
    "omega": Table("Probability of continuing the walk (supplement)", walk_share, metrics=("recall@1",)),
    "lambda": Table("Weight of the distillation (supplement)", final_weight, metrics=("recall@1",), printed=False),
    "s2sd": Table("The forms of S2SD, with and without OBDP", lambda _: with_obdp("s2sd-dsd", "s2sd-msd", "s2sd-msdf"), printed=False),
    "proxies": Table("Proxy losses and their manifold (the paper's limit and future work)", proxies, printed=False),
    "self-supervised": Table(
        "Without labels (the paper's future work)", lambda _: on_loss("nt-xent", "psd", "obd-sd"), needs_images=True, printed=False
    ),
}
