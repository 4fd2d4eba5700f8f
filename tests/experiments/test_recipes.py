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
from tests.experiments.rows_by_hand import BUILT, CONSTANT, EXPECTED


def parts_of(options):
    teacher = options["system"] if options["system"] != "standard" else options["teacher"]
    return options["loss"], teacher, options["targets"] if teacher != "none" else None


def built(system):
    """What a system was built of: loss and miner, teacher or heads, targets."""
    heads = system.objective if type(system).__name__ == "S2SDSystem" else None
    objective = system.objective if heads is None else heads.base
    miner = getattr(objective.miner, "sampling", type(objective.miner).__name__)
    loss = type(objective.loss).__name__ + ("" if objective.miner is None else f" with {miner}")
    if heads is None:
        teacher = type(system.teacher).__name__
        return loss, teacher, None if teacher == "NoTeacher" else repr(system.distill.targets)
    features = f", features at {heads.distill_features.weight:g}" if heads.distill_features.weight else ""
    return loss, f"heads of {', '.join(map(str, heads.widths))}{features}", repr(heads.distill.targets)


def check_parts(table, name, options, made):
    """The run is what the row says: its parts, and what was built of them."""
    expected = EXPECTED[table][name]
    assert parts_of(options) == expected
    assert made == tuple(BUILT[part] for part in expected)


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
    out, found, made, begin = tmp_path_factory.mktemp("tiny"), {}, {}, Trainer.begin

    def watched(trainer, *rest):
        made[trainer.options.out] = built(trainer.system)
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
            found[name] = {row: find(done, with_seed(options_of(asked.rows[row], "tiny", "glyphs"), 0)) for row in asked.rows}
    for runs in found.values():
        for name, run in runs.items():
            folder = out / run["run"]
            runs[name] = {**run, "losses": losses_of(folder), "made": made[str(folder)]}
    return found


def losses_of(folder):
    return [json.loads(line)["loss"] for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]


def test_no_row_is_missing():
    assert {name: {row.name for row in table.rows("cub200")} for name, table in TABLES.items()} == {k: {*v} for k, v in EXPECTED.items()}


@pytest.mark.parametrize("table", TABLES)
def test_each_row_is_its_system_and_differs_from_its_neighbours(tiny, table):
    for name, run in tiny[table].items():
        check_parts(table, name, run["options"], run["made"])
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
            check_parts(table, name, options, run["made"])
    with pytest.raises(AssertionError):
        check_parts(table, name, run["options"], other["made"])


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
