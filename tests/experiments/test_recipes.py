"""Every row of every table, trained for a few steps: each is the system that it says it is, and differs from its neighbours."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest

from obdsd.experiments.recipes import BENCHMARKS, TABLES
from obdsd.experiments.reproduction import SCALES, Reproduction, find, options_of, records, reproduce, with_seed
from obdsd.presets import preset
from obdsd.training import train

MS, PAIRS, WALK = (
    "MultiSimilarityLoss with MultiSimilarityMiner",
    "PairwiseTargets(scale=1.0)",
    "BatchDiffusion(omega={}, form='symmetric', walk_temperature=1.0)",
)
OBD, EPOCH, BORN, FOUR = WALK.format(0.3), "PreviousEpochTeacher", "FrozenTeacher", "heads of 512, 1024, 1536, 2048"
MARGIN = "MarginLoss with "
ALONE = (None, None)

# What each row must be: base loss, teacher, targets; written by hand from the paper.
EXPECTED = {
    "strong-baselines": {
        "margin": (MARGIN + "distance", *ALONE),
        "margin+obd-sd": (MARGIN + "distance", EPOCH, OBD),
        "r-margin": (MARGIN + "regularised", *ALONE),
        "r-margin+obd-sd": (MARGIN + "regularised", EPOCH, OBD),
        "ms": (MS, *ALONE),
        "ms+obd-sd": (MS, EPOCH, OBD),
    },
    "sota": {name + d: (MS, EPOCH, OBD) for name in ("r50-128", "ibn-512", "r50-512") for d in ("", "+d")},
    "elements": {
        "ms": (MS, *ALONE),
        "psd-constant": (MS, EPOCH, PAIRS),
        "psd": (MS, EPOCH, PAIRS),
        "obd-sd": (MS, EPOCH, OBD),
        "obd-sd-softmax": (MS, EPOCH, "BatchDiffusion(omega=0.3, form='softmax', walk_temperature=1.0)"),
        "mean-mix": (MS, EPOCH, "MeanMix(omega=0.3)"),
        "uniform-mix": (MS, EPOCH, "UniformMix(omega=0.3)"),
        "flat": (MS, EPOCH, "PairwiseTargets(scale=0.7)"),
        "ema": (MS, "EMATeacher", PAIRS),
        "memory": (MS, "MemoryTeacher", PAIRS),
    },
    "sampling": {
        f"margin-{drawn}{more}": (MARGIN + drawn, *((EPOCH, OBD) if more else ALONE))
        for drawn in ("random", "semihard", "softhard", "distance")
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
        "s2sd-dsd": (MS, "heads of 2048", PAIRS),
        "s2sd-dsd+obdp": (MS, "heads of 2048", OBD),
        "s2sd-msd": (MS, FOUR, PAIRS),
        "s2sd-msd+obdp": (MS, FOUR, OBD),
        "s2sd-msdf": (MS, f"{FOUR}, features at 50", PAIRS),
        "s2sd-msdf+obdp": (MS, f"{FOUR}, features at 50", OBD),
    },
    "manifolds": {"ms": (MS, *ALONE), "global": (MS, EPOCH, "GlobalDiffusion(omega=0.3, neighbours=5)"), "batch": (MS, EPOCH, OBD)},
    "space": {"ms": (MS, *ALONE), "psd": (MS, EPOCH, PAIRS), "obd-sd": (MS, EPOCH, OBD)},
    "noise": {f"{name}-{share}": (MS, *how) for share in (0.1, 0.2, 0.3, 0.4) for name, how in (("ms", ALONE), ("obd-sd", (EPOCH, OBD)))},
    "omega": {"psd": (MS, EPOCH, PAIRS), **{f"omega-{w}": (MS, EPOCH, WALK.format(w)) for w in (0.1, 0.3, 0.5, 0.7, 0.9, 0.99)}},
    "lambda": {"ms": (MS, *ALONE), **{f"lambda-{w}": (MS, EPOCH, OBD) for w in (100, 500, 1000, 2000, 5000)}},
    "proxies": {
        loss + method: (kind, *how)
        for loss, kind in (("proxy-anchor", "ProxyAnchorLoss"), ("proxy-nca", "ProxyNCALoss"), ("soft-triple", "SoftTripleLoss"))
        for method, how in (
            ("", ALONE),
            ("+psd", (EPOCH, PAIRS)),
            ("+obd-sd", (EPOCH, OBD)),
            ("+proxy-diffusion", (EPOCH, "ProxyDiffusion(omega=0.3)")),
        )
    },
    "self-supervised": {
        "nt-xent": ("NTXentLoss", *ALONE),
        "nt-xent+psd": ("NTXentLoss", EPOCH, PAIRS),
        "nt-xent+obd-sd": ("NTXentLoss", EPOCH, OBD),
    },
}
CONSTANT = ("psd-constant", "bar", "s2sd")  # rows whose weight does not grow with the epochs


def check_system(table, name, run):
    """The run is what the row says: its parts as they were built, and the losses that they gave."""
    loss, teacher, targets = EXPECTED[table][name]
    system = run["system"]
    assert (system["loss"], system["teacher"], system["targets"]) == (loss, teacher, targets)
    first, last = (epoch["distillation"] for epoch in run["losses"])
    if teacher is None:
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


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """The runs of every table, by table and row."""
    out, found = tmp_path_factory.mktemp("tiny"), {}
    for name in TABLES:
        asked = Reproduction(table=name, scale="tiny", data="glyphs", seeds=1, out=out)
        reproduce(asked, show=False)
        done = records(out)
        found[name] = {row.name: with_losses(find(done, with_seed(options_of(row, "tiny", "glyphs"), 0)), out) for row in asked.rows}
    return found


def with_losses(record, out):
    return {**record, "losses": losses_of(out / record["run"])}


def losses_of(folder):
    return [json.loads(line)["loss"] for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]


def test_no_row_is_missing():
    assert {name: {row.name for row in table.rows("cub200")} for name, table in TABLES.items()} == {k: {*v} for k, v in EXPECTED.items()}


@pytest.mark.parametrize("table", TABLES)
def test_each_row_is_its_system_and_differs_from_its_neighbours(tiny, table):
    for name, run in tiny[table].items():
        check_system(table, name, run)
    for one, other in itertools.pairwise(tiny[table].values()):
        check_neighbours(one, other)


def settings_of_neighbour(row, neighbour):
    """The row's options, taught by the neighbour's teacher or with its targets: a slip that must not go unnoticed."""
    own, other = (options_of(each, "tiny", "glyphs") for each in (row, neighbour))
    for fields in (("teacher", "ramp", "heads", "feature_weight"), ("targets", "form", "scale", "omega")):
        swapped = replace(own, **{field: getattr(other, field) for field in fields})
        if swapped != own:
            yield swapped


MUTATED = [
    ("elements", "obd-sd", "psd"),
    ("self-distillation", "psd", "bar"),
    ("s2sd", "s2sd-dsd", "s2sd-dsd+obdp"),
    ("manifolds", "batch", "global"),
]


@pytest.mark.parametrize(("table", "name", "neighbour"), MUTATED)
def test_a_row_with_its_neighbours_teacher_or_targets_is_caught(tmp_path, table, name, neighbour):
    rows = {row.name: row for row in TABLES[table].rows("cub200")}
    mutants = list(settings_of_neighbour(rows[name], rows[neighbour]))
    assert mutants
    for number, options in enumerate(mutants):
        result = train(replace(options, out=str(tmp_path / str(number))), show=False)
        run = {"options": vars(options), **result.record, "losses": losses_of(result.folder)}
        with pytest.raises(AssertionError):
            check_system(table, name, run)


def test_the_paper_scale_is_the_papers_settings():
    """Hand-written from the paper's Sec. 5.1 and method of its Table 2."""
    cub, cars, sop = (f"{name}:somewhere" for name in BENCHMARKS)
    rows = {table: {name: {row.name: row for row in TABLES[table].rows(name)} for name in BENCHMARKS} for table in TABLES}
    assert preset("ms+obd-sd", cub) == options_of(rows["elements"]["cub200"]["obd-sd"], "paper", cub)
    ours = [options_of(rows["strong-baselines"][name]["ms+obd-sd"], "paper", f"{name}:somewhere") for name in BENCHMARKS]
    assert [(o.weight, o.omega, o.epochs, o.lr, o.batch_size, o.dim or 128) for o in ours] == [
        (1000.0, 0.3, 150, 1e-5, 112, 128),
        (75.0, 0.99, 150, 1e-5, 112, 128),
        (100.0, 0.5, 100, 1e-5, 112, 128),
    ]
    bar = [options_of(rows["obdp"][name]["bar+obdp"], "paper", f"{name}:somewhere") for name in BENCHMARKS[:2]]
    assert [(o.weight, o.omega, o.ramp) for o in bar] == [(100.0, 0.3, "constant"), (50.0, 0.99, "constant")]
    s2sd = [options_of(rows["s2sd"][name]["s2sd-msdf"], "paper", f"{name}:somewhere") for name in BENCHMARKS]
    assert [(o.weight, o.heads_pooling, o.feature_weight) for o in s2sd] == [
        (50.0, "avg+max", 50.0),
        (50.0, "avg+max", 50.0),
        (50.0, "avg", 5.0),
    ]
    last = options_of(rows["sota"]["cars196"]["ibn-512+d"], "paper", cars)
    assert (last.backbone, last.dim, last.pooling, last.epochs, last.steps, last.lr_gamma) == (
        "bn-inception",
        512,
        "avg+max",
        300,
        (200, 250),
        0.3,
    )
    last = options_of(rows["sota"]["sop"]["r50-512"], "paper", sop)
    assert (last.backbone, last.dim, last.weight, last.epochs, last.steps, last.lr_gamma) == (
        "resnet50.tv_in1k",
        512,
        200.0,
        200,
        (70, 100),
        0.2,
    )
    assert [options_of(rows["elements"][name]["flat"], "paper", f"{name}:somewhere").scale for name in BENCHMARKS] == [0.7, 0.01, 0.5]


def test_scales_change_no_system():
    """What a scale sets is not what rows differ in."""
    decides = {
        "loss",
        "sampling",
        "teacher",
        "targets",
        "form",
        "omega",
        "scale",
        "ramp",
        "heads",
        "feature_weight",
        "label_noise",
        "supervision",
    }
    assert all(not decides & settings.keys() for settings in SCALES.values())
