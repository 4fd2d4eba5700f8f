"""From options to the data, the model, the system and the optimiser of a training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import reduce
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from obdsd.catalogue import LOSSES, MATCHINGS, SYSTEMS, TARGETS, TEACHERS
from obdsd.data import Collection, Part, lies_on_disk, open_data
from obdsd.data.check import check_scorable, check_trainable, check_unseen, scored_parts
from obdsd.data.noise import flip_labels
from obdsd.data.unusable import Progress, check_readable
from obdsd.errors import InputError
from obdsd.files import check_file
from obdsd.method.distillation import SelfDistillation
from obdsd.models.folder import check_pretrained
from obdsd.models.places import located
from obdsd.objectives import System
from obdsd.options import ARCHITECTURE, RECOMMENDED, USUAL_BATCH, TrainOptions, opening, why_idle
from obdsd.preprocessing import Preprocessing
from obdsd.provenance import TrainedOn, short_digest

if TYPE_CHECKING:  # it takes seconds to import, and data that cannot be opened are told without it
    from obdsd.data.teachers import StoredTeacher
    from obdsd.models import Embedder


def collection_of(options: TrainOptions, progress: Progress = lambda stage, done, total: None) -> Collection:
    """The data, with classes held out as asked. `progress` is told how far the reading is where images are left out."""
    split: dict[str, Any] = {"seed": options.split_seed, "test_fraction": options.test_fraction}
    collection = open_data(options.data, **split, **opening(options), progress=progress)
    check_trainable(collection)
    if options.val_fraction or options.fold:
        if "val" in collection.parts:
            raise InputError(f"{options.data}: has held-out classes of its own (val); leave val_fraction and val_fold out")
        collection = collection.hold_out(fraction=options.val_fraction or None, fold=options.fold, seed=options.split_seed)
    name = options.needs_held_out_classes
    if name and "val" not in collection.parts:
        raise InputError(f"{name}={getattr(options, name)} needs held-out classes; add val_fraction=0.2")
    if "val" in collection.parts:  # of few held-out classes fewer are searched for than `ks` says
        check_scorable(options.data, collection.parts, "val")
    if options.score == "test" and not nothing_to_score(options, collection):
        scored = check_scorable(options.data, collection.parts, "test", options.ks)
        collection = replace(collection, parts={**collection.parts, **scored})
    return collection


def nothing_to_score(options: TrainOptions, collection: Collection) -> bool:
    """Whether everything is to be trained on."""
    return options.score == "none" or (options.test_fraction == 0 and not {"test", "query", "gallery"} & {*collection.parts})


def fitted(options: TrainOptions, collection: Collection, processes: int = 1) -> tuple[TrainOptions, list[str]]:
    """The options with all that depends on the data, and what the user should know of it."""
    changes: dict[str, Any] = {}
    remarks = []
    if options.score == "test" and nothing_to_score(options, collection):
        changes["score"] = "none"
        remarks.append("test_fraction=0: all classes are trained on, and nothing is scored")
    if options.batch_size is None:
        k, part = max(1, options.per_class), training_part(options, collection)  # fewer than 2 are refused where batches are made
        classes = len(part) if options.supervision == "none" else int((np.bincount(part.labels) > 1).sum())
        fit = min(USUAL_BATCH // k, classes, len(part) // (1 if options.supervision == "none" else k))
        while fit > 2 and fit * k % processes:
            fit -= 1
        changes["batch_size"] = max(fit, 2) * k
        if changes["batch_size"] != USUAL_BATCH // k * k:
            what = "items" if options.supervision == "none" else "classes of 2 items or more"
            remarks.append(f"batches of {changes['batch_size']}: the training set has {classes} {what}; --batch-size chooses another size")
    return (options.replace(**changes) if changes else options), remarks


def check_images(options: TrainOptions, collection: Collection, progress: Progress) -> None:
    """Refuse images that cannot be read before a training meets them, which may be late. Those that it never reads do not matter."""
    if not options.skip_unreadable:  # else they are left out
        used = {name: part for name, part in collection.parts.items() if options.score == "test" or name in ("train", "val")}
        check_readable(replace(collection, parts=used), progress)


def check_sources(options: TrainOptions) -> None:
    """Refuse data, teachers and files of weights that cannot be opened, and a backbone that there is not, before anything is built."""
    if lies_on_disk(options.data):
        collection_of(options.replace(skip_unreadable=False))  # whether images can be read is looked at later, once
    teacher = options.teacher.settings if options.teacher.name in ("frozen", "embeddings", "classes") else {}
    if "source" in teacher:
        located(str(teacher["source"]))
    if "file" in teacher:
        check_file(Path(str(teacher["file"])).expanduser())
    if options.init is not None:
        return
    check_pretrained(options.pretrained)
    from obdsd.models.backbones import preprocessing_of  # last: only timm knows its names, and takes seconds to import

    preprocessing_of(options.backbone)


def provenance_of(options: TrainOptions, collection: Collection, data: Mapping[str, Any], before: Iterable[TrainedOn]) -> TrainedOn:
    """What the trained model is told to remember; `data` is the data record, `before` what it and those who taught it had seen."""
    parts = {name: part for name, part in collection.parts.items() if name in ("train", "val")}
    now = TrainedOn(
        data=PurePath(collection.name).name,
        split_seed=options.split_seed,
        test_fraction=float(options.test_fraction),
        parts={name: part["fingerprint"] for name, part in data.items()},
        classes={name: " ".join(short_digest(each.encode()) for each in part.class_names) for name, part in parts.items()},
        items={name: " ".join(part.digests()) for name, part in parts.items()},
    )
    return reduce(TrainedOn.after, before, now)


def training_part(options: TrainOptions, collection: Collection) -> Part:
    """What the model is trained on: the training classes, with a share of wrong labels if asked, or each item a class of its own."""
    train = collection["train"]
    if options.supervision == "none":
        return train.replace(labels=np.arange(len(train)), class_names=tuple(map(str, range(len(train)))))
    return train.replace(labels=flip_labels(train.labels, options.label_noise, options.seed)) if options.label_noise else train


def model_of(options: TrainOptions, collection: Collection) -> Embedder:
    """The model that a training begins with."""
    from obdsd.models import FEATURES, Embedder

    rows = collection.kind == "embeddings"
    if options.init is not None:
        return _begun_with(options, collection)
    if rows != (options.backbone == FEATURES):
        remedy = f"use backbone={FEATURES}" if rows else "use a backbone for images, as tiny-conv or resnet50"
        raise InputError(f"backbone={options.backbone} does not take {collection.kind}; {remedy}")
    width = len(collection["train"][0][0]) if rows else None
    dim = options.dim
    if width is not None and options.head_init == "projection" and (dim is None or options.preset == RECOMMENDED):
        dim = min(dim or 128, width)  # it keeps what there is
    names = ("pooling", "head", "hidden", "branches", "slices", "slice_weights", "feature_power", "batchnorm", "pretrained", "size", "seed")
    same = {name: getattr(options, name) for name in names}
    return Embedder(options.backbone, dim=dim, features=width, unit_features=options.frozen, **same)


def of_head(options: TrainOptions) -> TrainOptions:
    """The options of the same training on the features themselves, if it is one on frozen features."""
    images = {"pretrained": None, "init": None, "pooling": "avg", "size": None, "batchnorm": None}
    return options.replace(frozen=False, backbone="features", **images) if options.frozen else options


def _begun_with(options: TrainOptions, collection: Collection) -> Embedder:
    """The model of another run, or of a model folder."""
    from obdsd.models import open_model

    model = open_model(str(options.init))
    wanted = "images" if model.preprocessing is not None else "embeddings"
    if collection.kind != wanted:
        raise InputError(f"init={options.init} takes {wanted}, {options.data} holds {collection.kind}; give a model that fits the data")
    if wanted == "embeddings" and (length := len(collection["train"][0][0])) != model.feature_dim:
        lengths = f"takes rows of length {model.feature_dim}, {options.data} has {length}"
        raise InputError(f"init={options.init} {lengths}; give a model that fits the data")
    if options.frozen and not model.architecture.unit_features:
        raise InputError(f"init={options.init} was trained as a whole network, not as a head; add --no-frozen")
    return model.train()


def with_side(options: TrainOptions, *seen: Preprocessing | None) -> TrainOptions:
    """The options with the shorter side of images that are kept: as much as those who see them take at a test."""
    sides = [each.resize for each in seen if each is not None]
    return options.replace(cache_side=max(sides)) if options.cache and options.cache_side is None and sides else options


def described(options: TrainOptions, model: Embedder, device: torch.device) -> TrainOptions:
    """The options with what the model really is, where it was not made by them, and how its images are stored."""
    made = {} if options.init is None else {name: getattr(model.architecture, name) for name in ARCHITECTURE}
    if options.channels_last is None and not why_idle(options, "channels_last"):
        made["channels_last"] = device.type in ("cpu", "cuda")
    return options.replace(**made)


def check_taught(options: TrainOptions) -> None:
    """Refuse settings of the targets and of the matching that cannot be, whatever the teacher is."""
    TARGETS.build(options.targets)
    MATCHINGS.build(options.matching, dim=options.dim or 1, teacher_dim=None, seed=options.seed)


def system_of(options: TrainOptions, model: Embedder, part: Part) -> System:
    """The model with all that it learns from."""

    def make_loss(dim: int) -> nn.Module:
        return LOSSES.build(options.loss, num_classes=len(part.class_names), dim=dim, seed=options.seed)

    teacher = TEACHERS.build(options.teacher, model=model, part=part, num_samples=len(part), dim=model.dim)
    matching = MATCHINGS.build(options.matching, dim=model.dim, teacher_dim=teacher.dim, seed=options.seed)
    distill = SelfDistillation(options.weight, options.temperature, TARGETS.build(options.targets), options.ramp, matching)
    taught: dict[str, Any] = {"teacher": teacher, "distill": distill, "part": part}
    system = SYSTEMS.build(options.system, model=model, make_loss=make_loss, epochs=options.epochs, seed=options.seed, **taught)
    try:
        system.check(len(part))
    except InputError as fault:
        parts = ", ".join(f"{name}={getattr(options, name)}" for name in ("system", "loss", "teacher", "targets", "matching"))
        raise InputError(f"{parts}: {fault}") from fault
    return system


def _knowing(system: System) -> list[Embedder | StoredTeacher]:
    """Those who teach a system's model and may have been trained somewhere."""
    from obdsd.data.teachers import StoredTeacher
    from obdsd.models import Embedder

    return [module for module in system.modules() if isinstance(module, (Embedder, StoredTeacher)) and module is not system.model]


def seen_before(system: System, begun_as: TrainedOn | None) -> list[TrainedOn]:
    """What a model knows of before its training: by the model that it began with, and by those who taught it."""
    return [seen for seen in (begun_as, *(teacher.trained_on for teacher in _knowing(system))) if seen is not None]


def check_seen(options: TrainOptions, collection: Collection, system: System, begun_as: TrainedOn | None) -> list[str]:
    """A teacher, or a model to begin with, that was trained on what is scored is refused: the scores would come from there. What to know
    of others."""
    if options.score == "none":
        return []
    chosen = scored_parts(options.data, collection.parts, "val" if options.score == "validation" else "test")
    teachers = _knowing(system)
    remarks = [remark for teacher in teachers for remark in check_unseen(str(options.teacher), teacher.trained_on, chosen)]
    from obdsd.data.teachers import StoredTeacher

    if any(isinstance(teacher, StoredTeacher) and teacher.trained_on is None for teacher in teachers):
        unknown = "its file does not say what its model was trained on; if on what is scored, the scores owe to that"
        remarks.append(f"teacher={options.teacher}: {unknown}")
    return remarks if begun_as is None else [*remarks, *check_unseen(str(options.init or options.pretrained), begun_as, chosen)]


def never_taught(options: TrainOptions, system: System) -> list[str]:
    """What to know if the distillation never acts, not even in the last epoch."""
    if not options.distils or system.current_weight((options.epochs - 1) / options.epochs) > 0:
        return []
    if options.weight > 0:
        return ["the distillation never acts: its weight is 0 in the first epoch, the only one; more epochs or a constant ramp let it act"]
    return ["the distillation never acts: its weight is 0; this is the plain loss"]


def optimizer_of(options: TrainOptions, system: System) -> torch.optim.Optimizer:
    """One group each for the backbone, the head and what the system trains beside them; `base_lr` is what the schedule multiplies."""
    model, beside = system.model, system.parameter_groups(options.lr)
    if options.objective_lr is not None and all(group.get("at_base_lr") for group in beside):
        raise InputError(f"objective_lr={options.objective_lr} does nothing: loss={options.loss} trains no parameters; leave it out")
    for group in beside:
        if not group.pop("at_base_lr", False) and options.objective_lr is not None:
            group["lr"] = options.objective_lr
    backbone: dict[str, Any] = {"params": [*model.backbone.parameters()]}
    head: dict[str, Any] = {"params": [*model.head.parameters()], "lr": options.head_lr or options.lr}
    groups = [{"lr": options.lr, **group} for group in (backbone, head, *beside) if group["params"]]
    if not groups:
        raise InputError(f"head={options.head} on backbone={options.backbone} leaves nothing to train; use head=linear")
    for group in groups:
        group["base_lr"] = group["lr"]
    if options.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=options.lr, weight_decay=options.weight_decay, momentum=options.momentum)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[options.optimizer]
    scaled = options.precision == "16" and options.clip > 0  # a fused step unscales the gradients itself, after they were to be clipped
    return kind(groups, lr=options.lr, weight_decay=options.weight_decay, fused=not scaled)


def with_whole_statistics(model: Embedder, micro_batch: int, processes: int, device: torch.device) -> Embedder:
    """BatchNorm that trains takes its statistics from the whole batch, wherever its rows are; chunks have statistics of their own."""
    if model.architecture.batchnorm != "train" or not any(isinstance(module, _BatchNorm) for module in model.modules()):
        return model
    if micro_batch:
        raise InputError(f"micro_batch={micro_batch} would change BatchNorm's statistics; use batchnorm=frozen with it")
    if processes > 1 and device.type != "cuda":
        fault = f"batchnorm=train over {processes} processes needs GPUs, device={device.type}"
        raise InputError(f"{fault}; use batchnorm=frozen or one process")
    if processes == 1:
        return model
    from timm.layers.norm_act import convert_sync_batchnorm  # torch's own loses the activation that timm keeps inside a BatchNorm

    shared: Embedder = convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
    return shared
