"""The systems of the paper, made from options: the base loss, who teaches, what is taught, and how a step puts them together."""

from __future__ import annotations

import difflib
import inspect
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from pytorch_metric_learning import losses, miners
from torch import Tensor, nn

from obdsd import objectives
from obdsd.errors import InputError
from obdsd.method.checks import check_distance_from_one, require
from obdsd.method.distillation import SelfDistillation
from obdsd.method.global_diffusion import GlobalDiffusion
from obdsd.method.precision import in_full
from obdsd.method.proxy_diffusion import ProxyDiffusion
from obdsd.method.targets import BatchDiffusion, MeanMix, PairwiseTargets, Targets, UniformMix
from obdsd.method.teachers import EMATeacher, FrozenTeacher, MemoryTeacher, PreviousEpochTeacher, Teacher, TeacherBatch
from obdsd.models import TINY_CONV, Embedder, open_model
from obdsd.models.backbones import prefix_tokens
from obdsd.objectives import S2SD, Objective
from obdsd.settings import PROXY_LOSSES, Settings, TrainOptions
from obdsd.training.gradient import ask


@dataclass
class System:
    """What learns and what it learns from; a step of the paper's algorithm (Eq. 7) descends `sum(losses(rows(inputs), …))`."""

    model: Embedder
    objective: Objective | S2SD
    distill: SelfDistillation
    teacher: Teacher

    def rows(self, inputs: Tensor) -> Tensor:
        """Rows of the embedding; where S2SD's heads read features, beside them."""
        if not isinstance(self.objective, S2SD):
            return self.model(inputs)
        local = self.model.feature_map(inputs)
        return torch.cat([self.model.embed(self.model.pool(local)), in_full(self.objective.pool(local))], dim=1)

    def said(self, inputs: Tensor, indices: Tensor, micro_batch: int = 0) -> TeacherBatch:
        """The teacher's word on these items."""
        if isinstance(self.distill.targets, GlobalDiffusion):  # said once an epoch, of every item
            return self.distill.targets.batch(indices)
        return ask(self.teacher, inputs, indices, micro_batch)

    def among_proxies(self, said: TeacherBatch, labels: Tensor) -> TeacherBatch:
        """With the proxies of the batch's classes, where the walk goes over them too."""
        if isinstance(self.distill.targets, ProxyDiffusion) and not isinstance(self.objective, S2SD):
            return replace(said, proxies=self.objective.proxies_of(labels))
        return said

    def losses(self, rows: Tensor, labels: Tensor, said: TeacherBatch | None, progress: float) -> tuple[Tensor, Tensor]:
        """The base loss, and τ²·(t/T)·λ·KL(refined targets of the teacher ‖ student)."""
        z, features = rows[:, : self.model.dim], rows[:, self.model.dim :]
        if isinstance(self.objective, S2SD):
            return self.objective.parts(features, z, labels, progress)
        return self.objective(z, labels), self.distill(z, said, progress)

    def parameters(self) -> Iterator[nn.Parameter]:
        """All that is trained."""
        return itertools.chain(self.model.parameters(), self.objective.parameters())

    @property
    def distilling(self) -> SelfDistillation:
        """The term that distils, wherever it is."""
        return self.objective.distill if isinstance(self.objective, S2SD) else self.distill

    def description(self) -> dict[str, str | float | None]:
        """What it is made of, read off its parts."""
        distill = self.distilling
        if isinstance(self.objective, S2SD):
            assert isinstance(self.objective.base, Objective)
            features = self.objective.distill_features.weight
            who = f"heads of {', '.join(map(str, self.objective.widths))}" + (f", features at {features:g}" if features else "")
            loss = _loss_name(self.objective.base)
        else:
            loss, who = _loss_name(self.objective), type(self.teacher).__name__
        if not distill.weight:
            return {"loss": loss, "teacher": None, "targets": None, "weight": 0.0}
        settings = {"weight": distill.weight, "temperature": distill.temperature, "ramp": distill.ramp}
        return {"loss": loss, "teacher": who, "targets": repr(distill.targets) + (", balanced" if distill.balanced else ""), **settings}


def objective_of(options: TrainOptions, classes: int, model: Embedder) -> Objective | S2SD:
    """The base loss; with `teacher=heads` in the midst of its heads."""
    if options.teacher != "heads":
        return loss_of(options, classes, model.dim)
    return S2SD(
        lambda dim: loss_of(options, classes, dim),
        model.feature_dim,
        model.dim,
        heads=options.head_widths,
        distill=SelfDistillation(options.weight, options.temperature, targets_of(options), options.ramp, options.balanced),
        pooling=options.heads_pooling,
        feature_weight=options.feature_weight,
        feature_from=options.feature_from,
        seed=options.seed,
        prefix_tokens=prefix_tokens(model.backbone),
    )


def loss_of(options: TrainOptions, classes: int, dim: int) -> Objective:
    """The base loss of embeddings of this length."""
    name = options.loss
    if name == "multi-similarity":
        return objectives.multi_similarity()
    if name == "margin":
        return objectives.margin(classes, sampling=options.sampling, seed=options.seed)
    if name == "r-margin":
        return objectives.r_margin(classes, seed=options.seed)
    if name == "proxy-anchor":
        return objectives.proxy_anchor(classes, dim, seed=options.seed)
    if name == "proxy-nca":
        return objectives.proxy_nca(classes, dim, seed=options.seed)
    if name == "soft-triple":
        return objectives.soft_triple(classes, dim, seed=options.seed)
    if name == "nt-xent":
        return objectives.nt_xent()
    if name.startswith("pml:"):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(options.seed)
            loss = _from_library(losses, "loss", name.removeprefix("pml:"), {"num_classes": classes, "embedding_size": dim})
            miner = None if options.miner is None else _from_library(miners, "miner", options.miner, {})
        return objectives.from_pml(loss, miner)
    known = ["multi-similarity", "margin", "r-margin", *PROXY_LOSSES, "nt-xent", "pml:NAME"]
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
    if settings.targets == "global-diffusion":
        return GlobalDiffusion(settings.omega, settings.neighbours, settings.affinity_power)
    if settings.targets == "proxy-diffusion":
        return ProxyDiffusion(settings.omega)
    if settings.targets == "mean-mix":
        return MeanMix(settings.omega)
    if settings.targets == "uniform-mix":
        return UniformMix(settings.omega)
    if settings.form == "softmax":
        return BatchDiffusion(settings.omega, "softmax", settings.walk_temperature)
    return BatchDiffusion(settings.omega)


def check_walk(settings: Settings, items: int) -> None:
    """A walk that cannot be taken is refused at once, not when the distillation begins."""
    if settings.teacher == "none":
        return
    if settings.targets in ("batch-diffusion", "proxy-diffusion"):
        check_distance_from_one(settings.omega, torch.float32)
    if settings.targets == "global-diffusion":
        few = settings.neighbours < items
        require(few, "neighbours", settings.neighbours, f"must be less than the {items} items that train", "ask for fewer")


def distillation_of(settings: Settings) -> SelfDistillation:
    """The term beside the base loss; its weight is 0 without a teacher, or where heads inside the loss are the teachers."""
    weight = 0.0 if settings.teacher in ("none", "heads") else settings.weight
    return SelfDistillation(weight, settings.temperature, targets_of(settings), settings.ramp, settings.balanced)


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
    if options.teacher == "born-again":
        return FrozenTeacher(model)  # an empty place until the first generation is trained
    if options.teacher == "features":
        if not pretrained(options, model):
            raise InputError(f"teacher=features has nothing to teach with weights={options.weights or 'none'}; use pretrained weights")
        return FrozenTeacher(model.headless())
    return Teacher()  # none, or heads inside the loss: every hook does nothing, and nobody asks it


def _loss_name(objective: Objective) -> str:
    miner = objective.miner
    sampling = getattr(miner, "sampling", None if miner is None else type(miner).__name__)
    return type(objective.loss).__name__ + (f" with {sampling}" if sampling else "")


def pretrained(options: Settings, model: Embedder) -> bool:
    """Whether the features that training starts from are worth something."""
    default = "none" if options.backbone == TINY_CONV else "imagenet"
    return model.preprocessing is None or (options.weights or default) != "none"
