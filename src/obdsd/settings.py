"""The options of a training and of a comparison: the same names in Python, in YAML and on the command line. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from obdsd.errors import InputError

Teaching = Literal["none", "previous-epoch", "ema", "memory", "frozen", "features", "born-again", "heads"]
TargetKind = Literal["pairwise", "batch-diffusion", "global-diffusion", "proxy-diffusion", "mean-mix", "uniform-mix"]

PROXY_LOSSES = ("proxy-anchor", "proxy-nca", "soft-triple")
AT_LEAST_0 = (
    *("weight", "feature_weight", "feature_from", "epoch_batches", "weight_decay", "clip", "warmup_epochs", "head_only_epochs"),
    *("micro_batch", "evaluate_every", "test_every", "patience", "checkpoint_minutes", "checkpoint_steps"),
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to train.

    Args:
        epochs: Length of the training.
        loss: The base loss, multi-similarity, margin, r-margin, proxy-anchor, proxy-nca, soft-triple or nt-xent, or pml:NAME for any loss
            of pytorch-metric-learning.
        miner: A miner of pytorch-metric-learning by its name, beside a pml: loss.
        sampling: How margin draws its triplets.
        supervision: What makes two images alike, their labels or, with none, being two views of one image.
        teacher: Who teaches; previous-epoch is PSD and OBD-SD, born-again a complete first training (BAR), heads wider heads beside the
            embedding (S2SD), features the pretrained features that training starts from, none is the plain loss.
        teacher_model: The model folder or run that teaches, for teacher=frozen.
        ema_decay: How slowly the ema teacher follows.
        heads: Widths of the heads of teacher=heads, as 512,1024,1536,2048.
        heads_pooling: How local features become what those heads read.
        feature_weight: Weight at which the pooled features teach too, beside teacher=heads (S2SD's MSDF); 0 does not.
        feature_from: Steps before the features begin to teach.
        targets: What is taught; pairwise is PSD, batch-diffusion OBD-SD; global-diffusion walks over the whole training set once an
            epoch, proxy-diffusion over the batch and its classes' proxies; the others are controls without a graph.
        form: The paper's symmetric walk, or the published code's on softmax probabilities.
        omega: Probability of continuing the walk, or the share that is mixed in by a control.
        walk_temperature: Of the softmax form's transition matrix.
        neighbours: Nearest neighbours of an item on the graph of global-diffusion.
        affinity_power: What its similarities are raised to.
        scale: Scales the cosines of pairwise targets; 1-omega is the third control.
        weight: Final weight of the distillation (λ).
        temperature: Of the distillation (τ).
        ramp: Whether the weight grows linearly with the epochs or is constant.
        balanced: Scale the targets until their columns sum to 1 like their rows, so that no item draws all others.
        backbone: A name of timm (with the tag of its weights, as .tv_in1k, torchvision's), bn-inception, tiny-conv, or features for data
            that are embeddings.
        weights: imagenet (downloaded), offline (in a pip package), none, or a file; default by backbone.
        pooling: How local features become one row.
        head: The layers on the pooled features.
        hidden: Width of a two-layer head between its layers; default that of the features.
        head_init: Whether a linear head begins at random or as the projection that keeps most of the training set's features.
        dim: Length of the embeddings; default 128, or that of the features if there is no head.
        batchnorm: Whether BatchNorm keeps its statistics; default frozen with weights, else train.
        size: Side of the images, if not the backbone's own.
        epoch_batches: Batches in an epoch, to try something out quickly; 0 takes as many as the training set fills.
        batch_size: Items in a batch, which is also the manifold of the diffusion.
        per_class: Items of a class in a batch; views of an image without supervision.
        replacement: Draw classes and items with replacement, as the published code does.
        crop: The smallest share of an image that a random crop keeps; 1 keeps all.
        flip: Mirror images at random.
        label_noise: Share of training labels that are replaced by a wrong one, for experiments.
        optimizer: The optimiser.
        lr: Learning rate.
        head_lr: Learning rate of the head, if another.
        objective_lr: Learning rate of the loss's own parameters, if not the loss's usual one.
        weight_decay: Weight decay of the model.
        momentum: Of sgd.
        schedule: How the learning rates change over the epochs.
        lr_steps: Epochs at which schedule=steps multiplies the learning rates, as 200,250.
        lr_gamma: What it multiplies them by.
        warmup_epochs: Epochs over which the learning rates rise from 0.
        head_only_epochs: First epochs in which the backbone stands still.
        clip: Largest norm of the gradient; 0 does not clip.
        micro_batch: Items that go through the model at once, for batches larger than memory; the gradient stays that of the whole batch.
        precision: Of the model's forward pass.
        channels_last: Store images with channels last, which is faster on some devices.
        compile: Compile the model with torch.compile.
        val_fraction: Share of the training classes that is held out to choose by.
        val_fold: The i-th of k parts of the training classes is held out instead, as 0/5.
        evaluate_every: Epochs between evaluations on held-out classes and of the training set's geometry; 0 only at the end.
        test_every: Epochs between evaluations on test classes, for curves only; nothing is ever chosen by them.
        patience: Evaluations without improvement on held-out classes after which training stops; 0 never stops early.
        select: Which epoch's model is kept, the last or the best on held-out classes.
        score: What the finished model is scored on; validation leaves the test classes unread, for a search of settings.
        checkpoint_minutes: Minutes between checkpoints inside an epoch; 0 writes them at its end only.
        checkpoint_steps: Also write one after so many steps; 0 does not.
        ks: Depths of Recall@K, as 1,2,4,8.
        reference: Also score the untrained features and their PCA, where there is something pretrained.
        split_seed: Splits the classes where the data give no split.
        test_fraction: Share of the classes that test where the data give no split.
        allow_incomplete: Accept a benchmark with missing classes or files.
        device: cpu, cuda, mps or auto, which takes an accelerator if there is one.
        workers: Processes that load images; default 0 for embeddings and glyphs, else one a core, at most 8.
        logger: Also log to tensorboard, wandb or mlflow (pip install the one you want).
    """

    epochs: int = 150
    loss: str = "multi-similarity"
    miner: str | None = None
    sampling: Literal["distance", "random", "semihard", "softhard", "regularised"] = "distance"
    supervision: Literal["labels", "none"] = "labels"
    teacher: Teaching = "previous-epoch"
    teacher_model: str | None = None
    ema_decay: float = 0.999
    heads: str = "512,1024,1536,2048"
    heads_pooling: Literal["avg", "avg+max"] = "avg+max"
    feature_weight: float = 0.0
    feature_from: int = 1000
    targets: TargetKind = "batch-diffusion"
    form: Literal["symmetric", "softmax"] = "symmetric"
    omega: float = 0.3
    walk_temperature: float = 1.0
    neighbours: int = 50
    affinity_power: float = 1.0
    scale: float = 1.0
    weight: float = 1000.0
    temperature: float = 1.0
    ramp: Literal["linear", "constant"] = "linear"
    balanced: bool = False
    backbone: str = "resnet50.tv_in1k"
    weights: str | None = None
    pooling: Literal["avg", "avg+max", "token"] = "avg"
    head: Literal["linear", "two-layer", "none"] = "linear"
    hidden: int | None = None
    head_init: Literal["random", "projection"] = "random"
    dim: int | None = None
    batchnorm: Literal["frozen", "train"] | None = None
    size: int | None = None
    epoch_batches: int = 0
    batch_size: int = 112
    per_class: int = 2
    replacement: bool = False
    crop: float = 0.08
    flip: bool = True
    label_noise: float = 0.0
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    lr: float = 1e-5
    head_lr: float | None = None
    objective_lr: float | None = None
    weight_decay: float = 4e-4
    momentum: float = 0.9
    schedule: Literal["constant", "steps", "cosine"] = "constant"
    lr_steps: str = ""
    lr_gamma: float = 0.3
    warmup_epochs: int = 0
    head_only_epochs: int = 0
    clip: float = 0.0
    micro_batch: int = 0
    precision: Literal["32", "bf16", "16"] = "32"
    channels_last: bool = False
    compile: bool = False
    val_fraction: float = 0.0
    val_fold: str | None = None
    evaluate_every: int = 10
    test_every: int = 0
    patience: int = 0
    select: Literal["last", "best"] = "last"
    score: Literal["test", "validation"] = "test"
    checkpoint_minutes: float = 10.0
    checkpoint_steps: int = 0
    ks: str = "1,2,4,8"
    reference: bool = True
    split_seed: int = 0
    test_fraction: float = 0.5
    allow_incomplete: bool = False
    device: str = "auto"
    workers: int | None = None
    logger: Literal["tensorboard", "wandb", "mlflow"] | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "neighbours"):
            _require(getattr(self, name) >= 1, self, name, "must be 1 or more")
        for name in ("lr", "head_lr", "objective_lr", "temperature", "walk_temperature", "scale", "lr_gamma", "affinity_power"):
            value = getattr(self, name)
            _require(value is None or 0 < value < float("inf"), self, name, "must be a positive number")
        for name in AT_LEAST_0:
            _require(0 <= getattr(self, name) < float("inf"), self, name, "must be 0 or more")
        _require(
            not (self.score == "validation" and self.test_every), self, "test_every", "reads the test classes, score=validation does not"
        )
        for name in ("label_noise", "val_fraction", "momentum", "ema_decay", "omega"):
            _require(0 <= getattr(self, name) < 1, self, name, "must lie in [0, 1)")
        _require(0 < self.crop <= 1, self, "crop", "must lie in (0, 1]")
        _require(self.workers is None or self.workers >= 0, self, "workers", "must be 0 or more")
        _require((self.schedule == "steps") == bool(self.steps), self, "lr_steps", f"and schedule={self.schedule} must go together")
        _require(self.teacher != "frozen" or bool(self.teacher_model), self, "teacher", "needs teacher_model, a run or a model folder")
        _require(self.teacher == "frozen" or not self.teacher_model, self, "teacher_model", "goes with teacher=frozen only")
        _require(self.miner is None or self.loss.startswith("pml:"), self, "miner", "goes with loss=pml:NAME only")
        _require(not (self.val_fraction and self.val_fold), self, "val_fold", "and val_fraction are two ways; give one")
        chooses = self.select == "best" or self.patience > 0
        _require(not chooses or 1 <= self.evaluate_every <= self.epochs, self, "evaluate_every", "leaves nothing to choose from; try 1")
        _require(not (self.head == "none" and self.head_only_epochs), self, "head_only_epochs", "needs a head; use head=linear")
        _require(self.head_init == "random" or self.head == "linear", self, "head_init", f"needs head=linear, not {self.head}")
        self._check_system()
        _check_seed(self, "split_seed")
        _ = self.fold, self.depths

    def _check_system(self) -> None:
        """Teachers, targets and losses that do not go together."""
        _require(bool(self.head_widths), self, "heads", "must hold a width; try 2048")
        _require(
            not (self.compile and self.teacher == "heads"), self, "compile", "does not reach the features that heads read; leave it out"
        )
        if self.targets == "global-diffusion" and self.teacher != "none":
            _require(self.teacher not in ("memory", "heads"), self, "teacher", "has no model that could embed the whole training set")
        if self.targets == "proxy-diffusion" and self.teacher != "none":
            _require(self.loss in PROXY_LOSSES, self, "loss", f"has no proxies to walk over; use {' or '.join(PROXY_LOSSES)}")
            own = ("previous-epoch", "ema", "memory", "born-again")
            _require(self.teacher in own, self, "teacher", "does not live among the proxies; use previous-epoch")
        if self.supervision == "none":
            _require(self.label_noise == 0, self, "label_noise", "has no labels to spoil without supervision")

    @property
    def steps(self) -> tuple[int, ...]:
        """`lr_steps` as numbers."""
        return _numbers(self, "lr_steps", "200,250")

    @property
    def head_widths(self) -> tuple[int, ...]:
        """`heads` as numbers."""
        return _numbers(self, "heads", "512,1024")

    @property
    def depths(self) -> tuple[int, ...]:
        """`ks` as numbers; 1 is always among them."""
        depths = _numbers(self, "ks", "1,2,4,8")
        _require(bool(depths), self, "ks", "must hold a number; try 1,2,4,8")
        return tuple(sorted({1, *depths}))

    @property
    def needs_held_out_classes(self) -> str | None:
        """The option that cannot do without them, if there is one."""
        wanted = {"select": self.select == "best", "patience": self.patience > 0, "score": self.score == "validation"}
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


@dataclass(frozen=True, kw_only=True)
class TrainOptions(Settings):
    """Options of `obdsd train`.

    Args:
        data: The collection, NAME:PATH (cub200, cars196, sop, inshop, folder, manifest, embeddings), glyphs, or an embeddings file.
        preset: Settings by name, a loss (ms, margin, r-margin, proxy-anchor, proxy-nca, soft-triple, nt-xent) alone or with +psd, +obd-sd,
            +bar, +s2sd-msd, +anchor, a control …; from Python obdsd.presets.preset(NAME, DATA) fills the fields, this one is their label.
        out: The run's folder; default runs/DATA-PRESET-SEED.
        seed: Of everything random; the same seed gives the same run.
        resume: Go on with the run in that folder, from its last checkpoint.
        report: Write report.html into that folder at the end.
    """

    data: str = field(kw_only=False)
    preset: str = "ms+obd-sd"
    out: str | None = None
    seed: int = 0
    resume: bool = False
    report: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_seed(self, "seed")
        taught = self.teacher != "none" and self.preset != "" and "+" not in self.preset
        remedy = f'from Python use obdsd.presets.preset("{self.preset}", data); with a teacher name a preset such as {self.preset}+psd'
        _require(not taught, self, "preset", f"is the plain loss, but teacher={self.teacher} would teach; {remedy}")


@dataclass(frozen=True, kw_only=True)
class CompareOptions(Settings):
    """Options of `obdsd compare`.

    Args:
        data: The collection, as for obdsd train.
        presets: The presets to compare, as ms,ms+psd,ms+obd-sd; the first is the baseline.
        rows: A YAML file of rows instead, NAME with its settings (and a preset to start from); the first is the baseline.
        seeds: How many seeds each is trained with.
        first_seed: The first of them; the others follow.
        out: The folder of all runs and tables.
        jobs: Runs at a time, each in a process with its share of the cores.
        report: Write report.html into that folder at the end.
    """

    data: str = field(kw_only=False)
    presets: str = "ms,ms+psd,ms+obd-sd"
    rows: str | None = None
    seeds: int = 5
    first_seed: int = 0
    out: str = "comparison"
    jobs: int = 1
    report: bool = True
    given: tuple[str, ...] = field(default=(), metadata={"hidden": True})  # names of the settings that hold for every row

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("seeds", "jobs"):
            _require(getattr(self, name) >= 1, self, name, "must be 1 or more")
        _check_seed(self, "first_seed")


@dataclass(frozen=True, kw_only=True)
class ReproduceOptions:
    """Options of `obdsd reproduce`.

    Args:
        table: Which table of the paper; --list names them all.
        list: Show all tables with their rows, and run nothing.
        scale: paper trains whole networks on a benchmark (GPUs, days), small a head on frozen features (two cores, minutes a row), tiny
            takes a few steps on built-in letters, to see that everything runs.
        data: A benchmark for scale=paper, as cub200:PATH, frozen features of CUB-200-2011 for small, as cub.npz, glyphs for tiny.
        seeds: How many seeds each row is trained with.
        only: One row of the table alone.
        out: The folder of all runs, results and tables; what is finished there is not run again.
        jobs: Runs at a time, each in a process with its share of the cores.
    """

    table: str | None = field(default=None, kw_only=False)
    list: bool = False
    scale: Literal["paper", "small", "tiny"] = "paper"
    data: str | None = None
    seeds: int = 5
    only: str | None = None
    out: str = "reproduction"
    jobs: int = 1

    def __post_init__(self) -> None:
        for name in ("seeds", "jobs"):
            _require(getattr(self, name) >= 1, self, name, "must be 1 or more")


def _require(ok: bool, options: object, name: str, rule: str) -> None:
    if not ok:
        raise InputError(f"{name}={getattr(options, name)} {rule}")


def _check_seed(options: object, name: str) -> None:
    _require(0 <= getattr(options, name) < 2**31, options, name, f"must be a whole number from 0 to {2**31 - 1}")


def _numbers(options: object, name: str, example: str) -> tuple[int, ...]:
    words = [word.strip() for word in getattr(options, name).split(",") if word.strip()]
    _require(all(word.isdecimal() and int(word) > 0 for word in words), options, name, f"must be whole numbers with commas, as {example}")
    return tuple(map(int, words))
