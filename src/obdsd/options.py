"""The options of a training: the same names in Python, in YAML and on the command line. Imports no torch.

Every option stands here once: its default, its sentence, its limits, and beside what it does nothing.
"""

from __future__ import annotations

import os
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache
from typing import Any, Literal

from obdsd.catalogue import MATCHINGS, RERANKERS, SYSTEMS, TABLES, TEACHERS
from obdsd.convert import convert
from obdsd.errors import InputError
from obdsd.parts import suggestion
from obdsd.preprocessing import LARGEST_IMAGE
from obdsd.spec import Spec

LARGEST = 2**31 - 1  # that every generator takes as a seed
INFINITY = float("inf")
USUAL_BATCH = 112  # items, as in the paper


def option(
    default: Any,
    sentence: str,
    group: str = "options",
    *,
    at_least: float = -INFINITY,
    above: float = -INFINITY,
    below: float = INFINITY,
    idle: Callable[[Any], str] | None = None,
    scope: Literal["run", "machine", "command"] = "run",
    positional: bool = False,
) -> Any:
    """A field of an options class.

    Args:
        default: Its default; `MISSING` if it must be given.
        sentence: What `--help` says.
        group: Under which heading `--help` lists it.
        at_least: The smallest number that is accepted.
        above: Numbers must be larger than this.
        below: Numbers must be smaller than this.
        idle: All options → why this one does nothing beside them, or an empty text.
        scope: `machine` and `command` options may differ when a run is resumed; `command` options are not kept with it.
        positional: Whether it stands on the command line without a name.
    """
    about = {"sentence": sentence, "group": group, "at_least": at_least, "above": above, "below": below, "idle": idle, "scope": scope}
    about["positional"] = positional
    return field(default=default, metadata=about, kw_only=not positional)


def check_limits(kind: type, values: Mapping[str, Any]) -> None:
    """Refuse numbers outside the limits of their fields, of an options class."""
    for each in fields(kind):
        value, about = values.get(each.name), each.metadata
        for number in value if isinstance(value, tuple) else (value,):
            if not isinstance(number, (int, float)):
                continue
            low, above, below = about["at_least"], about["above"], about["below"]
            if not (low <= number and above < number < below):  # as NaN is, too
                raise InputError(f"{each.name}={_shown(value)} must be {_limits(low, above, below)}")


def _limits(low: float, above: float, below: float) -> str:
    if above > -INFINITY and below < INFINITY:
        return f"between {above:g} and {below:g}"
    if below < INFINITY:
        return f"from {low:.10g} to less than {below:.10g}"
    return f"{low:g} or more" if low > -INFINITY else f"a number above {above:g}" if above > -INFINITY else "finite"


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


@cache
def hints_of(kind: type) -> dict[str, Any]:
    """The type of each field of an options class."""
    return typing.get_type_hints(kind)


def converted(kind: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Values that people wrote, brought to the types of an options class; an unknown name gets a suggestion."""
    hints = hints_of(kind)
    for name in given:
        if name not in hints:
            raise InputError(f"{name}={given[name]!r} is no option here; {suggestion(name, hints, 'see --help for what there is')}")
    return {name: part(name, value) if hints[name] is Spec else convert(name, hints[name], value) for name, value in given.items()}


def part(name: str, value: Any) -> Spec:
    """The part that an option names, which there must be."""
    try:
        spec = Spec.parse(value)
    except InputError as fault:
        raise InputError(f"{name}: {fault}") from fault
    TABLES[name].check_known(spec.name)
    return spec


def as_dict(options: Any) -> dict[str, Any]:
    """Plain values, ready for YAML and JSON; parts in their written form."""
    return {each.name: _plain(getattr(options, each.name)) for each in fields(options)}


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Spec) else list(value) if isinstance(value, tuple) else value


def _unless(name: str, wanted: str) -> Callable[[Any], str]:
    """Idle where another option is something else."""
    return lambda options: "" if getattr(options, name) == wanted else f"{name}={getattr(options, name)}"


def _if_features(options: Any) -> str:
    return "backbone=features" if options.backbone == "features" else ""


def _if_begun(options: Any) -> str:
    return f"init={options.init}" if options.init is not None else ""


def _if_given(options: Any) -> str:
    """Of what a model is made, where it is there already."""
    return _if_features(options) or _if_begun(options)


def _if_fixed(options: Any) -> str:
    """Of how images are varied and a backbone learns, where neither happens."""
    return _if_features(options) or ("frozen=True" if options.frozen else "")


def _if_no_head(options: Any) -> str:
    return "head=none" if options.head == "none" else ""


def _if_no_branches(options: Any) -> str:
    return _if_begun(options) or ("" if options.head == "relational" else f"head={options.head}")


def _if_no_slices(options: Any) -> str:
    return _if_begun(options) or ("slices=1" if options.slices == 1 else "")


def _if_nobody_teaches(options: Any) -> str:
    return "teacher=none" if not options.distils else ""


def _if_not_read(name: str) -> Callable[[Any], str]:
    """Of what the targets say, or of what a matching may use, where it does not."""

    def idle(options: Any) -> str:
        matching = options.matching
        read = getattr(MATCHINGS.find(matching.name), "reads", ())
        unread = _if_not_matched(options) == "" and name not in read
        return _if_nobody_teaches(options) or ("" if options.has_targets else "teacher=none") or (f"matching={matching}" if unread else "")

    return idle


def _if_not_matched(options: Any) -> str:
    """Of how student and teacher are matched, where a system does that in its own way."""
    own_way = not getattr(SYSTEMS.find(options.system.name), "matches", True)
    return _if_nobody_teaches(options) or (f"system={options.system}" if own_way else "")


def _if_no_network_teaches(options: Any) -> str:
    return _if_nobody_teaches(options) or _if_fixed(options)


def _if_nothing_is_drawn(options: Any) -> str:
    return _unless("supervision", "labels")(options) or _unless("batches", "drawn")(options)


ARCHITECTURE = ("backbone", "pooling", "head", "hidden", "branches", "dim", "slices", "slice_weights", "feature_power", "size", "batchnorm")
"""Options that say what a model is made of; with `init` they follow from the model that is there."""

PROJECTABLE = ("linear", "composed", "relational")
"""Heads that can begin as a projection."""

METHOD, LENGTH, RUN, DATA = "what is learned from", "length and speed", "the run", "data and labels"
MODEL, BATCHES, OPTIMISER, EVALUATION, RUNNING = "model", "batches and images", "optimiser", "evaluation", "machine and files"
PARTS = ("loss", "teacher", "targets", "matching", "system")
"""Options that say what a system is made of."""
RECOMMENDED = "recommended"
"""The default preset: what our own measurements advise for the data at hand (docs/results.md), and not the paper's settings."""
BY_PRESET = {"loss", "teacher", "targets", "weight", "epochs", "frozen", "lr", "backbone", "pretrained", "head_init"}
"""Options that presets and data change; their defaults here are the paper's."""
FIRST = {
    *("preset", "loss", "teacher", "epochs", "frozen", "batch_size", "lr", "seed", "out", "resume"),
    *("backbone", "pretrained", "dim", "size", "val_fraction"),
}
"""What `--help` shows of the options of a training; `--help-all` shows all."""


@dataclass(frozen=True)
class TrainOptions:
    """Options of a training. Defaults are the paper's for CUB-200-2011; `obdsd.presets.preset(NAME, DATA)` fills in those of a preset."""

    data: str = option(
        MISSING, "The collection: NAME:PATH (cub200, cars196, sop, inshop, folder, manifest), glyphs, or an embeddings file.",
        METHOD, positional=True,
    )  # fmt: skip
    preset: str = option(
        "ms+obd-sd", "Settings by name: a loss (ms, margin, …), alone or with a method (+psd, +obd-sd, …); obdsd presets lists them. Left "
        "out, what we recommend for the data.", METHOD, scope="machine",
    )  # fmt: skip
    loss: Spec = option(
        "multi-similarity", 'The base loss, with its settings in quotes: "margin(beta=0.6)"; none learns from the teacher alone.', METHOD
    )
    teacher: Spec = option("previous-epoch", "Who teaches; previous-epoch is PSD and OBD-SD, none is the plain loss.", METHOD)
    targets: Spec = option(
        "batch-diffusion(omega=0.3)",
        "What is taught; pairwise is PSD, batch-diffusion is OBD-SD.",
        METHOD,
        idle=_if_not_read("targets"),
    )
    matching: Spec = option(
        "kl", "How the student is compared with the teacher: with its targets (kl), or with its rows (rkd, rcl, …).", METHOD,
        idle=_if_not_matched,
    )  # fmt: skip
    weight: float = option(
        1000.0, "Final weight of the distillation (λ); with soft-labels the teacher's share of the target, 0 to 1.", METHOD, at_least=0,
        idle=_if_nobody_teaches,
    )  # fmt: skip
    temperature: float = option(1.0, "Temperature of the distillation (τ).", METHOD, above=0, idle=_if_not_read("temperature"))
    epochs: int = option(150, "Length of the training.", LENGTH, at_least=1)
    frozen: bool = option(False, "Train the head alone, on features that the backbone computes once: minutes, not hours.", LENGTH)
    batch_size: int | None = option(
        None, "Items in a batch, which is also the manifold of the diffusion; default 112, fewer where the classes do not fill it.",
        LENGTH, at_least=1,
    )  # fmt: skip
    lr: float = option(1e-5, "Learning rate.", LENGTH, above=0)
    seed: int = option(0, "Seed of everything random; the same seed gives the same run.", RUN, at_least=0, below=LARGEST)
    out: str | None = option(
        None,
        "Folder of the run; default runs/DATA-PRESET-SEED, with the parts' names where they are not the preset's.",
        RUN,
        scope="machine",
    )
    resume: bool = option(False, "Go on with the run in that folder, from its last checkpoint.", RUN, scope="command")

    system: Spec = option(
        "standard", "How loss and teacher are put together; s2sd adds wider heads that teach, soft-labels shares the target.", METHOD
    )
    ramp: Literal["linear", "constant"] = option(
        "linear", "Whether the weight grows linearly with the epochs or is constant.", METHOD, idle=_if_nobody_teaches
    )

    split_seed: int = option(0, "Seed of the split by class, where the data give none.", DATA, at_least=0, below=LARGEST)
    test_fraction: float = option(0.5, "Share of the classes that are test classes where the data give no split; 0 trains on all.", DATA)
    merge: bool = option(
        False, "Join the parts that the data give and split all classes anew, for train and test parts that share classes.", DATA
    )
    root: str | None = option(None, "Folder that the paths of a manifest are below; default the manifest's own.", DATA)
    allow_incomplete: bool = option(False, "Accept a benchmark with missing classes or files.", DATA)
    skip_unreadable: bool = option(False, "Leave out images that cannot be read; they are counted and named.", DATA, idle=_if_features)
    drop_nan: bool = option(
        False, "Leave out vectors that hold NaN or infinity, or only zeros; they are counted and named.", DATA,
        idle=_unless("backbone", "features"),
    )  # fmt: skip
    supervision: Literal["labels", "none"] = option(
        "labels", "What makes two images alike: one label (labels), or being two views of one image (none). --loss none asks for neither.",
        DATA,
    )  # fmt: skip
    label_noise: float = option(0.0, "Share of training labels that are made wrong, for experiments.", DATA, at_least=0, below=1)

    backbone: str = option(
        "resnet50.tv_in1k",
        "A name of timm (with the tag of its weights, as .tv_in1k), bn-inception, tiny-conv, or features for embeddings.",
        MODEL, idle=_if_begun,
    )  # fmt: skip
    pretrained: str | None = option(
        None, "Weights to begin with: imagenet (downloaded), offline (in a pip package), none, a file, a model folder or a run.",
        MODEL, idle=_if_given,
    )  # fmt: skip
    init: str | None = option(None, "A run or a model folder to begin with: its backbone and its head are trained on.", MODEL)
    pooling: Literal["avg", "avg+max", "gem", "token"] = option(
        "avg", "How local features become one row; gem is the cube root of the mean of their cubes.", MODEL, idle=_if_given
    )
    head: Literal["linear", "two-layer", "composed", "relational", "none"] = option(
        "linear", "Layers on the pooled features; composed mixes as many linear maps as there are slices, relational is of system=drml.",
        MODEL, idle=_if_begun,
    )  # fmt: skip
    hidden: int | None = option(
        None, "Width of a two-layer head between its layers; default that of the features.", MODEL, at_least=1, idle=_if_begun
    )
    branches: int | None = option(
        None, "Equal parts of the features, each with its part of an embedding, in a relational head; default 4.",
        MODEL, at_least=1, idle=_if_no_branches,
    )  # fmt: skip
    head_init: Literal["random", "projection"] = option(
        "random", "Whether a linear or relational head begins at random or as the projection that keeps most of the features.",
        MODEL, idle=_if_begun,
    )  # fmt: skip
    dim: int | None = option(
        None, "Length of the embeddings; default 128, or that of the features without a head.", MODEL, at_least=1, idle=_if_begun
    )
    slices: int = option(
        1, "Equal parts of an embedding, each brought to unit length by itself before the whole is; a system may train each its own way.",
        MODEL, at_least=1, idle=_if_begun,
    )  # fmt: skip
    slice_weights: tuple[float, ...] = option(
        (), "What each slice is multiplied by in the embedding, as 0.5,1,1,1; default 1 for all.", MODEL, above=0, idle=_if_no_slices
    )
    feature_power: float = option(
        1.0, "Exponent of frozen features before the head, with their signs; 0.5 tames the few large ones, 1 leaves them as they are.",
        MODEL, above=0, idle=_if_begun,
    )  # fmt: skip
    batchnorm: Literal["frozen", "train"] | None = option(
        None, "Whether BatchNorm keeps its statistics; default frozen with pretrained weights, else train.", MODEL, idle=_if_fixed
    )
    size: int | None = option(None, "Side of the images, if not the backbone's own.", MODEL, at_least=1, idle=_if_given)

    per_class: int = option(2, "Items of a class in a batch; views of an image without supervision.", BATCHES)
    epoch_batches: int = option(0, "Batches in an epoch, to try something out; 0 takes as many as the data fill.", BATCHES, at_least=0)
    batches: Literal["drawn", "rounds"] = option(
        "drawn", "How classes come into batches: drawn anew for each, or in rounds in which all have their turn (EPSHN).",
        BATCHES, idle=_unless("supervision", "labels"),
    )  # fmt: skip
    replacement: bool = option(
        False, "Draw classes and items with replacement, as the published code does.", BATCHES, idle=_if_nothing_is_drawn
    )
    crop: float = option(0.08, "The smallest share of an image that a random crop keeps; 1 keeps all.", BATCHES, above=0, idle=_if_fixed)
    flip: bool = option(True, "Mirror images at random.", BATCHES, idle=_if_fixed)
    cache: str | None = option(
        None, "A folder for decoded images: they are decoded once, for all trainings on them.", BATCHES, scope="machine", idle=_if_fixed
    )
    cache_side: int | None = option(
        None, "The shorter side to which images are reduced before they are cropped; 0 reduces none. Default 0, with --cache as much as "
        "an evaluation takes.", BATCHES, at_least=0, below=LARGEST_IMAGE + 1, idle=_if_fixed,
    )  # fmt: skip

    optimizer: Literal["adam", "adamw", "sgd"] = option("adam", "The optimiser.", OPTIMISER)
    head_lr: float | None = option(None, "Learning rate of the head, if another.", OPTIMISER, above=0, idle=_if_no_head)
    objective_lr: float | None = option(None, "Learning rate of the loss's own parameters, if not its usual one.", OPTIMISER, above=0)
    weight_decay: float = option(4e-4, "Weight decay of the model.", OPTIMISER, at_least=0)
    momentum: float = option(0.9, "Momentum of SGD.", OPTIMISER, at_least=0, below=1, idle=_unless("optimizer", "sgd"))
    schedule: Literal["constant", "steps", "cosine"] = option("constant", "How the learning rates change over the epochs.", OPTIMISER)
    lr_steps: tuple[int, ...] = option(
        (), "Epochs after which schedule=steps lowers the learning rates, as 200,250.", OPTIMISER, at_least=1
    )
    lr_gamma: float = option(0.3, "What schedule=steps multiplies them by.", OPTIMISER, above=0, idle=_unless("schedule", "steps"))
    warmup_epochs: int = option(0, "Epochs over which the learning rates rise from 0.", OPTIMISER, at_least=0)
    head_only_epochs: int = option(0, "First epochs in which the backbone stands still.", OPTIMISER, at_least=0)
    clip: float = option(0.0, "Largest norm of the gradient; 0 does not clip.", OPTIMISER, at_least=0)
    micro_batch: int = option(
        0, "Items that go through the model at once, for batches larger than memory; the gradient is that of the whole batch.",
        OPTIMISER, at_least=0,
    )  # fmt: skip

    val_fraction: float = option(0.0, "Share of the training classes that is held out to choose by.", EVALUATION, at_least=0, below=1)
    val_fold: str | None = option(None, "Hold out the i-th of k parts of the training classes instead, as 0/5.", EVALUATION)
    evaluate_every: int = option(10, "Epochs between evaluations on held-out classes; 0 only at the end.", EVALUATION, at_least=0)
    test_every: int = option(
        0, "Epochs between evaluations on test classes, for curves only; nothing is ever chosen by them.", EVALUATION, at_least=0
    )
    patience: int = option(
        0, "Evaluations without improvement on held-out classes after which training stops; 0 never stops early.", EVALUATION, at_least=0
    )
    select: Literal["last", "best"] = option("last", "Which epoch's model is kept: the last, or the best on held-out classes.", EVALUATION)
    keep: Literal["weights", "average"] = option(
        "weights", "What is kept and scored: the weights as they are after an epoch, or their running average over the steps.", EVALUATION
    )
    average_decay: float = option(
        0.99, "How slowly the running average follows: it looks back over about 1/(1-decay) steps.", EVALUATION, at_least=0, below=1,
        idle=_unless("keep", "average"),
    )  # fmt: skip
    interpolate: bool = option(
        False, "Let held-out classes choose, in tenths of the way, between the weights at the beginning and those at the end.", EVALUATION
    )
    score: Literal["test", "validation", "none"] = option(
        "test", "What the finished model is scored on; validation leaves the test classes unread, for a search of settings; none scores "
        "nothing, as with --test-fraction 0.", EVALUATION
    )  # fmt: skip
    ks: tuple[int, ...] = option((1, 2, 4, 8), "Depths of Recall@K, as 1,2,4,8.", EVALUATION, at_least=1)
    eval_batch_size: int = option(
        64, "Items that go through the model at once where nothing is learned.", EVALUATION, at_least=1, scope="machine"
    )
    rerank: Spec = option(
        "none", "Also score this re-ranking at the end, as diffusion; it is transductive: it uses the unlabelled scored items as a whole.",
        EVALUATION
    )  # fmt: skip
    reference: bool = option(True, "Also score the untrained features and their PCA, where there is something pretrained.", EVALUATION)

    device: str = option("auto", "cpu, cuda, mps or auto, which takes an accelerator if there is one.", RUNNING, scope="machine")
    workers: int | None = option(
        None, "Processes that load images; default 0 for embeddings and glyphs, else one a core, at most 8.",
        RUNNING, at_least=0, scope="machine",
    )  # fmt: skip
    precision: Literal["32", "bf16", "16"] = option("32", "Precision of the model's forward pass.", RUNNING)
    teacher_precision: Literal["auto", "32", "bf16"] = option(
        "auto", "Precision of a teacher that is a network for images; auto is bf16 where the processor computes in it and the teacher's "
        "rows hardly change, else 32.", RUNNING, idle=_if_no_network_teaches
    )  # fmt: skip
    channels_last: bool | None = option(
        None, "Store images with channels last; default on a CPU and on CUDA, where networks are faster by it.", RUNNING, idle=_if_fixed
    )
    compile: bool = option(False, "Compile the model with torch.compile.", RUNNING)
    checkpoint_minutes: float = option(
        10.0, "Minutes between checkpoints inside an epoch; 0 writes them at its end only.", RUNNING, at_least=0, scope="machine"
    )
    checkpoint_steps: int = option(0, "Also write a checkpoint after so many steps; 0 does not.", RUNNING, at_least=0, scope="machine")
    keep_checkpoints: bool = option(
        False, "Keep the last checkpoints of a finished run, with the state of the optimiser.", RUNNING, scope="machine"
    )
    logger: Literal["tensorboard", "wandb", "mlflow"] | None = option(
        None, "Also log to tensorboard, wandb or mlflow (pip install the one you want).", RUNNING, scope="machine"
    )
    profile: bool = option(
        False, "Write where the time of a few steps goes into the folder: profile.md, and profile.json.gz, which opens in Perfetto.",
        RUNNING, scope="command",
    )  # fmt: skip
    report: bool = option(True, "Write report.html into the folder at the end.", RUNNING, scope="command")

    def __post_init__(self) -> None:
        for name, value in converted(TrainOptions, vars(self)).items():
            object.__setattr__(self, name, value)
        for name in PARTS:
            object.__setattr__(self, name, TABLES[name].checked(getattr(self, name)))
        if self.rerank.name != "none":  # nothing is imported for none
            object.__setattr__(self, "rerank", RERANKERS.checked(self.rerank))
        if self.root is not None:  # the same folder from any working directory
            object.__setattr__(self, "root", os.path.abspath(os.path.expanduser(self.root)))
        if self.cache is not None:
            object.__setattr__(self, "cache", os.path.abspath(os.path.expanduser(self.cache)))
        check_limits(TrainOptions, vars(self))
        _require(bool(self.ks), self, "ks", "must hold a number; try 1,2,4,8")
        object.__setattr__(self, "ks", tuple(sorted({1, *self.ks})))
        _require(self.crop <= 1, self, "crop", "must be 1 or less; 1 keeps the whole image")
        self._check_together()
        name = name_of_parts(self)
        rule = f'is not what these parts are ({name}); use obdsd.presets.preset("{self.preset}", data), which fills in the parts'
        _require(self.preset in ("", TrainOptions.preset, name), self, "preset", rule)
        object.__setattr__(self, "preset", name)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainOptions:
        """Options that have the name of a preset: as `obdsd.presets` fills them in, and as a run's config.yaml holds them."""
        known = converted(cls, values)
        name = known.pop("preset", "")
        return cls(**known)._called(name)

    def _called(self, name: str) -> TrainOptions:
        object.__setattr__(self, "preset", name or self.preset)
        return self

    def _check_together(self) -> None:
        """Options that do not go together."""
        _require((self.schedule == "steps") == bool(self.lr_steps), self, "lr_steps", f"and schedule={self.schedule} must go together")
        _require(not (self.val_fraction and self.val_fold), self, "val_fold", "and val_fraction are two ways; give one")
        reads = self.score != "test" and self.test_every
        _require(not reads, self, "test_every", f"reads the test classes, score={self.score} does not; leave one of them out")
        chooses = self.select == "best" or self.patience > 0
        _require(not chooses or 1 <= self.evaluate_every <= self.epochs, self, "evaluate_every", "leaves nothing to choose from; try 1")
        _require(not (self.head == "none" and self.head_only_epochs), self, "head_only_epochs", "needs a head; use head=linear")
        projects = self.head_init == "projection" and self.init is None
        _require(not projects or self.head in PROJECTABLE, self, "head_init", f"needs head=linear, not {self.head}")
        _require(not (self.frozen and self.backbone == "features"), self, "frozen", "is for images, embeddings are features; leave it out")
        fixed = self.frozen or self.backbone == "features" or self.init is not None
        _require(fixed or self.feature_power == 1, self, "feature_power", "is for features that are not trained; add --frozen")
        views = self.supervision == "none" and self.loss.name != "none"
        fixed = views and self.frozen
        _require(not fixed, self, "supervision", "needs views of an image, frozen features have none; leave one of them out")
        _require(not (views and self.per_class == 1), self, "per_class", f"leaves no two views for loss={self.loss} to compare; try 2")
        self._check_alone()
        noisy = self.supervision == "none" and self.label_noise
        _require(not noisy, self, "label_noise", "has no labels to spoil without supervision; leave it out")
        _ = self.fold

    def _check_alone(self) -> None:
        """A teacher that is learned from alone must know something, and from the first epoch on."""
        if self.loss.name != "none":
            return
        teacher = TEACHERS.find(self.teacher.name)
        knows = self.has_teacher and not getattr(teacher, "knows_proxies", False)  # who does is the student as it was
        remedy = "choose one that is another model, as frozen(source=MODEL) or embeddings(file=FILE)"
        _require(knows, self, "loss", f"learns from the teacher alone, and teacher={self.teacher} knows nothing new; {remedy}")
        _require(self.weight > 0, self, "weight", "leaves nothing to learn with loss=none; try 1")
        _require(self.ramp == "constant", self, "ramp", "teaches nothing in the first epoch, and loss=none neither; use ramp=constant")

    @property
    def distils(self) -> bool:
        """Whether anything is taught beside the labels."""
        return self.has_teacher or getattr(SYSTEMS.find(self.system.name), "teaches", False)

    @property
    def has_teacher(self) -> bool:
        """Whether there is one that teaches."""
        return getattr(TEACHERS.find(self.teacher.name), "teaches", True)

    @property
    def has_targets(self) -> bool:
        """Whether the targets say what is taught."""
        return self.has_teacher or (self.distils and getattr(SYSTEMS.find(self.system.name), "teaches_targets", True))

    @property
    def needs_held_out_classes(self) -> str | None:
        """The option that cannot do without them, if there is one."""
        wanted = {"select": self.select == "best", "patience": self.patience > 0, "score": self.score == "validation"}
        wanted["interpolate"] = self.interpolate
        return next((name for name, wants in wanted.items() if wants), None)

    @property
    def fold(self) -> tuple[int, int] | None:
        """`val_fold` as (i, k)."""
        if self.val_fold is None:
            return None
        i, slash, k = self.val_fold.partition("/")
        whole = bool(slash) and i.isdecimal() and k.isdecimal()
        _require(whole and int(i) < int(k) and int(k) >= 2, self, "val_fold", "must be I/K with I from 0 to K-1, as 0/5")
        return int(i), int(k)

    @property
    def loss_before(self) -> Spec | None:
        """The loss of a training before this one, if the teacher names one."""
        return TEACHERS.named(self.teacher).get("loss")

    def first(self) -> TrainOptions:
        """The training before this one whose model teaches: with the plain loss, or with that which the teacher names."""
        loss = self.loss_before
        if loss is None:
            return self.replace(teacher="none", preset=self.preset.partition("+")[0])
        return self.replace(teacher="none", loss=loss, preset="")

    def replace(self, **changes: Any) -> TrainOptions:
        """A copy with other values, which may be written as on the command line. With other parts it has another name."""
        known = converted(TrainOptions, changes)
        name = known.pop("preset", None)
        made = replace(self, preset="", **known)
        if name is None and made.preset == name_of_parts(self):
            name = self.preset
        return made._called(name or "")

    def kept(self) -> dict[str, Any]:
        """What a run's config.yaml holds."""
        return {name: value for name, value in as_dict(self).items() if _ABOUT[name]["scope"] != "command"}

    def identity(self) -> dict[str, Any]:
        """What tells a run from others: everything that changes its numbers, but for what is left to the device."""
        own = {name: value for name, value in as_dict(self).items() if _ABOUT[name]["scope"] == "run"}
        if self.channels_last is None:
            del own["channels_last"]
        return {**own, "batch_size": self.batch_size or USUAL_BATCH, "cache_side": self.cache_side or 0}


_ABOUT = {each.name: each.metadata for each in fields(TrainOptions)}


def name_of_parts(options: TrainOptions) -> str:
    """What a training is called that is no preset's: its loss, who teaches, and what and how, where that is not the usual.

    >>> name_of_parts(TrainOptions("x.npz").replace(teacher="ema")), name_of_parts(TrainOptions("x.npz").replace(teacher="none"))
    ('ms+ema', 'ms')
    """
    parts = ["ms" if options.loss.name == "multi-similarity" else options.loss.name]
    if options.has_teacher:
        parts.append(options.teacher.name)
    if not why_idle(options, "targets") and (targets := _names(options.targets)) != "batch-diffusion":
        parts.append(targets)
    if not why_idle(options, "matching") and options.matching.name != "kl":
        parts.append(options.matching.name)
    if options.system.name != "standard":
        parts.append(options.system.name)
    return "+".join(parts)


def _names(part: Spec) -> str:
    """The part and those inside it: `balanced-pairwise`."""
    return "-".join([part.name, *(_names(inner) for inner in part.positional if isinstance(inner, Spec))])


def _as_in_training(name: str) -> Any:
    """An option of a training as one of another command: the same default and sentence."""
    return option(getattr(TrainOptions, name), _ABOUT[name]["sentence"])


@dataclass(frozen=True, kw_only=True)
class OpeningOptions:
    """How a collection is opened, the same for every command; beside the split, whose default may be that of a run."""

    merge: bool = _as_in_training("merge")
    root: str | None = _as_in_training("root")
    allow_incomplete: bool = _as_in_training("allow_incomplete")
    skip_unreadable: bool = _as_in_training("skip_unreadable")
    drop_nan: bool = _as_in_training("drop_nan")


OPENING = tuple(each.name for each in fields(OpeningOptions))


def opening(options: TrainOptions | OpeningOptions) -> dict[str, Any]:
    """What `open_data` is told beside the source and the split."""
    return {name: getattr(options, name) for name in OPENING}


def why_idle(options: TrainOptions, name: str) -> str:
    """Why an option does nothing beside the others; an empty text if it acts."""
    idle = _ABOUT[name]["idle"]
    return idle(options) if idle else ""


def _require(ok: bool, options: object, name: str, rule: str) -> None:
    if not ok:
        raise InputError(f"{name}={_shown(getattr(options, name))} {rule}")
