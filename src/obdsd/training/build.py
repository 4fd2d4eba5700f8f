"""From options to the data, the model, the system and the optimiser of a training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from obdsd.catalogue import LOSSES, SYSTEMS, TARGETS, TEACHERS
from obdsd.data import Collection, Part, lies_on_disk, open_data
from obdsd.data.check import check_scorable, check_unseen, scored_parts
from obdsd.data.noise import flip_labels
from obdsd.errors import InputError
from obdsd.method.distillation import SelfDistillation
from obdsd.models.folder import check_pretrained
from obdsd.objectives import System
from obdsd.options import TrainOptions
from obdsd.provenance import TrainedOn, short_digest

if TYPE_CHECKING:  # it takes seconds to import, and data that cannot be opened are told without it
    from obdsd.models import Embedder


def collection_of(options: TrainOptions) -> Collection:
    """The data, with classes held out as asked."""
    how: dict[str, Any] = {"seed": options.split_seed, "test_fraction": options.test_fraction, "allow_incomplete": options.allow_incomplete}
    collection = open_data(options.data, **how)
    if options.val_fraction or options.fold:
        if "val" in collection.parts:
            raise InputError(f"{options.data}: has held-out classes of its own (val); leave val_fraction and val_fold out")
        collection = collection.hold_out(fraction=options.val_fraction or None, fold=options.fold, seed=options.split_seed)
    name = options.needs_held_out_classes
    if name and "val" not in collection.parts:
        raise InputError(f"{name}={getattr(options, name)} needs held-out classes; add val_fraction=0.2")
    if "val" in collection.parts:  # of few held-out classes fewer are searched for than `ks` says
        check_scorable(options.data, collection.parts, "val")
    if options.score == "test":
        scored = check_scorable(options.data, collection.parts, "test", options.ks)
        collection = replace(collection, parts={**collection.parts, **scored})
    return collection


def check_sources(options: TrainOptions) -> None:
    """Refuse data and files of weights that cannot be opened, and a backbone that there is not, before anything is built."""
    if lies_on_disk(options.data):
        collection_of(options)
    check_pretrained(options.pretrained)
    from obdsd.models.backbones import preprocessing_of  # last: only timm knows its names, and takes seconds to import

    preprocessing_of(options.backbone)


def provenance_of(options: TrainOptions, collection: Collection, data: Mapping[str, Any]) -> TrainedOn:
    """What the trained model is told to remember; `data` is the data record."""
    parts = {name: part for name, part in collection.parts.items() if name in ("train", "val")}
    return TrainedOn(
        data=PurePath(collection.name).name,
        split_seed=options.split_seed,
        test_fraction=float(options.test_fraction),
        parts={name: part["fingerprint"] for name, part in data.items()},
        classes={name: " ".join(short_digest(each.encode()) for each in part.class_names) for name, part in parts.items()},
        items={name: " ".join(part.digests()) for name, part in parts.items()},
    )


def training_part(options: TrainOptions, collection: Collection) -> Part:
    """What the model is trained on: the training classes, with a share of wrong labels if asked, or each item a class of its own."""
    train = collection["train"]
    if options.supervision == "none":
        return train.replace(labels=np.arange(len(train)), class_names=tuple(map(str, range(len(train)))))
    return train.replace(labels=flip_labels(train.labels, options.label_noise, options.seed)) if options.label_noise else train


def model_of(options: TrainOptions, collection: Collection) -> Embedder:
    from obdsd.models import FEATURES, Embedder

    rows = collection.kind == "embeddings"
    if rows != (options.backbone == FEATURES):
        remedy = f"use backbone={FEATURES}" if rows else "use a backbone for images, as tiny-conv or resnet50"
        raise InputError(f"backbone={options.backbone} does not take {collection.kind}; {remedy}")
    width = len(collection["train"][0][0]) if rows else None
    dim = options.dim
    if dim is None and width is not None and options.head_init == "projection":
        dim = min(128, width)  # it keeps what there is
    same = {name: getattr(options, name) for name in ("pooling", "head", "hidden", "batchnorm", "pretrained", "size", "seed")}
    return Embedder(options.backbone, dim=dim, features=width, **same)


def system_of(options: TrainOptions, model: Embedder, part: Part) -> System:
    """The model with all that it learns from."""

    def make_loss(dim: int) -> nn.Module:
        return LOSSES.build(options.loss, num_classes=len(part.class_names), dim=dim, seed=options.seed)

    teacher = TEACHERS.build(options.teacher, model=model, num_samples=len(part), dim=model.dim)
    distill = SelfDistillation(options.weight, options.temperature, TARGETS.build(options.targets), options.ramp)
    system = SYSTEMS.build(options.system, model=model, make_loss=make_loss, teacher=teacher, distill=distill, seed=options.seed)
    try:
        system.check(len(part))
    except InputError as fault:
        parts = ", ".join(f"{name}={getattr(options, name)}" for name in ("system", "loss", "teacher", "targets"))
        raise InputError(f"{parts}: {fault}") from fault
    return system


def check_teachers(options: TrainOptions, collection: Collection, system: System) -> list[str]:
    """A teacher, or a model to begin with, that was trained on what is scored is refused: the student would know it from there. What to
    know of others."""
    from obdsd.models import Embedder

    chosen = scored_parts(options.data, collection.parts, "val" if options.score == "validation" else "test")
    models = [module for module in system.modules() if isinstance(module, Embedder)]
    names = [str(options.pretrained if model is system.model else options.teacher) for model in models]
    return [remark for name, model in zip(names, models, strict=True) for remark in check_unseen(name, model.trained_on, chosen)]


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
    return model if processes == 1 else nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
