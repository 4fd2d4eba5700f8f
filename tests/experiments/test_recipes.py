"""Every row of every table, trained for a few steps: each is the system that it says it is, and differs from its neighbours."""

import itertools
import json
from pathlib import Path

import pytest

from obdsd.catalogue import DATA
from obdsd.data import Collection, Part, open_data
from obdsd.experiments import reproduction
from obdsd.experiments.recipes import BENCHMARKS, TABLES
from obdsd.experiments.reproduction import SCALES, Reproduction, find, options_of, records, reproduce, with_seed
from obdsd.presets import preset
from obdsd.training import Trainer

MS, PAIRS, OBD = "multi-similarity", "pairwise", "batch-diffusion(omega=0.3)"
EPOCH, BORN, FOUR, ONE = "previous-epoch", "born-again", "s2sd(feature_from=2)", "s2sd(widths=[2048], feature_from=2)"
FEATURES = "s2sd(feature_weight=50.0, feature_from=2)"
ALONE = ("none", None)

# What each row must be: base loss; teacher, or the system whose heads teach; targets. Written by hand from the paper.
EXPECTED = {
    "strong-baselines": {
        "margin": ("margin", *ALONE),
        "margin+obd-sd": ("margin", EPOCH, OBD),
        "r-margin": ("r-margin", *ALONE),
        "r-margin+obd-sd": ("r-margin", EPOCH, OBD),
        "ms": (MS, *ALONE),
        "ms+obd-sd": (MS, EPOCH, OBD),
    },
    "sota": {name + d: (MS, EPOCH, OBD) for name in ("r50-128", "ibn-512", "r50-512") for d in ("", "+d")},
    "elements": {
        "ms": (MS, *ALONE),
        "psd-constant": (MS, EPOCH, PAIRS),
        "psd": (MS, EPOCH, PAIRS),
        "obd-sd": (MS, EPOCH, OBD),
        "obd-sd-softmax": (MS, EPOCH, "batch-diffusion(omega=0.3, form=softmax)"),
        "mean-mix": (MS, EPOCH, "mean-mix(omega=0.3)"),
        "uniform-mix": (MS, EPOCH, "uniform-mix(omega=0.3)"),
        "flat": (MS, EPOCH, "pairwise(scale=0.7)"),
        "ema": (MS, "ema", PAIRS),
        "memory": (MS, "memory", PAIRS),
    },
    "sampling": {
        f"margin-{drawn}{more}": (loss, *((EPOCH, OBD) if more else ALONE))
        for drawn, loss in (
            ("random", "margin(sampling=random)"),
            ("semihard", "margin(sampling=semihard)"),
            ("softhard", "margin(sampling=softhard)"),
            ("distance", "margin"),
        )
        for more in ("", "+obd-sd")
    },
    "self-distillation": {
        "ms": (MS, *ALONE),
        "bar": (MS, BORN, PAIRS),
        "psd": (MS, EPOCH, PAIRS),
        "s2sd-msd": (MS, FOUR, PAIRS),
        "obd-sd": (MS, EPOCH, OBD),
    },
    "obdp": {
        "bar": (MS, BORN, PAIRS),
        "bar+obdp": (MS, BORN, OBD),
        "s2sd-msd": (MS, FOUR, PAIRS),
        "s2sd-msd+obdp": (MS, FOUR, OBD),
    },
    "s2sd": {
        "s2sd-dsd": (MS, ONE, PAIRS),
        "s2sd-dsd+obdp": (MS, ONE, OBD),
        "s2sd-msd": (MS, FOUR, PAIRS),
        "s2sd-msd+obdp": (MS, FOUR, OBD),
        "s2sd-msdf": (MS, FEATURES, PAIRS),
        "s2sd-msdf+obdp": (MS, FEATURES, OBD),
    },
    "manifolds": {"ms": (MS, *ALONE), "global": (MS, EPOCH, "global-diffusion(omega=0.3, neighbours=5)"), "batch": (MS, EPOCH, OBD)},
    "space": {"ms": (MS, *ALONE), "psd": (MS, EPOCH, PAIRS), "obd-sd": (MS, EPOCH, OBD)},
    "noise": {f"{name}-{share}": (MS, *how) for share in (0.1, 0.2, 0.3, 0.4) for name, how in (("ms", ALONE), ("obd-sd", (EPOCH, OBD)))},
    "omega": {
        "psd": (MS, EPOCH, PAIRS),
        **{f"omega-{w}": (MS, EPOCH, f"batch-diffusion(omega={w})") for w in (0.1, 0.3, 0.5, 0.7, 0.9, 0.99)},
    },
    "lambda": {"ms": (MS, *ALONE), **{f"lambda-{w}": (MS, EPOCH, OBD) for w in (100, 500, 1000, 2000, 5000)}},
    "proxies": {
        loss + method: (loss, *how)
        for loss in ("proxy-anchor", "proxy-nca", "soft-triple")
        for method, how in (
            ("", ALONE),
            ("+psd", (EPOCH, PAIRS)),
            ("+obd-sd", (EPOCH, OBD)),
            ("+proxy-diffusion", (EPOCH, "proxy-diffusion(omega=0.3)")),
        )
    },
    "self-supervised": {
        "nt-xent": ("nt-xent", *ALONE),
        "nt-xent+psd": ("nt-xent", EPOCH, PAIRS),
        "nt-xent+obd-sd": ("nt-xent", EPOCH, OBD),
    },
}
CONSTANT = ("psd-constant", "bar", "s2sd")  # rows whose weight does not grow with the epochs


CLASSES = {  # what the parts are made of
    "multi-similarity": "_MultiSimilarity",
    "margin": "MarginLoss",
    "r-margin": "MarginLoss",
    "proxy-anchor": "ProxyAnchorLoss",
    "proxy-nca": "ProxyNCALoss",
    "soft-triple": "SoftTripleLoss",
    "nt-xent": "NTXentLoss",
    "none": "NoTeacher",
    "previous-epoch": "PreviousEpochTeacher",
    "born-again": "BornAgainTeacher",
    "ema": "EMATeacher",
    "memory": "MemoryTeacher",
    "s2sd": "S2SDSystem",
    "pairwise": "PairwiseTargets",
    "batch-diffusion": "BatchDiffusion",
    "global-diffusion": "GlobalDiffusion",
    "proxy-diffusion": "ProxyDiffusion",
    "mean-mix": "MeanMix",
    "uniform-mix": "UniformMix",
}


def parts_of(options):
    teacher = options["system"] if options["system"] != "standard" else options["teacher"]
    return options["loss"], teacher, options["targets"] if teacher != "none" else None


def built(system):
    """The classes of loss, teacher or system, and targets."""
    teacher = system if type(system).__name__ != "System" else system.teacher
    objective = getattr(system.objective, "base", system.objective)  # of S2SD: the embedding's own
    targets = None if type(teacher).__name__ == "NoTeacher" else type(system.distill.targets).__name__
    return type(objective.loss).__name__, type(teacher).__name__, targets


def check_parts(table, name, options, classes):
    """The run is what the row says: its parts, and what was built of them."""
    expected = EXPECTED[table][name]
    assert parts_of(options) == expected
    assert classes == tuple(part and CLASSES[part.partition("(")[0]] for part in expected)


def check_losses(table, name, losses):
    """A teacher who teaches is heard: at once, or from the second epoch on where the weight grows."""
    first, last = (epoch["distillation"] for epoch in losses)
    if EXPECTED[table][name][1] == "none":
        assert (first, last) == (0, 0)
    elif name.startswith(CONSTANT):
        assert first > 0
        assert last > 0
    else:
        assert first == 0 < last


def check_neighbours(one, other):
    """Two rows that stand beside each other are different trainings, by what they are and by what came out."""
    assert one["options"] != other["options"]
    assert one["losses"] != other["losses"]


def few_letters():
    """Four images of each of 48 letters."""

    def cut(part, classes):
        keep = [i for label in range(classes) for i in (part.labels == label).nonzero()[0][:4]]
        return Part(part.items, part.positions[keep], part.labels[keep], part.class_names[:classes])

    whole = open_data("glyphs")
    return Collection("glyphs", {"train": cut(whole["train"], 48), "test": cut(whole["test"], 2)})


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """The runs of every table, by table and row: one step an epoch."""
    out, found, classes, begin = tmp_path_factory.mktemp("tiny"), {}, {}, Trainer.begin

    def watched(trainer, *rest):
        classes[trainer.options.out] = built(trainer.system)
        begin(trainer, *rest)

    data = few_letters()

    def glyphs():
        return data

    glyphs.training_defaults = DATA.find("glyphs").training_defaults
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(DATA._homes, "glyphs", glyphs)
        patch.setitem(SCALES, "tiny", {**SCALES["tiny"], "epoch_batches": 1, "val_fraction": 0.5, "device": "cpu"})
        patch.setattr(Trainer, "begin", watched)
        patch.setattr(reproduction, "measure_times", lambda *_: None)  # test_reproduction.py
        for name in TABLES:
            asked = Reproduction(table=name, scale="tiny", data="glyphs", seeds=1, out=out)
            reproduce(asked, show=False)
            done = records(out)
            found[name] = {row.name: find(done, with_seed(options_of(row, "tiny", "glyphs"), 0)) for row in asked.rows}
    for runs in found.values():
        for name, run in runs.items():
            folder = out / run["run"]
            runs[name] = {**run, "losses": losses_of(folder), "classes": classes[str(folder)]}
    return found


def losses_of(folder):
    return [json.loads(line)["loss"] for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]


def test_no_row_is_missing():
    assert {name: {row.name for row in table.rows("cub200")} for name, table in TABLES.items()} == {k: {*v} for k, v in EXPECTED.items()}


@pytest.mark.parametrize("table", TABLES)
def test_each_row_is_its_system_and_differs_from_its_neighbours(tiny, table):
    for name, run in tiny[table].items():
        check_parts(table, name, run["options"], run["classes"])
        check_losses(table, name, run["losses"])
    for one, other in itertools.pairwise(tiny[table].values()):
        check_neighbours(one, other)


def settings_of_neighbour(own, other):
    """Parts of a row, taught by the neighbour's teacher or with its targets: a slip that must not go unnoticed."""
    for fields in (("teacher", "system"), ("targets",)):
        swapped = {**own, **{field: other[field] for field in fields}}
        if swapped != own:
            yield swapped


MUTATED = [
    ("elements", "obd-sd", "psd"),
    ("self-distillation", "psd", "bar"),
    ("s2sd", "s2sd-dsd", "s2sd-dsd+obdp"),
    ("manifolds", "batch", "global"),
]


@pytest.mark.parametrize(("table", "name", "neighbour"), MUTATED)
def test_a_row_with_its_neighbours_teacher_or_targets_is_caught(tiny, table, name, neighbour):
    run, other = tiny[table][name], tiny[table][neighbour]
    mutants = list(settings_of_neighbour(run["options"], other["options"]))
    assert mutants
    for options in mutants:
        with pytest.raises(AssertionError):
            check_parts(table, name, options, run["classes"])
    with pytest.raises(AssertionError):
        check_parts(table, name, run["options"], other["classes"])


def test_the_paper_scale_is_the_papers_settings():
    """Hand-written from the paper's Sec. 5.1 and method of its Table 2."""
    cub, cars, sop = (f"{name}:somewhere" for name in BENCHMARKS)
    rows = {table: {name: {row.name: row for row in TABLES[table].rows(name)} for name in BENCHMARKS} for table in TABLES}
    assert preset("ms+obd-sd", cub) == options_of(rows["elements"]["cub200"]["obd-sd"], "paper", cub)
    ours = [options_of(rows["strong-baselines"][name]["ms+obd-sd"], "paper", f"{name}:somewhere") for name in BENCHMARKS]
    assert [(o.weight, str(o.targets), o.epochs, o.lr, o.batch_size, o.dim or 128) for o in ours] == [
        (1000.0, "batch-diffusion(omega=0.3)", 150, 1e-5, 112, 128),
        (75.0, "batch-diffusion(omega=0.99)", 150, 1e-5, 112, 128),
        (100.0, "batch-diffusion(omega=0.5)", 100, 1e-5, 112, 128),
    ]
    bar = [options_of(rows["obdp"][name]["bar+obdp"], "paper", f"{name}:somewhere") for name in BENCHMARKS[:2]]
    assert [(o.weight, str(o.targets), o.ramp) for o in bar] == [
        (100.0, "batch-diffusion(omega=0.3)", "constant"),
        (50.0, "batch-diffusion(omega=0.99)", "constant"),
    ]
    s2sd = [options_of(rows["s2sd"][name]["s2sd-msdf"], "paper", f"{name}:somewhere") for name in BENCHMARKS]
    assert [(o.weight, str(o.system), str(o.teacher)) for o in s2sd] == [
        (50.0, "s2sd(feature_weight=50.0)", "none"),
        (50.0, "s2sd(feature_weight=50.0)", "none"),
        (50.0, "s2sd(pooling=avg, feature_weight=5.0)", "none"),
    ]
    last = options_of(rows["sota"]["cars196"]["ibn-512+d"], "paper", cars)
    assert (last.backbone, last.dim, last.pooling, last.epochs, last.lr_steps, last.lr_gamma) == (
        "bn-inception",
        512,
        "avg+max",
        300,
        (200, 250),
        0.3,
    )
    last = options_of(rows["sota"]["sop"]["r50-512"], "paper", sop)
    assert (last.backbone, last.dim, last.weight, last.epochs, last.lr_steps, last.lr_gamma) == (
        "resnet50.tv_in1k",
        512,
        200.0,
        200,
        (70, 100),
        0.2,
    )
    flat = [options_of(rows["elements"][name]["flat"], "paper", f"{name}:somewhere") for name in BENCHMARKS]
    assert [str(o.targets) for o in flat] == ["pairwise(scale=0.7)", "pairwise(scale=0.01)", "pairwise(scale=0.5)"]


def test_scales_change_no_system():
    """What a scale sets is not what rows differ in."""
    decides = {"loss", "teacher", "targets", "system", "ramp", "label_noise", "supervision"}
    assert all(not decides & settings.keys() for settings in SCALES.values())
