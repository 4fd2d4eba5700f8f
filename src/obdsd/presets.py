"""Settings by name: the paper's, for its benchmarks, and what fits data of other kinds. Imports no torch.

A preset is a loss (`ms`), or a loss and a method (`ms+obd-sd`), or `recommended`, the default.
A data set brings settings of its own (`training_defaults` of its loader).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from obdsd.catalogue import DATA, TARGETS, TEACHERS
from obdsd.convert import convert
from obdsd.data import data_kind
from obdsd.errors import InputError
from obdsd.options import PARTS, PROJECTABLE, RECOMMENDED, TrainOptions, as_dict, check_limits, converted, name_of_parts, part, why_idle
from obdsd.parts import MISSING, suggestion
from obdsd.spec import Spec

LOSSES: dict[str, dict[str, Any]] = {  # and systems around one
    "ms": {"loss": "multi-similarity"},
    "margin": {"loss": "margin"},
    "r-margin": {"loss": "r-margin"},
    "proxy-anchor": {"loss": "proxy-anchor"},
    "proxy-nca": {"loss": "proxy-nca"},
    "soft-triple": {"loss": "soft-triple"},
    "nt-xent": {"loss": "nt-xent", "supervision": "none"},
    "ms-tuned": {"loss": "multi-similarity(alpha=0.01, beta=50.6, base=0.56, epsilon=2.0)"},
    "supcon": {"loss": "supcon"},
    "recall-at-k": {"loss": "recall-at-k"},
    "contextual": {"loss": "contextual"},
    "mean-field": {"loss": "mean-field"},
    "epshn": {"loss": "epshn"},
    "proxy-gml": {"loss": "proxy-gml"},
    "div-conq": {"loss": "margin(sampling=nearest, learn_beta=false)", "system": "divide-and-conquer", "slices": 8},
    "drml": {"loss": "proxy-anchor(alpha=64.0, margin=0.2)", "system": "drml", "head": "relational"},
    "mic": {"loss": "margin", "system": "mic"},
    "dcml-mdw": {"loss": "margin", "system": "dcml", "head": "composed", "slices": 4},
    "diva": {"loss": "margin", "system": "diva", "slices": 4, "slice_weights": (0.5, 1.0, 1.0, 1.0)},
    "rankmi": {"loss": "rankmi"},
    "pads": {"loss": "margin(beta=0.6)", "system": "pads"},
    "norm-softmax": {"loss": "norm-softmax"},
}
PREVIOUS = {"teacher": "previous-epoch"}
BORN_AGAIN = {"teacher": "born-again", "ramp": "constant", "weight": 100.0}
HEADS = {"teacher": "none", "ramp": "constant", "weight": 50.0, "targets": "pairwise"}
SHARED = {"system": "soft-labels", "ramp": "constant", "weight": 0.5}
DSD = "s2sd(widths=[2048], pooling={heads_pooling})"
MSD = "s2sd(pooling={heads_pooling})"
MSDF = "s2sd(pooling={heads_pooling}, feature_weight={feature_weight})"
WALK = {"targets": "batch-diffusion(omega={omega})"}
METHODS: dict[str, dict[str, Any]] = {  # {…} is filled in by CONSTANTS
    "": {"teacher": "none"},
    "psd": {**PREVIOUS, "targets": "pairwise"},
    "psd-balanced": {**PREVIOUS, "targets": "balanced(pairwise)"},  # not the paper's: docs/results.md
    "psd-constant": {**PREVIOUS, "targets": "pairwise", "ramp": "constant"},
    "obd-sd": {**PREVIOUS, **WALK},
    "obd-sd-softmax": {**PREVIOUS, "targets": "batch-diffusion(omega={omega}, form=softmax, walk_temperature={walk_temperature})"},
    "anchor": {"teacher": "features", "targets": "pairwise", "ramp": "constant", "temperature": 0.2, "weight": 100.0},  # nor is this
    "soft-labels": {"teacher": "features", "targets": "pairwise", "temperature": 0.1, **SHARED},  # nor are these two
    "smooth-labels": {"teacher": "none", **SHARED},
    "mean-mix": {**PREVIOUS, "targets": "mean-mix(omega={omega})"},
    "uniform-mix": {**PREVIOUS, "targets": "uniform-mix(omega={omega})"},
    "flat": {**PREVIOUS, "targets": "pairwise(scale={rest})"},
    "rcl": {**BORN_AGAIN, "targets": "pairwise", "matching": "rcl", "weight": 1.0},
    "bar": {**BORN_AGAIN, "targets": "pairwise"},
    "bar+obdp": {**BORN_AGAIN, **WALK},
    "s2sd-dsd": {**HEADS, "system": DSD},
    "s2sd-msd": {**HEADS, "system": MSD},
    "s2sd-msdf": {**HEADS, "system": MSDF},
    "s2sd-dsd+obdp": {**HEADS, **WALK, "system": DSD},
    "s2sd-msd+obdp": {**HEADS, **WALK, "system": MSD},
    "s2sd-msdf+obdp": {**HEADS, **WALK, "system": MSDF},
    "global": {**PREVIOUS, "targets": "global-diffusion(omega={omega})"},
    "proxy-diffusion": {**PREVIOUS, "targets": "proxy-diffusion(omega={omega})"},
    "self-transfer": {"teacher": "self-transfer(proxy-anchor)", "matching": "rcl", "ramp": "constant", "weight": 1.0},
    "plg": {"teacher": "classes", "matching": "plg", "ramp": "constant", "weight": 7.5},  # whoever asks for it gives the file
    "das": {"teacher": "none", "system": "das"},
    "memvir": {"teacher": "none", "system": "memvir"},
}
"""`mean-mix`, `uniform-mix` and `flat` are controls: what the walk does without its graph."""

LONGER = {"dim": 512}
"""A head on features gives rows of this length, or as long as the features are."""

AT_HAND = {"backbone": "tf_efficientnet_lite0", "pretrained": "offline"}  # its weights come with the installation
POOLED = {"pooling": "gem"}
"""How the features of that backbone are pooled before a head learns on them."""
WHOLE_NETWORK = {**AT_HAND, "epochs": 20, "head_init": "projection"}
REASONS: dict[tuple[str, Any], str] = {
    ("frozen", True): "the head alone learns, on features that are computed once: minutes on a CPU; --no-frozen trains the whole network",
    ("backbone", AT_HAND["backbone"]): "its weights came with the installation; --backbone resnet50.tv_in1k downloads others",
    ("head_init", "projection"): "the head begins as what the features know; a random one ended three points lower (docs/results.md)",
    ("pooling", "gem"): "CUB's untrained features find more by it than by averages; letters' find as much (docs/results.md)",
    ("dim", 512): "on CUB it finds a point more than 128 numbers (docs/results.md); --dim 128 takes a quarter of the space",
    ("loss", "multi-similarity"): "no teacher; --preset ms+obd-sd is the paper's method, obdsd presets lists all",
    ("epochs", 40): "what did well on held-out classes of two data sets; choose your own with --val-fraction 0.3 --score validation",
}
"""Why the recommended settings are what they are, and how to choose otherwise."""

SENTENCES = {
    RECOMMENDED: "What our measurements advise for your data: a head on frozen features, Multi-Similarity, no teacher.",
    "ms": "Multi-Similarity, the loss of most of the paper's tables.",
    "margin": "Margin loss with distance-weighted sampling.",
    "r-margin": "Regularised Margin: one triplet in five pushes a true positive away.",
    "proxy-anchor": "Proxy-Anchor: every class has a proxy that is learned; fast at many classes.",
    "proxy-nca": "Proxy-NCA: every item is drawn to its class's proxy.",
    "soft-triple": "SoftTriple: several proxies a class.",
    "nt-xent": "Without labels: two views of an image are alike (SimCLR's loss).",
    "ms-tuned": "Multi-Similarity without mining, with the settings that a search chose for CUB-200-2011.",
    "supcon": "SupCon: the softmax over a batch's other items, drawn to the class-mates.",
    "recall-at-k": "Recall@k with logistic functions for its steps; wants large batches.",
    "contextual": "Items that share neighbours should be of one class; published with --per-class 4.",
    "mean-field": "A contrastive loss between items and one trained vector a class.",
    "epshn": "Each item's easiest positive against its hardest negative; wants several items a class.",
    "proxy-gml": "ProxyGML: several proxies a class, of which an item meets its own and the hardest others.",
    "div-conq": "Divide and conquer: each slice of the embedding learns from one cluster of the training set.",
    "drml": "DRML: parts of the features learn from the items that they describe best, and of their relations; with Proxy-Anchor.",
    "mic": "MIC: a second head learns what classes share, the embedding is kept free of it; published with --per-class 4.",
    "dcml-mdw": "DCML in a plain form of ours: the loss on four composites, mixtures of four maps; published with 512 numbers.",
    "diva": "DiVA: four parts of the embedding, each with a task of its own; published with 512 numbers.",
    "rankmi": "RankMI-style, from memory of the paper: a network learns to tell matching pairs by their distance.",
    "pads": "PADS: a policy learns from which distances Margin draws negatives; some training images are held out for it.",
    "norm-softmax": "Softmax over scaled cosines to one proxy a class.",
    "psd": "The model of the epoch before teaches its cosines (progressive self-distillation).",
    "psd-balanced": "PSD whose targets draw to every item alike; not the paper's.",
    "psd-constant": "PSD with the full weight from the first epoch on, the paper's ablation.",
    "obd-sd": "PSD whose cosines are refined by a walk on the batch's graph: the paper's method.",
    "obd-sd-softmax": "OBD-SD with the walk of the published code.",
    "anchor": "The pretrained features teach, so that training does not lose them; not the paper's.",
    "soft-labels": "The pretrained features share SupCon's target with the labels; not the paper's.",
    "smooth-labels": "A control for soft-labels: a uniform row shares the target (label smoothing).",
    "mean-mix": "A control for OBD-SD: the mean row mixed in, no graph.",
    "uniform-mix": "A control for OBD-SD: a uniform row mixed in, no graph.",
    "flat": "A control for OBD-SD: PSD with a flatter teacher, cosines times 1-ω, no graph.",
    "rcl": "A first training teaches a second by relaxed contrastive (RCL), beside the labels.",
    "bar": "A first training with the plain loss teaches a second (born again).",
    "bar+obdp": "Born again, with the walk on the batch's graph.",
    "s2sd-dsd": "A wider head teaches the one that is kept (S2SD, dual).",
    "s2sd-msd": "Several wider heads teach (S2SD, multi-scale).",
    "s2sd-msdf": "Several wider heads and the features teach (S2SD, multi-scale with features).",
    "s2sd-dsd+obdp": "One wider head, with the walk on the batch's graph.",
    "s2sd-msd+obdp": "Several wider heads, with the walk on the batch's graph.",
    "s2sd-msdf+obdp": "Several wider heads and the features, with the walk on the batch's graph.",
    "global": "PSD with a walk on the graph of the whole training set, once an epoch.",
    "proxy-diffusion": "PSD with a walk over the batch and the proxies; needs a loss with proxies.",
    "self-transfer": "The relations in a first training's embedding, with Proxy-Anchor, teach the second (RCL, self-transfer).",
    "plg": 'Similarities between classes, from a file, guide those of items (PLG); needs --teacher "classes(file=…)".',
    "das": "Rows that are produced around those of the batch join it in the loss (DAS).",
    "memvir": "Past rows and proxies join as virtual classes (MemVir); needs a loss with one proxy a class.",
}
"""What `obdsd presets` says of each loss and each method."""

CONSTANTS: dict[str, Any] = {"omega": 0.3, "walk_temperature": 1.0, "heads_pooling": "avg+max", "feature_weight": 50.0}
"""What a data set may set for the parts of a method; the paper's for CUB-200-2011."""

METHODS_ON_DATA: dict[tuple[str, str], dict[str, Any]] = {  # where a method's own setting depends on the data
    ("bar", "cars196"): {"weight": 50.0},
    ("obd-sd", "embeddings"): {"weight": 1.0},
    ("mean-mix", "embeddings"): {"weight": 1.0},
    ("uniform-mix", "embeddings"): {"weight": 1.0},
    ("flat", "embeddings"): {"weight": 1.0},  # as what it is a control for
    ("plg", "cars196"): {"weight": 6.0},
    ("das", "sop"): {"system": "das(low=0.5, high=2.0, moved=0.1, constant=false)"},
    **{("memvir", kind): {"system": "memvir(sets=4, gap=2)"} for kind in ("sop", "inshop")},  # ours: of so many classes 45 are too many
    **{("memvir", kind): {"system": "memvir(sets=10, warm=2)"} for kind in ("embeddings", "glyphs")},  # so are these: short trainings
}
"""By the beginning of the method's name and the kind of the data; for embeddings, what does well on held-out classes of
two data sets (docs/results.md)."""

ONLY_WITH = {
    "proxy-diffusion": "proxy-anchor",
    "memvir": "norm-softmax",
    "self-transfer": "none",
    "soft-labels": "supcon",
    "smooth-labels": "supcon",
}
"""Methods that need a loss of a kind, and one of it."""

NAMES = [
    RECOMMENDED,
    *LOSSES,
    *(f"{ONLY_WITH.get(method, 'ms')}+{method}" for method in METHODS if method),
]
"""The presets that are listed; any other loss goes with any method too."""


def preset(name: str, data: str, **changes: Any) -> TrainOptions:
    """The options of a training on `data` by a preset's name, with changes. `omega=0.5` is short for that setting of the targets.

    >>> str(preset("ms+obd-sd", "cars196:cars").targets)
    'batch-diffusion(omega=0.99)'
    >>> str(preset("ms", "glyphs", epochs=3).teacher)
    'none'
    """
    return resolve({"data": data, "preset": name, **changes})


def resolve(given: Mapping[str, Any]) -> TrainOptions:
    """All options: what was given, over the preset's settings, over the defaults. What would do nothing is refused."""
    options, idle = resolve_with_idle(given)
    if idle:
        raise InputError(next(iter(idle.values())))
    return options


def beyond_preset(config: Mapping[str, Any]) -> dict[str, Any]:
    """Of a run's configuration what its preset does not say, so that another preset or other data bring their own settings."""
    if not all(isinstance(config.get(name), str) for name in ("data", "preset")):  # whoever reads the options refuses what is no text
        return dict(config)
    parts = {} if _is_preset(config["preset"]) else {name: config[name] for name in PARTS if name in config}
    usual = {**as_dict(preset(config["preset"], config["data"], **parts)), **dict.fromkeys(parts)}
    return {name: value for name, value in config.items() if name in ("data", "preset") or name not in usual or value != usual[name]}


def resolve_with_idle(given: Mapping[str, Any]) -> tuple[TrainOptions, dict[str, str]]:
    """All options, and what was given but does nothing beside the others, with the reason."""
    check_limits(
        TrainOptions, converted(TrainOptions, {name: value for name, value in given.items() if name != "omega"})
    )  # imports no part
    kind, name = data_kind(str(given["data"])), str(given.get("preset", RECOMMENDED))
    of_data = _of_data(kind)
    images = "backbone" not in of_data  # other data bring a model of their own
    advised = name == RECOMMENDED
    frozen = convert("frozen", bool, given.get("frozen", images and advised))
    if frozen:
        pooled = POOLED if advised and given.get("backbone", AT_HAND["backbone"]) == AT_HAND["backbone"] else {}
        kind, of_data = "embeddings", {**of_data, **_of_data("embeddings"), **AT_HAND, **pooled, "frozen": True}
    elif images and advised:
        of_data |= WHOLE_NETWORK
    constants = {**CONSTANTS, **{key: of_data.pop(key) for key in CONSTANTS if key in of_data}}
    if not _is_preset(name) and given.keys() >= {*PARTS} - {"matching"}:  # a run's own name, made of its parts (earlier runs match by kl)
        of_method, name = {part: given[part] for part in PARTS if part in given}, ""
    else:
        name = _taught(name, given)
        of_method = _method_settings(name, kind, constants)
        if advised and kind == "embeddings" and given.get("head") != "none":
            of_method |= LONGER
    settings = {**of_data, **of_method, "data": given["data"], "preset": name}
    if "teacher" in given and part("teacher", given["teacher"]).name == settings.get("teacher"):
        settings["teacher"] = given["teacher"]  # with settings of its own, as the file that it reads
    if given.get("head", "linear") not in PROJECTABLE:
        settings.pop("head_init", None)  # no other head can begin as a projection
    if "backbone" in given and given["backbone"] != settings.get("backbone"):
        settings.pop("pretrained", None)  # weights of another one
    if part("loss", given.get("loss", settings["loss"])).name == "none":
        settings |= _alone(given)
    wanted = {**settings, **given, "preset": name}
    omega = wanted.pop("omega", None)
    if "targets" in wanted:
        wanted["targets"] = _with_omega(part("targets", wanted["targets"]), omega, constants["omega"])
    options, usual = (TrainOptions.from_dict(values) for values in (wanted, settings))
    if name_of_parts(options) != name_of_parts(usual):  # no longer the preset, which has no say in what is idle now
        gone = {option for option in of_method if option not in given and why_idle(options, option)}
        left = {option: value for option, value in wanted.items() if option not in gone}
        options = TrainOptions.from_dict({**{option: of_data[option] for option in gone & of_data.keys()}, **left, "preset": ""})
    idle = {}
    for option in (name for name in given if name != "omega"):  # what says what holds anyway (a run's own config.yaml) is no mistake
        value = as_dict(options)[option]
        if value != as_dict(usual)[option] and (why := why_idle(options, option)):
            idle[option] = _idle(option, value, why)
    if omega is not None and (why := why_idle(options, "targets")):
        idle["omega"] = _idle("omega", omega, why)
    elif omega is not None and "omega" not in TARGETS.settings(_innermost(options.targets).name):
        takers = [name for name in TARGETS.names if "omega" in TARGETS.settings(name)]
        idle["omega"] = f"omega={omega} does nothing with targets={_innermost(options.targets)}; it is a setting of {', '.join(takers)}"
    return options, idle


def _alone(given: Mapping[str, Any]) -> dict[str, Any]:
    """What fits a training that has no loss but its teacher: it teaches at once, and without labels every item comes once."""
    return {"ramp": "constant", **({"per_class": 1} if given.get("supervision") == "none" else {})}


def _idle(option: str, value: Any, why: str) -> str:
    remedy = "choose preset=ms+obd-sd or another that teaches" if why == "teacher=none" else f"change {why.partition('=')[0]}"
    return f"{option}={value} does nothing with {why}; leave it out, or {remedy}"


def recommended(options: TrainOptions) -> list[str]:
    """Of the recommended settings those that hold, each with its reason."""
    own, lines = as_dict(options), []
    measured = options.frozen or options.backbone == "features"
    for (name, value), reason in REASONS.items():
        if own[name] == value and (measured or name != "epochs") and not why_idle(options, name):
            lines.append(f"--{name.replace('_', '-')}{'' if value is True else f' {value}'}: {reason}")
    return lines


def _of_data(kind: str) -> dict[str, Any]:
    return dict(getattr(DATA.find(kind), "training_defaults", {}))


def _is_preset(name: str) -> bool:
    loss, _, method = _spelt(name)
    known = loss in LOSSES or ONLY_WITH.get(method) == loss  # the latter for none+self-transfer
    return known and method in METHODS


def _taught(name: str, given: Mapping[str, Any]) -> str:
    """The preset that is meant: a plain loss beside a teacher is OBD-SD, with that teacher."""
    teacher = part("teacher", given.get("teacher", "none")).name
    loss, _, method = _spelt(name)
    return f"{loss}+obd-sd" if not method and loss in LOSSES and getattr(TEACHERS.find(teacher), "teaches", True) else name


def _spelt(name: str) -> tuple[str, str, str]:
    """A preset as a loss and a method."""
    return ("ms" if name == RECOMMENDED else name).partition("+")


def _method_settings(name: str, kind: str, constants: Mapping[str, Any]) -> dict[str, Any]:
    """What a preset's loss and method set for data of this kind."""
    loss, _, method = _spelt(name)
    constants = {**constants, "rest": f"{1 - constants['omega']:.2g}"}
    if not _is_preset(name):
        known = [*NAMES, *(f"{loss}+{method}" for loss in LOSSES for method in METHODS if method)]
        form = f"it is a loss ({', '.join(LOSSES)}), alone or with a method (+{', +'.join(filter(None, METHODS))})"
        raise InputError(f"preset={name!r} is not known; {suggestion(name, known, form)}")
    of_loss = LOSSES.get(loss, {"loss": loss})
    if "system" in of_loss and "system" in METHODS[method]:
        raise InputError(f"preset={name!r} is two systems, {loss} and {method}; choose one of them")
    found = {**of_loss, **METHODS[method]}
    for (beginning, where), own in METHODS_ON_DATA.items():
        if where == kind and method.startswith(beginning):
            found |= own
    return {option: value.format(**constants) if option in ("targets", "system") else value for option, value in found.items()}


def _with_omega(targets: Spec, asked: Any, usual: float) -> Spec:
    """The targets with the ω that was asked for, or with the data's if they need one and have none."""
    known, given = TARGETS.settings(targets.name), TARGETS.named(targets)
    if "omega" in known:
        own = usual if known["omega"].default is MISSING else known["omega"].default
        given["omega"] = asked if asked is not None else given.get("omega", own)
    elif "targets" in given:  # targets around others
        given["targets"] = _with_omega(Spec.parse(given["targets"]), asked, usual)
    return Spec(targets.name, given)


def _innermost(targets: Spec) -> Spec:
    """The targets that others are around."""
    return next((_innermost(inner) for inner in targets.positional if isinstance(inner, Spec)), targets)
