"""Every row of every table, trained for a few steps: each is the system that it says it is, and differs from its neighbours."""

import itertools

import numpy as np
import pytest

from obdsd.catalogue import DATA
from obdsd.data import Collection, Part, open_data
from obdsd.experiments import reproduction
from obdsd.experiments.recipes import TABLES
from obdsd.experiments.reproduction import SCALES, Reproduction, find, options_of, records, reproduce, with_seed
from obdsd.files import read_lines
from obdsd.objectives import System
from obdsd.objectives.no_loss import NoLoss
from obdsd.spec import Spec
from obdsd.training import Trainer
from tests.experiments.rows_by_hand import BUILT, CONSTANT, EXPECTED, UNTAUGHT


def parts_of(options):
    teacher = options["system"] if options["system"] != "standard" else options["teacher"]
    teacher = "classes" if teacher.startswith("classes(file=") else teacher
    return options["loss"], teacher, options["targets"] if teacher not in UNTAUGHT else None


def built(system):
    """What a system was built of: loss and miner, teacher or heads, targets."""
    heads = system.objective if type(system).__name__ == "S2SDSystem" else None
    objective = getattr(system.objective, "whole", system.objective) if heads is None else heads.base
    objective = getattr(objective, "losses", [objective])[0]  # of several slices
    if isinstance(objective, NoLoss):
        return "NoLoss", type(system.teacher).__name__, repr(system.distill.targets)
    miner = getattr(objective.miner, "sampling", type(objective.miner).__name__)
    loss = type(objective.loss).__name__ + ("" if objective.miner is None else f" with {miner}")
    if heads is None:
        teacher = type(system.teacher if type(system) is System else system).__name__
        return loss, teacher, repr(system.distill.targets) if system.teacher.teaches else None
    features = f", features at {heads.distill_features.weight:g}" if heads.distill_features.weight else ""
    return loss, f"heads of {', '.join(map(str, heads.widths))}{features}", repr(heads.distill.targets)


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
    out, found, made, begin = tmp_path_factory.mktemp("tiny"), {}, {}, Trainer.begin

    def watched(trainer, *rest):
        made[trainer.options.out] = built(trainer.system)
        begin(trainer, *rest)

    data, alike = few_letters(), str(out / "alike.npz")
    names, rows = data["train"].class_names, np.random.default_rng(0).standard_normal((48, 9))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    np.savez(alike, names=names, similarity=rows @ rows.T)

    def glyphs():
        return data

    glyphs.training_defaults = DATA.find("glyphs").training_defaults
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(DATA._homes, "glyphs", glyphs)
        patch.setitem(SCALES, "tiny", {**SCALES["tiny"], "epoch_batches": 1, "val_fraction": 0.5, "device": "cpu"})
        patch.setattr(Trainer, "begin", watched)
        patch.setattr(reproduction, "measure_times", lambda *_: None)  # test_reproduction.py
        for name in TABLES:
            asked = Reproduction(table=name, scale="tiny", data="glyphs", seeds=1, out=out, similarities=alike if name == "sota" else None)
            reproduce(asked, show=False)
            done = records(out)
            found[name] = {row: find(done, with_seed(options_of(asked.rows[row], "tiny", "glyphs"), 0)) for row in asked.rows}
    for run in (run for runs in found.values() for run in runs.values()):
        folder = out / run["run"]
        run["losses"] = [line["loss"] for line in read_lines(folder / "metrics.jsonl")]
        run["made"] = made[str(folder)]
    return found


def test_no_row_is_missing():
    assert {name: {row.name for row in table.rows("cub200")} for name, table in TABLES.items()} == {k: {*v} for k, v in EXPECTED.items()}


@pytest.mark.parametrize("table", TABLES)
def test_each_row_is_its_system_and_differs_from_its_neighbours(tiny, table):
    """By its parts, by what was built of them, and by what came out. A teacher who teaches is heard: at once, or where the weight grows
    from the second epoch on."""
    for name, run in tiny[table].items():
        expected = EXPECTED[table][name]
        assert parts_of(run["options"]) == expected
        assert run["made"] == tuple("NoLoss" if place == 0 and part == "none" else BUILT[part] for place, part in enumerate(expected))
        first, last = (epoch["distillation"] for epoch in run["losses"])
        assert (first > 0) == name.startswith(CONSTANT)
        assert (last > 0) == (expected[1] not in UNTAUGHT)
    for one, other in itertools.pairwise(tiny[table].values()):
        assert one["options"] != other["options"]
        assert one["losses"] != other["losses"]


IBN, R50 = {"backbone": "bn-inception", "dim": 512}, {"backbone": "resnet50.tv_in1k", "dim": 512}
EPSHN = {"batch_size": 128, "lr": 0.03, "optimizer": "sgd", "momentum": 0.0, "weight_decay": 0.0, "epochs": 100, "lr_steps": [50, 75]}
GML = {"batch_size": 32, "lr": 1e-4, "weight_decay": 1e-4, "epochs": 50, "lr_steps": [20, 40], "lr_gamma": 0.1, "head_only_epochs": 1}
DRML = {"batch_size": 180, "head": "relational", "optimizer": "adamw", "lr": 5e-5, "head_lr": 1e-3, "weight_decay": 1e-4, "clip": 10.0}
DIVIDED = {"batch_size": 80, "per_class": 4, "weight_decay": 1e-4, "epochs": 200, "dim": 128, "backbone": "resnet50.tv_in1k"}
ROTH = {"lr": 1e-5, "weight_decay": 4e-4, "batch_size": 112, "batchnorm": None, "schedule": "steps"}
MIC = {**R50, **ROTH, "dim": 128, "per_class": 4, "loss": "margin", "lr_gamma": 0.3}
DCML = {**R50, **ROTH, "loss": "margin", "slices": 4, "slice_weights": [], "lr_gamma": 0.2}
DIVA = {**R50, **ROTH, "loss": "margin", "slices": 4, "slice_weights": [0.5, 1.0, 1.0, 1.0], "per_class": 2, "replacement": True}
OF_CLASSES = "pads(held_out=0.1, of_classes=true, every=60, with_nmi=true)"
PADS = {**R50, "dim": 128, "replacement": True, "lr": 1e-5, "lr_gamma": 0.3, "loss": "margin(beta=0.6)"}
DAS = {**R50, "pooling": "avg+max", "loss": "multi-similarity", "epochs": 300, "lr_steps": [200, 250], "lr_gamma": 0.3}
MEMVIR, NCA = {**IBN, "pooling": "avg", "batch_size": 128, "lr": 1e-4, "weight_decay": 1e-4}, "memvir(sets=20, gap=25)"
RCL = {**IBN, "pooling": "avg+max", "batchnorm": "train", "optimizer": "adamw", "lr": 1e-4, "weight_decay": 1e-4, "batch_size": 180}
RCL |= {
    "per_class": 4,
    "schedule": "cosine",
    "loss": "none",
    "teacher": "self-transfer(proxy-anchor)",
    "matching": "rcl",
    "weight": 1.0,
}
PAPER = [  # from its Sec. 5.1 and the text of its Table 2
    ("strong-baselines", "ms+obd-sd", "cars196", {"weight": 75.0, "targets": "batch-diffusion(omega=0.99)", "epochs": 150}),
    ("obdp", "bar+obdp", "cars196", {"weight": 50.0, "targets": "batch-diffusion(omega=0.99)", "ramp": "constant"}),
    ("s2sd", "s2sd-msdf", "sop", {"weight": 50.0, "system": "s2sd(pooling=avg, feature_weight=5.0)", "teacher": "none"}),
    ("sota", "ibn-512+d", "cars196", {**IBN, "pooling": "avg+max", "epochs": 300, "lr_steps": [200, 250], "lr_gamma": 0.3}),
    ("sota", "r50-512", "sop", {**R50, "pooling": "avg", "weight": 200.0, "epochs": 200, "lr_steps": [70, 100], "lr_gamma": 0.2}),
    ("sota", "epshn", "cars196", {**R50, **EPSHN, "per_class": 16, "batches": "rounds", "loss": "epshn"}),
    ("sota", "epshn", "sop", {**R50, **EPSHN, "per_class": 4, "batches": "drawn"}),
    ("sota", "proxygml", "cub200", {**IBN, **GML, "loss": "proxy-gml", "objective_lr": None}),
    ("sota", "proxygml", "sop", {**IBN, **GML, "loss": "proxy-gml(proxies=1, regulariser=0.0)", "objective_lr": 0.3}),
    ("sota", "pa+drml", "cars196", {**IBN, **DRML, "head_only_epochs": 1, "loss": "proxy-anchor(alpha=64.0, margin=0.2)"}),
    ("sota", "div-and-conq", "sop", {**DIVIDED, "slices": 8, "system": "divide-and-conquer(clustered=features, whole_from=0.4)"}),
    ("sota", "mic", "cub200", {**MIC, "system": "mic", "epochs": 100, "lr_steps": [50]}),
    ("sota", "mic", "cars196", {**MIC, "system": "mic(clusters=150, decorrelation=500.0)", "epochs": 110, "lr_steps": [60]}),
    ("sota", "mic", "sop", {**MIC, "system": "mic(clusters=50, share=0.5, decorrelation=250.0)", "epochs": 45, "lr_steps": [20, 35]}),
    ("sota", "dcml-mdw", "cub200", {**DCML, "batch_size": 100, "head": "composed", "system": "dcml", "epochs": 300, "lr_steps": [55]}),
    ("sota", "diva", "cub200", {**DIVA, "system": "diva", "epochs": 350, "lr_steps": [55], "lr_gamma": 0.2}),
    ("sota", "diva", "cars196", {**DIVA, "system": "diva(alpha=0.15, decorrelation=100.0)", "epochs": 350, "lr_steps": [70]}),
    ("sota", "diva", "sop", {**DIVA, "system": "diva(alpha=0.2, decorrelation=150.0, queue=7840)", "epochs": 150, "lr_gamma": 0.3}),
    ("sota", "pads", "cub200", {**PADS, "system": "pads", "objective_lr": 1e-3, "per_class": 2, "epochs": 300, "lr_steps": [150]}),
    ("sota", "pads", "cars196", {**PADS, "system": "pads(held_out=0.1, with_nmi=true)", "objective_lr": 5e-4, "per_class": 4}),
    ("sota", "pads", "sop", {**PADS, "loss": "margin", "system": OF_CLASSES, "epochs": 120, "lr_steps": [80]}),
    ("sota", "rankmi", "cub200", {**R50, "dim": 128, "loss": "rankmi"}),
    ("sota", "rcl", "cub200", {**RCL, "epochs": 90}),
    ("sota", "rcl", "sop", {**RCL, "epochs": 150}),
    ("sota", "ms+das", "cub200", {**DAS, "batch_size": 180, "weight_decay": 8e-4, "system": "das(scaled=8)"}),
    ("sota", "ms+das", "sop", {**DAS, "weight_decay": 4e-4, "system": "das(scaled=8, low=0.5, high=2.0, moved=0.1, constant=false)"}),
    ("sota", "norm-softmax+memvir", "cars196", {**MEMVIR, "epochs": 2000, "loss": "norm-softmax", "system": "memvir"}),
    ("sota", "proxynca+memvir", "cars196", {**MEMVIR, "epochs": 2000, "loss": "norm-softmax(scale=24.0)", "system": NCA}),
    ("sota", "pa+memvir", "sop", {**MEMVIR, "epochs": 200, "loss": "proxy-anchor", "system": "memvir(sets=4, gap=2)"}),
    ("elements", "flat", "cub200", {"targets": "pairwise(scale=0.7)"}),
    ("elements", "flat", "cars196", {"targets": "pairwise(scale=0.01)"}),
    ("elements", "flat", "sop", {"targets": "pairwise(scale=0.5)"}),
]


@pytest.mark.parametrize(("table", "name", "benchmark", "expected"), PAPER)
def test_the_paper_scale_is_the_papers_settings(table, name, benchmark, expected):
    row = next(row for row in TABLES[table].rows(benchmark) if row.name == name)
    options = options_of(row, "paper", f"{benchmark}:somewhere").identity()
    common = {"lr": 1e-5, "batch_size": 112}  # unless the row is of another paper
    assert {option: options[option] for option in {**common, **expected}} == {**common, **expected}
    assert options["dim"] in (None, expected.get("dim"))  # 128 where nothing is said


@pytest.mark.parametrize(("benchmark", "numbers"), [("cub200", (7.5, 90, 200)), ("cars196", (6.0, 108, 250))])
def test_language_guidance_has_its_papers_settings_and_the_file_that_was_given(tmp_path, benchmark, numbers):
    asked = Reproduction(table="sota", scale="paper", data=f"{benchmark}:x", seeds=1, out=tmp_path, similarities=str(tmp_path / "q.csv"))
    options = asked.options_of(asked.rows["ms+plg"])
    assert (options.weight, options.batch_size, options.epochs) == numbers
    assert str(options.teacher) == str(Spec("classes", {"file": str(tmp_path / "q.csv")}))
    assert (str(options.matching), options.ramp, options.dim) == ("plg", "constant", 128)
    without = Reproduction(table="sota", scale="paper", data=f"{benchmark}:x", seeds=1, out=tmp_path)
    assert without.without == ["ms+plg"]
    assert "ms+plg" not in without.rows


def test_scales_change_no_system():
    """What a scale sets is not what rows differ in."""
    decides = {"loss", "teacher", "targets", "system", "ramp", "label_noise", "supervision"}
    assert all(not decides & settings.keys() for settings in SCALES.values())
