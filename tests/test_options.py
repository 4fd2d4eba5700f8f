"""The options of a training: limits, what does not go together, and the same values in Python, YAML and JSON."""

import dataclasses
import json
import re

import pytest
import yaml

from obdsd import InputError
from obdsd.catalogue import SYSTEMS
from obdsd.options import INFINITY, LARGEST, TrainOptions, as_dict, converted, why_idle
from obdsd.presets import preset
from obdsd.spec import Spec
from tests.refusing import refused

FIELDS = {each.name: each.metadata for each in dataclasses.fields(TrainOptions)}


def made(**changes):
    return TrainOptions(**converted(TrainOptions, {"data": "glyphs", **changes}))


def test_defaults_are_the_papers_for_cub():
    """Beside what tests/test_presets.py holds of all methods and benchmarks."""
    options = TrainOptions("cub200:x")
    expected = {"temperature": 1.0, "batch_size": None, "per_class": 2, "optimizer": "adam", "lr": 1e-5, "weight_decay": 4e-4}
    expected |= {"schedule": "constant", "backbone": "resnet50.tv_in1k", "head": "linear", "dim": None}
    assert {name: as_dict(options)[name] for name in expected} == expected


def test_options_survive_yaml_json_and_a_command_line():
    """Every preset does as a dict: tests/test_presets.py."""
    for name, data in (("ms", "rows.npz"), ("margin+s2sd-msdf+obdp", "sop:x"), ("ms+psd-balanced", "glyphs"), ("nt-xent+bar", "folder:x")):
        options = preset(name, data, seed=3, out="some where")
        plain = as_dict(options)
        for text in (yaml.safe_load(yaml.safe_dump(plain)), json.loads(json.dumps(plain))):
            assert TrainOptions.from_dict(text) == options
        words = {
            name: ",".join(map(str, value)) if isinstance(value, list) else str(value) for name, value in plain.items() if value is not None
        }
        assert TrainOptions.from_dict(words) == options


@pytest.mark.usefixtures("as_shipped")
def test_options_are_of_their_types_wherever_they_are_made():
    loose = {"epochs": "3", "lr": "1e-3", "ks": [8, 2], "flip": "no", "dim": "none", "lr_steps": "", "hidden": 8.0}
    options = TrainOptions("glyphs", loss=Spec("margin", {"beta": "0.6"}), teacher="ema(0.9)", **loose)
    assert (options.epochs, options.lr, options.ks, options.flip, options.dim, options.lr_steps) == (3, 1e-3, (1, 2, 8), False, None, ())
    assert str(options.loss) == "margin(beta=0.6)"
    assert options.hidden == 8
    assert options.replace(epochs="4").epochs == 4
    assert str(options.teacher) == "ema(decay=0.9)"
    with pytest.raises(InputError, match=r"optimizer=adan must be one of adam, adamw, sgd; did you mean adam\?"):
        TrainOptions("glyphs", optimizer="adan")
    with pytest.raises(InputError, match=r"loss=margn is not known; did you mean margin\?"):
        made().replace(loss="margn")
    with pytest.raises(InputError, match=r"^epoch=3 is no option here; did you mean epochs\?$"):
        made().replace(epoch=3)


BEYOND = [  # a number beyond each limit
    (name, number)
    for name, about in FIELDS.items()
    for number in (about["at_least"] - 1, about["above"], about["above"] - 1, about["below"], about["below"] + 1)
    if abs(number) < INFINITY
]


@pytest.mark.parametrize(("name", "number"), BEYOND)
def test_numbers_outside_their_limits_are_refused(name, number):
    with pytest.raises(InputError, match=rf"^{name}=\S+ must be .*\d"):
        made(**{name: (number,) if isinstance(getattr(TrainOptions, name), tuple) else number})


BAD_FOLDS = ("5/5", "0/1", "-1/3", "1", "a/b", "1/2/3")


ALONE = {"loss": "none", "teacher": "embeddings(x.npz)", "ramp": "constant"}
IMPOSSIBLE = [
    ({"epochs": 0}, "epochs=0 must be 1 or more"),
    ({"temperature": 0.0}, "temperature=0.0 must be a number above 0"),
    ({"label_noise": 1.0}, "label_noise=1.0 must be from 0 to less than 1"),
    ({"seed": LARGEST}, f"seed={LARGEST} must be from 0 to less than {LARGEST}"),
    ({"lr": float("nan")}, "lr=nan must be a number above 0"),
    ({"weight": float("inf")}, "weight=inf must be 0 or more"),
    ({"test_fraction": float("nan")}, "test_fraction=nan must be finite"),
    ({"ks": (1, 0)}, "ks=1,0 must be 1 or more"),
    ({"crop": 1.5}, "crop=1.5 must be 1 or less; 1 keeps the whole image"),
    ({"schedule": "steps"}, "lr_steps= and schedule=steps must go together"),
    ({"lr_steps": (3,)}, "lr_steps=3 and schedule=constant must go together"),
    ({"val_fraction": 0.2, "val_fold": "0/5"}, "val_fold=0/5 and val_fraction are two ways; give one"),
    ({"score": "validation", "test_every": 2}, "test_every=2 reads the test classes, score=validation does not; leave one of them out"),
    ({"select": "best", "evaluate_every": 0}, "evaluate_every=0 leaves nothing to choose from; try 1"),
    ({"patience": 1, "evaluate_every": 151}, "evaluate_every=151 leaves nothing to choose from; try 1"),
    ({"head": "none", "head_only_epochs": 1}, "head_only_epochs=1 needs a head; use head=linear"),
    ({"feature_power": 0.5}, "feature_power=0.5 is for features that are not trained; add --frozen"),
    ({"head": "two-layer", "head_init": "projection"}, "head_init=projection needs head=linear, not two-layer"),
    ({"supervision": "none", "label_noise": 0.1}, "label_noise=0.1 has no labels to spoil without supervision; leave it out"),
    ({"preset": "ms"}, 'preset=ms is not what these parts are (ms+previous-epoch); use obdsd.presets.preset("ms", data), which fills in'),
    ({"preset": "margin+bar", "loss": "margin"}, "preset=margin+bar is not what these parts are (margin+previous-epoch); use obdsd"),
    ({"ks": ()}, "ks= must hold a number; try 1,2,4,8"),
    ({"supervision": "none", "per_class": 1}, "per_class=1 leaves no two views for loss=multi-similarity to compare; try 2"),
    ({**ALONE, "teacher": "none"}, "loss=none learns from the teacher alone, and teacher=none knows nothing new; choose one that is"),
    ({**ALONE, "teacher": "ema"}, "loss=none learns from the teacher alone, and teacher=ema knows nothing new; choose one that is"),
    ({**ALONE, "teacher": "born-again"}, "loss=none learns from the teacher alone, and teacher=born-again knows nothing new"),
    ({**ALONE, "teacher": "none", "system": "s2sd"}, "loss=none learns from the teacher alone, and teacher=none knows nothing new"),
    ({**ALONE, "weight": 0}, "weight=0.0 leaves nothing to learn with loss=none; try 1"),
    ({**ALONE, "ramp": "linear"}, "ramp=linear teaches nothing in the first epoch, and loss=none neither; use ramp=constant"),
    *(({"val_fold": fold}, f"val_fold={fold} must be I/K with I from 0 to K-1, as 0/5") for fold in BAD_FOLDS),
]
test_what_cannot_be_is_refused_in_one_line = refused(IMPOSSIBLE, lambda changes: made(**changes))


def test_a_training_is_called_by_its_parts():
    """The loss, who teaches, and what and how where that is not the usual."""
    parts = {"loss": "margin(beta=0.6)", "teacher": "ema(decay=0.9)", "targets": "balanced(mean-mix(omega=0.3))", "system": "s2sd"}
    assert made(**parts).preset == "margin+ema+balanced-mean-mix+s2sd"
    assert made(teacher="none", targets="pairwise").preset == "ms"  # what nobody teaches has no name
    assert made(teacher="none", system="s2sd", targets="pairwise").preset == "ms+pairwise+s2sd"
    assert made(preset="ms+previous-epoch").preset == made().preset == "ms+previous-epoch"


def test_a_copy_has_the_name_of_a_preset_until_its_parts_change():
    options = preset("ms+obd-sd", "glyphs")
    assert options.replace(epochs=3, targets="batch-diffusion(omega=0.5)").preset == "ms+obd-sd"
    assert options.replace(loss="margin").preset == "margin+previous-epoch"
    assert options.replace(teacher="none", preset="plain").preset == "plain"


def test_folds_and_what_needs_held_out_classes():
    assert (made(val_fold="2/5").fold, made().fold) == ((2, 5), None)
    wanted = {"select": "best", "patience": 2, "score": "validation"}
    for name, value in wanted.items():
        assert made(**{name: value}).needs_held_out_classes == name
    assert made().needs_held_out_classes is None


def test_who_distils(monkeypatch):
    monkeypatch.setattr(SYSTEMS, "_homes", {**SYSTEMS._homes, "beside": SYSTEMS.find("standard")})
    assert made().distils
    assert made(teacher="none", system="s2sd").distils
    assert not made(teacher="none").distils
    assert not made(teacher="none", system="beside").distils  # a system that teaches nothing itself


def test_what_is_kept_and_what_tells_a_run_from_others():
    """A run's numbers are told by its identity: only where it runs and how it is watched may differ."""
    everything, options = {*FIELDS}, made()
    assert everything - {*options.kept()} == {"resume", "report", "profile"}
    machine = {"preset", "out", "device", "workers", "checkpoint_minutes", "checkpoint_steps", "keep_checkpoints", "logger"}
    machine |= {"cache", "eval_batch_size"}
    assert (
        everything - {*options.identity()} == {"resume", "report", "profile", "channels_last"} | machine
    )  # the device decides on the last
    assert made(channels_last=False).identity()["channels_last"] is False
    assert options.replace(device="cpu", out="x", resume=True).identity() == options.identity()
    assert options.replace(seed=1).identity() != options.identity()


def test_every_option_has_a_sentence_and_a_group():
    for name, about in FIELDS.items():
        assert re.fullmatch(r"[A-Za-z].*\.", about["sentence"]), name
        assert about["group"], name


IDLE = [  # what makes some options do nothing, and values of those options
    ({"teacher": "none"}, "teacher=none", {"targets": "pairwise", "weight": 3.0, "temperature": 3.0, "ramp": "constant"}),
    ({"teacher": "none"}, "teacher=none", {"matching": "rkd"}),
    ({"system": "soft-labels"}, "system=soft-labels", {"matching": "rkd"}),
    ({"matching": "rkd"}, "matching=rkd", {"targets": "pairwise", "temperature": 3.0}),
    ({"matching": "plg"}, "matching=plg", {"targets": "pairwise"}),
    ({"backbone": "features"}, "backbone=features", {"pretrained": "imagenet", "pooling": "avg+max", "batchnorm": "train", "size": 64}),
    ({"backbone": "features"}, "backbone=features", {"crop": 0.5, "flip": False, "channels_last": True, "teacher_precision": "32"}),
    ({"frozen": True}, "frozen=True", {"batchnorm": "train", "crop": 0.5, "flip": False, "channels_last": True}),
    ({"init": "run"}, "init=run", {"backbone": "tiny-conv", "pretrained": "none", "pooling": "avg+max", "size": 64, "head": "none"}),
    ({"backbone": "features"}, "backbone=features", {"cache": "kept", "cache_side": 256}),
    ({"frozen": True}, "frozen=True", {"cache": "kept", "cache_side": 256}),
    ({"init": "run"}, "init=run", {"hidden": 3, "head_init": "projection", "dim": 3, "slices": 3, "feature_power": 0.5}),
    ({"slices": 1}, "slices=1", {"slice_weights": (0.5, 1.0)}),
    ({"head": "two-layer"}, "head=two-layer", {"branches": 2}),
    ({"backbone": "features"}, "backbone=features", {"skip_unreadable": True}),
    ({"backbone": "tiny-conv"}, "backbone=tiny-conv", {"drop_nan": True}),
    ({"supervision": "none"}, "supervision=none", {"replacement": True, "batches": "rounds"}),
    ({"batches": "rounds"}, "batches=rounds", {"replacement": True}),
    ({"head": "none"}, "head=none", {"head_lr": 0.1}),
    ({"optimizer": "adam"}, "optimizer=adam", {"momentum": 0.5}),
    ({"schedule": "cosine"}, "schedule=cosine", {"lr_gamma": 0.5}),
    ({"keep": "weights"}, "keep=weights", {"average_decay": 0.5}),
]
ACTS_BESIDE = {"average_decay": {"keep": "average"}, "slice_weights": {"slices": 2}, "feature_power": {"backbone": "features"}}
ACTS_BESIDE |= {"branches": {"head": "relational"}}
ACTS_BESIDE |= {"momentum": {"optimizer": "sgd"}, "drop_nan": {"backbone": "features"}, "lr_gamma": {"schedule": "steps", "lr_steps": (2,)}}


def test_every_option_that_may_be_idle_is_listed_here():
    assert {name for *_, values in IDLE for name in values} == {name for name, about in FIELDS.items() if about["idle"] is not None}


@pytest.mark.parametrize(("beside", "why", "name", "value"), [(*case[:2], *item) for case in IDLE for item in case[2].items()])
def test_why_an_option_does_nothing(beside, why, name, value):
    assert why_idle(made(**{name: value}, **beside), name) == why
    assert why_idle(made(**{name: value}, **ACTS_BESIDE.get(name, {})), name) == ""
    assert why_idle(made(), "epochs") == ""
