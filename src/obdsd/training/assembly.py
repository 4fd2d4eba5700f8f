"""From options to the parts of a training: data, model, objective, teacher, targets, optimiser."""

from __future__ import annotations

import difflib
import inspect
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from pytorch_metric_learning import losses, miners
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.data import DataLoader

from obdsd import objectives
from obdsd.data import Collection, Part, open_data
from obdsd.data.batches import ClassBatches
from obdsd.data.embeddings import Rows
from obdsd.data.loading import loader_workers
from obdsd.data.noise import flip_labels
from obdsd.data.transforms import Augmented, training_transform
from obdsd.errors import InputError
from obdsd.method.distillation import SelfDistillation
from obdsd.method.targets import BatchDiffusion, MeanMix, PairwiseTargets, Targets, UniformMix
from obdsd.method.teachers import EMATeacher, FrozenTeacher, MemoryTeacher, PreviousEpochTeacher, Teacher
from obdsd.models import FEATURES, TINY_CONV, Embedder, open_model
from obdsd.objectives.losses import Objective
from obdsd.settings import Settings, TrainOptions


def collection_of(options: TrainOptions) -> Collection:
    """The data, with classes held out as asked."""
    collection = open_data(
        options.data, seed=options.split_seed, test_fraction=options.test_fraction, allow_incomplete=options.allow_incomplete
    )
    if options.val_fraction or options.fold:
        if "val" in collection.parts:
            raise InputError(f"{options.data}: has held-out classes of its own (val); leave val_fraction and val_fold out")
        collection = collection.hold_out(fraction=options.val_fraction or None, fold=options.fold, seed=options.split_seed)
    name = options.needs_held_out_classes
    if name and "val" not in collection.parts:
        raise InputError(f"{name}={getattr(options, name)} needs held-out classes; add val_fraction=0.2")
    _check_scorable(options, collection)
    return collection


def training_part(options: TrainOptions, collection: Collection) -> Part:
    """What the model is trained on: the training classes, with a share of wrong labels if asked."""
    train = collection["train"]
    return train.replace(labels=flip_labels(train.labels, options.label_noise, options.seed)) if options.label_noise else train


def _check_scorable(options: TrainOptions, collection: Collection) -> None:
    """Refuse before the training what could not be scored after it."""
    scored = {name: part for name, part in collection.parts.items() if name in ("val", "test", "gallery")}
    for name, part in scored.items():
        sizes = np.bincount(part.labels)
        if (sizes > 0).sum() < 2 or (name != "gallery" and sizes.max() < 2):
            raise InputError(f"{options.data}: {name} needs 2 classes and 2 items in one of them to be scored; split otherwise")
        most = len(part) - (name != "gallery")
        if name != "val" and options.score == "test" and max(options.depths) > most:
            raise InputError(
                f"ks={options.ks}: {max(options.depths)} is more than the {most} items of {name} that can be found; ask for fewer"
            )


def model_of(options: TrainOptions, collection: Collection) -> Embedder:
    rows = collection.kind == "embeddings"
    if rows != (options.backbone == FEATURES):
        remedy = f"use backbone={FEATURES}" if rows else "use a backbone for images, as tiny-conv or resnet50"
        raise InputError(f"backbone={options.backbone} does not take {collection.kind}; {remedy}")
    return Embedder(
        options.backbone,
        dim=options.dim,
        pooling=options.pooling,
        head=options.head,
        hidden=options.hidden,
        batchnorm=options.batchnorm,
        weights=options.weights,
        features=len(collection["train"][0][0]) if rows else None,
        size=options.size,
        seed=options.seed,
    )


def objective_of(options: TrainOptions, classes: int, dim: int) -> Objective:
    name = options.loss
    if name == "multi-similarity":
        return objectives.multi_similarity()
    if name == "margin":
        return objectives.margin(classes, sampling=options.sampling, seed=options.seed)
    if name == "r-margin":
        return objectives.r_margin(classes, seed=options.seed)
    if name == "proxy-anchor":
        return objectives.proxy_anchor(classes, dim, seed=options.seed)
    if name.startswith("pml:"):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(options.seed)
            loss = _from_library(losses, "loss", name.removeprefix("pml:"), {"num_classes": classes, "embedding_size": dim})
            miner = None if options.miner is None else _from_library(miners, "miner", options.miner, {})
        return objectives.from_pml(loss, miner)
    known = ["multi-similarity", "margin", "r-margin", "proxy-anchor", "pml:NAME"]
    close = difflib.get_close_matches(name, known, n=1)
    raise InputError(f"loss={name} is not known; {f'did you mean {close[0]}?' if close else 'there are ' + ', '.join(known)}")


def _from_library(library: Any, field: str, name: str, sizes: dict[str, int]) -> nn.Module:
    """A loss or miner of pytorch-metric-learning by its class name, with its defaults and the sizes that it asks for."""
    kinds: dict[str, Any] = {key: kind for key, kind in vars(library).items() if inspect.isclass(kind)}
    if name not in kinds:
        close = difflib.get_close_matches(name, kinds, n=1)
        raise InputError(f"{field}={name} is not in pytorch-metric-learning; {f'did you mean {close[0]}?' if close else 'see its list'}")
    wanted = inspect.signature(kinds[name]).parameters
    try:
        return kinds[name](**{key: size for key, size in sizes.items() if key in wanted})
    except (TypeError, ValueError, NotImplementedError) as fault:
        reason = " ".join(str(fault).split())[:120]
        raise InputError(f"{field}={name} cannot be made without arguments that have no option here ({reason})") from fault


def targets_of(settings: Settings) -> Targets:
    if settings.targets == "pairwise":
        return PairwiseTargets(settings.scale)
    if settings.targets == "mean-mix":
        return MeanMix(settings.omega)
    if settings.targets == "uniform-mix":
        return UniformMix(settings.omega)
    if settings.form == "softmax":
        return BatchDiffusion(settings.omega, "softmax", settings.walk_temperature)
    return BatchDiffusion(settings.omega)


def distillation_of(settings: Settings) -> SelfDistillation:
    """The term beside the base loss; without a teacher its weight is 0."""
    weight = 0.0 if settings.teacher == "none" else settings.weight
    return SelfDistillation(weight, settings.temperature, targets_of(settings), settings.ramp)


def teacher_of(options: TrainOptions, model: Embedder, items: int) -> Teacher:
    if options.teacher == "previous-epoch":
        return PreviousEpochTeacher(model)
    if options.teacher == "ema":
        return EMATeacher(model, options.ema_decay)
    if options.teacher == "memory":
        return MemoryTeacher(items, model.dim)
    if options.teacher == "frozen":
        assert options.teacher_model is not None
        teacher = open_model(options.teacher_model)
        if (teacher.preprocessing, teacher.architecture.features) != (model.preprocessing, model.architecture.features):
            raise InputError(
                f"teacher_model={options.teacher_model} does not take the inputs of backbone={options.backbone}; train one like it"
            )
        return FrozenTeacher(teacher)
    if options.teacher == "features":
        if not pretrained(options, model):
            raise InputError(f"teacher=features has nothing to teach with weights={options.weights or 'none'}; use pretrained weights")
        return FrozenTeacher(model.headless())
    return Teacher()  # none: every hook does nothing, and nobody asks it


def pretrained(options: Settings, model: Embedder) -> bool:
    """Whether the features that training starts from are worth something."""
    default = "none" if options.backbone == TINY_CONV else "imagenet"
    return model.preprocessing is None or (options.weights or default) != "none"


def optimizer_of(options: Settings, model: Embedder, objective: Objective) -> torch.optim.Optimizer:
    """One group each for the backbone, the head and what the objective trains; `base_lr` is what the schedule multiplies."""
    groups: list[dict[str, Any]] = [
        {"params": list(model.backbone.parameters()), "lr": options.lr},
        {"params": list(model.head.parameters()), "lr": options.head_lr or options.lr},
    ]
    for group in objective.parameter_groups():
        groups.append({**group, "lr": options.objective_lr or group.get("lr", options.lr)})
    groups = [{**group, "base_lr": group["lr"]} for group in groups if group["params"]]
    if not groups:
        raise InputError(f"head={options.head} on backbone={options.backbone} leaves nothing to train; use head=linear")
    if options.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=options.lr, weight_decay=options.weight_decay, momentum=options.momentum)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[options.optimizer]
    return kind(groups, lr=options.lr, weight_decay=options.weight_decay, fused=True)


def check_micro_batch(settings: Settings, model: Embedder) -> None:
    """Chunks of a batch have statistics of their own: no BatchNorm may use them."""
    if settings.micro_batch and _uses_batch_statistics(model):
        raise InputError(f"micro_batch={settings.micro_batch} would change BatchNorm's statistics; use batchnorm=frozen with it")


def with_shared_statistics(model: Embedder, processes: int, device: torch.device) -> Embedder:
    """BatchNorm that trains takes its statistics from the whole batch, wherever its rows are."""
    if processes == 1 or not _uses_batch_statistics(model):
        return model
    if device.type != "cuda":
        raise InputError(
            f"batchnorm=train over {processes} processes needs GPUs, device={device.type}; use batchnorm=frozen or one process"
        )
    return nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]


def _uses_batch_statistics(model: Embedder) -> bool:
    return model.architecture.batchnorm == "train" and any(isinstance(module, _BatchNorm) for module in model.modules())


def _leave_ctrl_c_to_the_training(worker: int) -> None:
    """A loader's process goes on until the training has finished its step."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class TrainingBatches:
    """The batches of any epoch as (inputs, labels, indices), a function of seed and epoch; of several processes, this one's slice."""

    def __init__(self, options: TrainOptions, part: Part, model: Embedder, rank: int = 0, processes: int = 1) -> None:
        self.sampler = ClassBatches(
            part.labels,
            options.batch_size,
            options.per_class,
            seed=options.seed,
            replacement=options.replacement,
            rank=rank,
            world_size=processes,
        )
        self.rows: Tensor | None = None
        self.labels = torch.from_numpy(part.labels)
        if model.preprocessing is None:  # rows of a matrix: no item is read alone
            assert isinstance(part.items, Rows)
            self.rows = torch.from_numpy(part.items.matrix[part.positions])
            return
        images: Any = Augmented(part, training_transform(model.preprocessing, options.crop, options.flip), options.seed)
        workers = loader_workers(options.workers, part)
        self.loader: DataLoader[Any] = DataLoader(
            images,
            batch_sampler=self.sampler,
            num_workers=workers,
            persistent_workers=workers > 0,
            pin_memory=torch.cuda.is_available(),
            worker_init_fn=_leave_ctrl_c_to_the_training,
        )

    def __len__(self) -> int:
        return self.sampler.number

    def epoch(self, epoch: int, first: int = 0) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """From batch `first` on."""
        self.sampler.set_epoch(epoch, first)
        if self.rows is None:
            yield from self.loader
            return
        for draws in self.sampler:
            indices = torch.tensor([draw.item for draw in draws])
            yield self.rows[indices], self.labels[indices], indices
