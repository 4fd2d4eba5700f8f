"""Presets: the paper's numbers for each benchmark, ω as a short-cut, and options that would do nothing."""

import pytest

from obdsd import InputError
from obdsd.catalogue import DATA, TARGETS, register
from obdsd.data import training_defaults
from obdsd.options import PARTS, as_dict
from obdsd.presets import LOSSES, METHODS, NAMES, beyond_preset, preset, recommended, resolve, resolve_with_idle
from tests.refusing import refused

SOURCES = {kind: f"{kind}:x" for kind in DATA.names if kind not in ("glyphs", "embeddings")} | {"embeddings": "x.npz", "glyphs": "glyphs"}


ALL = [
    loss + (f"+{method}" if method else "")
    for loss in LOSSES
    for method in METHODS
    if not {"system"} <= LOSSES[loss].keys() & METHODS[method].keys()  # two systems are refused
]


GIVEN = {"plg": {"teacher": "classes(file=similarities.csv)"}}  # without which there is nobody who teaches
UNTAUGHT = ("", "das", "memvir")  # beside which nothing teaches


@pytest.mark.parametrize(
    ("data", "names"), [(data, ALL if kind == "embeddings" else NAMES) for kind, data in SOURCES.items()], ids=SOURCES.keys()
)
def test_every_preset_resolves_on_all_data(data, names):
    for name in names:
        given = GIVEN.get(name.partition("+")[2], {})
        options = preset(name, data, **given)
        loss, _, method = name.replace("recommended", "ms").partition("+")
        assert (options.preset, options.distils) == (name, method not in UNTAUGHT)
        assert str(options.loss) == (LOSSES[loss]["loss"] if loss in LOSSES else loss)
        TARGETS.build(options.targets)  # what the part itself would refuse
        if name in NAMES:
            assert resolve(as_dict(options)) == options  # as a run's own config.yaml is read


def test_listed_presets():
    assert NAMES[:9] == ["recommended", "ms", "margin", "r-margin", "proxy-anchor", "proxy-nca", "soft-triple", "nt-xent", "ms-tuned"]
    assert "supcon+soft-labels" in NAMES  # a softmax over the batch is needed
    assert len(NAMES) == len({*NAMES}) == len(LOSSES) + len(METHODS)
    assert "proxy-anchor+proxy-diffusion" in NAMES  # proxies are needed


# epochs, λ of PSD and OBD-SD, ω, τ_d of the softmax form, λ of BAR, weight and pooling of S2SD's features, Recall's depths
PAPER = {
    "cub200": (150, 1000.0, 0.3, 1.0, 100.0, 50.0, "avg+max", (1, 2, 4, 8)),
    "cars196": (150, 75.0, 0.99, 1.0, 50.0, 50.0, "avg+max", (1, 2, 4, 8)),
    "sop": (100, 100.0, 0.5, 0.005, 100.0, 5.0, "avg", (1, 10, 100)),
    "inshop": (100, 100.0, 0.5, 0.005, 100.0, 5.0, "avg", (1, 10, 20, 30)),
}


@pytest.mark.parametrize("kind", PAPER)
def test_the_papers_numbers(kind):
    epochs, weight, omega, walk_temperature, bar_weight, feature_weight, pooling, ks = PAPER[kind]

    def of(method):
        return preset(f"ms+{method}", f"{kind}:x", **GIVEN.get(method, {}))

    def parts(method):
        options = of(method)
        return str(options.teacher), str(options.targets), str(options.system), options.weight, options.ramp

    walk = f"batch-diffusion(omega={omega})"
    tau = f", walk_temperature={walk_temperature}" if walk_temperature != 1.0 else ""
    psd = {"psd": "pairwise", "psd-balanced": "balanced(pairwise)", "obd-sd": walk}
    psd |= {"obd-sd-softmax": f"batch-diffusion(omega={omega}, form=softmax{tau})", "global": f"global-diffusion(omega={omega})"}
    psd |= {"flat": {0.3: "pairwise(scale=0.7)", 0.99: "pairwise(scale=0.01)", 0.5: "pairwise(scale=0.5)"}[omega]}
    psd |= {method: f"{method}(omega={omega})" for method in ("mean-mix", "uniform-mix", "proxy-diffusion")}
    pooled = [] if pooling == "avg+max" else [f"pooling={pooling}"]
    heads = {"dsd": ["widths=[2048]", *pooled], "msd": pooled, "msdf": [*pooled, f"feature_weight={feature_weight}"]}
    memvir = "memvir(sets=4, gap=2)" if kind in ("sop", "inshop") else "memvir"
    das = "das(low=0.5, high=2.0, moved=0.1, constant=false)" if kind == "sop" else "das"
    expected = {
        **{method: ("previous-epoch", targets, "standard", weight, "linear") for method, targets in psd.items()},
        "psd-constant": ("previous-epoch", "pairwise", "standard", weight, "constant"),
        "anchor": ("features", "pairwise", "standard", 100.0, "constant"),
        "soft-labels": ("features", "pairwise", "soft-labels", 0.5, "constant"),
        "rcl": ("born-again", "pairwise", "standard", 1.0, "constant"),
        "smooth-labels": ("none", "batch-diffusion(omega=0.3)", "soft-labels", 0.5, "constant"),
        "self-transfer": ("self-transfer(proxy-anchor)", "batch-diffusion(omega=0.3)", "standard", 1.0, "constant"),
        "plg": ("classes(file=similarities.csv)", "batch-diffusion(omega=0.3)", "standard", 6.0 if kind == "cars196" else 7.5, "constant"),
        "memvir": ("none", "batch-diffusion(omega=0.3)", memvir, weight, "linear"),
        "das": ("none", "batch-diffusion(omega=0.3)", das, weight, "linear"),
    }
    for more, targets in (("", "pairwise"), ("+obdp", walk)):
        expected[f"bar{more}"] = ("born-again", targets, "standard", bar_weight, "constant")
        for name, settings in heads.items():
            system = f"s2sd({', '.join(settings)})" if settings else "s2sd"
            expected[f"s2sd-{name}{more}"] = ("none", targets, system, 50.0, "constant")
    assert {method: parts(method) for method in METHODS if method} == expected
    assert {(of(method).epochs, of(method).ks, of(method).pooling) for method in METHODS if method} == {
        (epochs, (*sorted({1, *ks}),), "avg")
    }
    assert of("anchor").temperature == 0.2
    assert of("obd-sd").temperature == 1.0


@pytest.mark.parametrize(
    ("weight", "methods"),
    [(100.0, ("psd", "psd-constant", "psd-balanced")), (1.0, ("obd-sd", "obd-sd-softmax", "mean-mix", "uniform-mix", "flat"))],
)
def test_what_does_well_on_embeddings(weight, methods):
    for options in (preset(f"ms+{method}", "x.npz") for method in methods):
        found = options.weight, options.epochs, options.backbone, options.head_init, options.lr
        assert found == (weight, 40, "features", "projection", 1e-4)


def test_glyphs_and_data_without_settings_of_their_own():
    options = preset("ms+obd-sd", "glyphs")
    found = options.epochs, options.backbone, options.lr, options.crop, options.flip, options.weight
    assert found == (20, "tiny-conv", 1e-3, 0.7, False, 1.0)
    assert as_dict(preset("ms+obd-sd", "folder:x")) == {**as_dict(preset("ms+obd-sd", "cub200:x")), "data": "folder:x"}


def test_a_projection_is_left_out_beside_another_head():
    assert preset("ms", "x.npz", head="two-layer").head_init == "random"
    with pytest.raises(InputError, match="head_init=projection needs head=linear, not none"):
        preset("ms", "x.npz", head="none", head_init="projection")


def test_nt_xent_needs_no_labels():
    assert preset("nt-xent+psd", "glyphs").supervision == "none"
    assert str(preset("nt-xent+psd", "glyphs").teacher) == "previous-epoch"


def test_a_teacher_alone_teaches_at_once_and_shows_every_item_once():
    teacher = {"loss": "none", "teacher": "frozen(run)"}
    options = preset("recommended", "glyphs", **teacher, supervision="none")
    assert (options.preset, options.ramp, options.per_class) == ("none+frozen", "constant", 1)
    assert resolve(as_dict(options)) == options
    assert preset("ms+psd", "glyphs", **teacher, supervision="none", per_class=3).per_class == 3
    assert preset("ms+psd", "glyphs", **teacher).per_class == 2  # of a class: labels choose the batch
    with pytest.raises(InputError, match="ramp=linear teaches nothing in the first epoch"):
        preset("ms+psd", "glyphs", **teacher, ramp="linear")


@pytest.mark.parametrize(
    ("changes", "targets"),
    [
        ({"omega": "0.7"}, "batch-diffusion(omega=0.7)"),
        ({"targets": "batch-diffusion"}, "batch-diffusion(omega=0.5)"),  # the data's
        ({"targets": "batch-diffusion(0.1)"}, "batch-diffusion(omega=0.1)"),
        ({"targets": "batch-diffusion(0.1, softmax)", "omega": 0.7}, "batch-diffusion(omega=0.7, form=softmax)"),
        ({"targets": "global-diffusion(neighbours=5)", "omega": 0}, "global-diffusion(omega=0.0, neighbours=5)"),
        ({"targets": "balanced(batch-diffusion)"}, "balanced(batch-diffusion(omega=0.5))"),
        ({"targets": "balanced(batch-diffusion(form=softmax))", "omega": 0.7}, "balanced(batch-diffusion(omega=0.7, form=softmax))"),
        ({"targets": "balanced(targets=mean-mix)", "omega": 0.7}, "balanced(mean-mix(omega=0.7))"),
        ({"targets": "pairwise(scale=0.7)"}, "pairwise(scale=0.7)"),
    ],
)
def test_omega_is_short_for_a_setting_of_the_targets(changes, targets):
    assert str(preset("ms+obd-sd", "sop:x", **changes).targets) == targets


CALLED = [  # a preset with other parts, and what the run is called
    ("ms", {"teacher": "ema"}, "ms+ema"),
    ("ms", {"teacher": "previous-epoch"}, "ms+obd-sd"),
    ("ms", {"teacher": "frozen(source=somewhere)"}, "ms+frozen"),
    ("ms", {"system": "s2sd"}, "ms+s2sd"),
    ("ms+psd", {"teacher": "memory"}, "ms+memory+pairwise"),
    ("ms+psd", {"targets": "balanced(pairwise)"}, "ms+previous-epoch+balanced-pairwise"),
    ("ms+bar", {"teacher": "ema"}, "ms+ema+pairwise"),
    ("ms+obd-sd", {"loss": "proxy-anchor", "teacher": "none"}, "proxy-anchor"),
    ("ms+obd-sd", {"loss": "multi-similarity(beta=50)", "omega": 0.7}, "ms+obd-sd"),  # other settings of the same parts
]


@pytest.mark.parametrize("data", ["x.npz", "cars196:x"])
@pytest.mark.parametrize(("name", "changes", "called"), CALLED, ids=[called for *_, called in CALLED])
def test_a_run_is_called_what_it_is(name, changes, called, data):
    options = preset(name, data, **changes)
    assert options.preset == called
    config = options.kept()  # read by --config, or as it stands, it is the same run
    assert resolve(config) == resolve(beyond_preset(config)) == options


@pytest.mark.parametrize("none", [None, 3, ["ms"]])
def test_a_preset_that_is_no_text_is_refused_as_any_other_option(none):
    """Of a configuration that somebody wrote by hand."""
    config = {"data": "rows.npz", "preset": none}
    assert beyond_preset(config) == config
    with pytest.raises(InputError, match="preset"):
        resolve(config)


def test_a_teacher_beside_a_plain_loss_is_obd_sd_with_that_teacher():
    for data in ("x.npz", "cars196:x"):
        walk = preset("margin+obd-sd", data)
        assert as_dict(preset("margin", data, teacher="ema")) == {**as_dict(walk), "teacher": "ema", "preset": "margin+ema"}


def test_parts_that_make_another_preset_make_the_same_run():
    """What the first preset set for parts that are gone is gone, too."""
    assert preset("ms+obd-sd", "x.npz", loss="proxy-anchor", teacher="none") == preset("proxy-anchor", "x.npz")


REFUSED = [
    ("ms+psd", {"omega": 0.5}, "omega=0.5 does nothing with targets=pairwise; it is a setting of batch-diffusion, global-diffusion, "),
    ("ms", {"omega": 0.5}, "omega=0.5 does nothing with teacher=none; leave it out, or choose preset=ms+obd-sd or another that teaches"),
    ("ms", {"targets": "pairwise"}, "targets=pairwise does nothing with teacher=none; leave it out, or choose preset=ms+obd-sd"),
    ("ms+psd", {"momentum": 0.5}, "momentum=0.5 does nothing with optimizer=adam; leave it out, or change optimizer"),
    ("ms+psd", {"targets": "balanced"}, "targets=balanced needs targets; write balanced(targets=…)"),
    ("ms+psd", {"targets": "batch-diffusion(0.3, softmax, 1, 2)"}, "has more values than batch-diffusion has settings (omega, form,"),
    ("ms+psd", {"epoch": 3}, "epoch=3 is no option here; did you mean epochs?"),
    ("ms+psd", {"loss": 5}, "loss: '5' must begin with a name"),
    ("ms+plg", {}, "teacher=classes needs file; write classes(file=…)"),
    ("none+psd", {}, "preset='none+psd' is not known; did you mean "),
    ("ms+odb-sd", {}, "preset='ms+odb-sd' is not known; did you mean ms+obd-sd?"),
    ("pads+s2sd-msd", {}, "preset='pads+s2sd-msd' is two systems, pads and s2sd-msd; choose one of them"),
    (
        "zzz",
        {},
        "preset='zzz' is not known; it is a loss (ms, margin, r-margin, proxy-anchor, proxy-nca, soft-triple, nt-xent, ms-tuned, supcon, ",
    ),
]
test_what_does_nothing_or_is_not_known_is_refused = refused(
    [((name, changes), message) for name, changes, message in REFUSED], lambda given: preset(given[0], "folder:x", **given[1])
)


def test_what_says_what_holds_anyway_is_no_mistake():
    assert preset("ms", "folder:x", weight=1000.0, momentum="0.9", targets="batch-diffusion(omega=0.3)") == preset("ms", "folder:x")
    assert preset("ms", "x.npz", crop=0.08, weight=100.0) == preset("ms", "x.npz")


def test_all_that_is_idle_is_told_at_once_and_in_order():
    options, idle = resolve_with_idle({"data": "folder:x", "preset": "ms", "momentum": 0.5, "weight": 3.0, "lr": 0.1, "omega": 0.2})
    assert [*idle] == ["momentum", "weight", "omega"]
    assert (options.lr, options.weight) == (0.1, 3.0)
    _, idle = resolve_with_idle({"data": "folder:x", "preset": "ms+psd", "omega": 0.2})  # a row of a comparison in which others walk
    assert [*idle] == ["omega"]
    with pytest.raises(InputError, match=r"^momentum=0\.5 does nothing"):
        resolve({"data": "folder:x", "preset": "ms", "momentum": 0.5, "weight": 3.0})


HEAD = {"epochs": 40, "lr": 1e-4, "head_init": "projection"}
PLAIN = {"loss": "multi-similarity", "teacher": "none", "system": "standard"}
LONGER = {**HEAD, **PLAIN, "dim": 512}
OFFLINE = {"backbone": "tf_efficientnet_lite0", "pretrained": "offline"}
NETWORK = {**OFFLINE, "frozen": False, "epochs": 20, "head_init": "projection", "lr": 1e-5}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"data": "folder:x"}, {**LONGER, **OFFLINE, "frozen": True, "pooling": "gem"}),
        ({"data": "cub200:x"}, {**LONGER, **OFFLINE, "frozen": True, "pooling": "gem"}),
        ({"data": "folder:x", "frozen": True, "backbone": "resnet50"}, {**LONGER, "pooling": "avg", "pretrained": None}),
        ({"data": "folder:x", "head": "none"}, {"pooling": "gem", "dim": None}),
        ({"data": "folder:x", "frozen": False}, {**NETWORK, **PLAIN, "pooling": "avg", "dim": None}),
        ({"data": "folder:x", "frozen": "false", "backbone": "resnet50"}, {**NETWORK, "backbone": "resnet50", "pretrained": None}),
        ({"data": "x.npz"}, {**LONGER, "frozen": False, "backbone": "features", "pretrained": None, "pooling": "avg"}),
        ({"data": "glyphs"}, {**PLAIN, "epochs": 20, "frozen": False, "backbone": "tiny-conv", "head_init": "random", "lr": 1e-3}),
    ],
)
def test_without_a_preset_it_is_what_we_advise(given, expected):
    options = resolve(given)
    assert {name: str(value) if name in PARTS else value for name, value in vars(options).items() if name in expected} == expected
    assert (options.preset, options.batch_size) == ("recommended", None)
    assert resolve(as_dict(options)) == options  # what a run's config.yaml says is the same again


def test_another_loss_keeps_what_else_we_advise():
    options = resolve({"data": "folder:x", "loss": "margin"})
    assert (options.preset, options.frozen, options.pooling, options.dim) == ("margin", True, "gem", 512)


def test_a_preset_by_its_name_stays_the_papers_and_frozen_has_settings_of_its_own():
    paper, frozen = preset("ms+obd-sd", "folder:x"), preset("ms+obd-sd", "folder:x", frozen=True)
    assert (paper.backbone, paper.epochs, paper.weight, paper.frozen) == ("resnet50.tv_in1k", 150, 1000.0, False)
    rows = preset("ms+obd-sd", "x.npz")
    same = {name: value for name, value in as_dict(rows).items() if name not in ("data", "backbone", "pretrained", "frozen")}
    assert {name: as_dict(frozen)[name] for name in same} == same
    assert (frozen.backbone, frozen.pretrained) == ("tf_efficientnet_lite0", "offline")


def test_what_was_recommended_is_told_with_its_reason():
    lines = recommended(resolve({"data": "folder:x"}))
    assert [line.partition(":")[0] for line in lines] == [
        "--frozen", "--backbone tf_efficientnet_lite0", "--head-init projection", "--pooling gem", "--dim 512",
        "--loss multi-similarity", "--epochs 40",
    ]  # fmt: skip
    assert all(" --" in line.partition(":")[2] or "docs/" in line for line in lines)  # how to choose otherwise, or why not to
    others = recommended(resolve({"data": "folder:x", "frozen": False, "backbone": "resnet50", "loss": "margin"}))
    assert [line.partition(":")[0] for line in others] == ["--head-init projection"]
    assert "--head-init projection" not in " ".join(recommended(resolve({"data": "x.npz", "init": "run"})))


def test_a_data_set_from_outside_sets_options_and_constants_of_methods(monkeypatch):
    monkeypatch.setattr(DATA, "_homes", {**DATA._homes})

    @training_defaults(epochs=7, pooling="avg+max", heads_pooling="avg", omega=0.8)
    def made_up(path): ...

    register("data", "made-up", made_up)
    options = preset("ms+s2sd-msd+obdp", "made-up:x")
    assert (options.epochs, options.pooling) == (7, "avg+max")
    assert (str(options.system), str(options.targets)) == ("s2sd(pooling=avg)", "batch-diffusion(omega=0.8)")
