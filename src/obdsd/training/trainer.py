"""A training in memory, and the step that it takes: the paper's algorithm on an engine that knows devices and precision."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from obdsd.convert import fits
from obdsd.counting import Progress, counted
from obdsd.data import Collection
from obdsd.data.decoded import at_a_test, decoded
from obdsd.errors import InputError
from obdsd.method.stages import stage
from obdsd.method.teachers import EMATeacher, PreviousEpochTeacher, Teacher, TeacherBatch
from obdsd.models import Embedder
from obdsd.models.weights import check_kinds, state_digest
from obdsd.options import TrainOptions, hints_of
from obdsd.preprocessing import Preprocessing
from obdsd.seeds import seed_of
from obdsd.training import build
from obdsd.training.features import as_rows, unit_features
from obdsd.training.gradient import backward, gradient_share, in_chunks, targets_reading
from obdsd.training.interpolation import check_interpolable
from obdsd.training.loader import TrainingBatches, sampler_of
from obdsd.training.quicker import PROBES, WAYS, Answers, best_way
from obdsd.training.ranks import Ranks, engine
from obdsd.training.scoring import Scoring


class Diverged(InputError):
    """A step whose numbers say that a smaller learning rate is needed."""


@dataclass
class Place:
    """How far a training is; with the weights, all its state. Randomness is a function of the place and needs none."""

    epoch: int = 0  # the one under way
    step: int = 0  # batches of it that are done
    items: int = 0  # in them
    sums: dict[str, float] = field(default_factory=dict)  # of the loss's parts over them
    reading: dict[str, float] = field(default_factory=dict)  # of the distillation, in the middle of the epoch
    epoch_seconds: float = 0.0
    seconds: float = 0.0  # of all epochs before
    best: float = -1.0
    best_epoch: int = -1
    stale: int = 0  # evaluations since the best


class Trainer:
    """Data, model, system and optimiser of a training, made of its options. It reads no run's folder and writes none."""

    def __init__(
        self,
        options: TrainOptions,
        collection: Collection,
        ranks: Ranks | None = None,
        *,
        announce: Callable[[], None] = lambda: None,
        progress: Progress = lambda stage, done, total: None,
    ) -> None:
        """`announce` is called before images are read, which may take long; `progress` is told of what does."""
        self.ranks = ranks or Ranks(engine(options.device, options.precision))
        self.fabric, self.device = self.ranks.fabric, self.ranks.fabric.device
        options, _ = build.fitted(options, collection, self.ranks.size)
        self.source, self.collection, self.place = collection, collection, Place()
        self.remark = ""  # what the user should know of the data
        self.answers: Answers | None = None  # how the teacher computes, if it is a network
        self.part = build.training_part(options, collection)
        sampler = sampler_of(options, self.part, self.ranks.rank, self.ranks.size)
        build.check_taught(options)  # like the sampler, to refuse what is wrong before weights are downloaded
        self.whole = model = build.model_of(options, collection)
        self.options = options = build.described(options, model, self.device)
        self.begun_as = model.trained_on
        if options.frozen:
            model = model.head_alone()
        if options.interpolate:
            check_interpolable(model)
        self.model = build.with_whole_statistics(model, options.micro_batch, self.ranks.size, self.device)
        self.system = build.system_of(options, self.model, self.part).to(self.device)
        self.average = EMATeacher(self.model, options.average_decay) if options.keep == "average" else None
        self.start = PreviousEpochTeacher(self.model) if options.interpolate else None  # never updated
        self.copies = {name: copy for name, copy in (("average", self.average), ("start", self.start)) if copy is not None}
        if options.channels_last:
            self.model.to(memory_format=torch.channels_last)
        if options.compile:
            self.system.compile_model()
        self.optimizer: Any = self.fabric.setup_optimizers(build.optimizer_of(options, self.system))
        teachers = self.system.teacher.preprocessing
        self.options = options = build.with_side(options, self.whole.preprocessing, teachers)
        announce()  # what can be refused was refused
        if options.frozen:  # from here on images are rows
            self.collection = self._frozen(progress)
        elif options.cache is not None:
            assert self.whole.preprocessing is not None
            how = self.whole.preprocessing.interpolation
            self.collection, self.remark = decoded(collection, Path(options.cache), options.cache_side or 0, how, progress)
        self.part = build.training_part(options, self.collection)
        sampler = self.system.batches(sampler)
        self.batches = TrainingBatches(options, self.part, self.model, sampler, teachers, self.system.another_view)
        self._stateful: dict[str, Any] = {"system": self.system, "optimizer": self.optimizer, "precision": self.fabric.strategy.precision}
        self._stateful |= self.copies
        self.scoring = Scoring(options, self.collection, self.kept, self.ranks, progress)

    @property
    def kept(self) -> Embedder:
        """The model that is scored, and kept in the end."""
        return self.model if self.average is None else self.average.model  # type: ignore[return-value]

    def _frozen(self, progress: Progress) -> Collection:
        """The collection as the backbone's features."""
        advance = counted(progress, "features", sum(map(len, self.source.parts.values())))
        how: dict[str, Any] = {"workers": self.options.workers, "batch_size": self.options.eval_batch_size}
        features = unit_features(self.whole, self.source, device=self.device, **how, advance=advance)
        return as_rows(self.source, features)

    @property
    def progress(self) -> float:
        """t/T of the paper: the share of the epochs that are done."""
        return self.place.epoch / self.options.epochs

    def begin(self, train_first: Callable[[], nn.Module]) -> None:
        """Once, before the first step: the head as asked, then whoever teaches."""
        if self.options.head_init == "projection" and self.options.init is None:
            self.model.begin_projected(torch.from_numpy(self.scoring.projection()))
        for copy in self.copies.values():
            copy.begin(self.model, train_first)
        self.system.begin(train_first)

    def begin_epoch(self) -> None:
        """Before the first step of an epoch, and where one that was interrupted goes on."""
        self.scoring.forget()
        self.model.train()
        self.model.backbone.requires_grad_(self.place.epoch >= self.options.head_only_epochs)
        self.system.begin_epoch(self.progress, self._embedded, resumed=self.place.step > 0)
        if self.system.asks(self.progress) and not (self.answers and self.system.teacher.steady):
            self.answers = self._quicken(self.system.teacher)

    def _quicken(self, teacher: Teacher) -> Answers | None:
        """Let a network that teaches images answer sooner from here on, in all processes alike; how, if it is one."""
        network = teacher.network
        if network is None or self.model.preprocessing is None:
            return None
        asked = self.options.teacher_precision if self.options.precision == "32" else "32"  # else the engine lowers it
        images = self._probe(teacher.preprocessing or self.model.preprocessing)
        answers = self.ranks.once(lambda: best_way(network, images, asked))
        teacher.faster = WAYS[answers.precision]
        return answers

    def _probe(self, preprocessing: Preprocessing) -> Tensor:
        """A few images of the training set, as at a test."""
        part = at_a_test(self.part, preprocessing)
        return self._stored(torch.stack([part[number * len(part) // PROBES][0] for number in range(PROBES)]).to(self.device))

    def _embedded(self, model: nn.Module, items: Sequence[int] | None = None) -> Tensor:
        """Rows of the training set by a model, without augmentation: of all items, or of those that are named."""
        part = self.part if items is None else self.part.take(np.asarray(items))
        return torch.from_numpy(self.scoring.rows_of(model, part)).to(self.device)

    def step(self, inputs: Tensor, labels: Tensor, indices: Tensor, shown: Tensor | None = None) -> dict[str, Tensor]:
        """One step of the paper's algorithm: `teach`, `learn`, and what the system does after a step. Returns the loss's parts.

        The teacher sees the inputs, or what is `shown` to it instead."""
        inputs, labels, indices, shown = self.fabric.to_device((inputs, labels, indices, inputs if shown is None else shown))
        self._seed(self.place.epoch, self.place.step, self.ranks.rank)  # each process drops out other things
        all_labels, all_indices = self.ranks.all(labels), self.ranks.all(indices)
        self.system.begin_step(self.place.step, all_indices)
        with stage("teacher"):
            taught = self.teach(shown, indices, all_labels)
        rows, parts = self.learn(inputs, all_labels, taught)
        self.system.after_step(all_indices, self.ranks.all(rows[:, : self.model.dim]))
        if self.average is not None:
            self.average.step(self.model)
        return parts

    def teach(self, inputs: Tensor, indices: Tensor, labels: Tensor) -> TeacherBatch | None:
        """What the teacher knows of the global batch, whose labels are given; None where nobody is asked."""
        if not self.system.asks(self.progress):
            return None
        with self.fabric.autocast():
            batch = in_chunks(self.system.ask, self._stored(inputs), indices, self.options.micro_batch)
        return self.system.complete(self.ranks.teaching(batch), labels)

    def learn(self, inputs: Tensor, labels: Tensor, taught: TeacherBatch | None) -> tuple[Tensor, dict[str, Tensor]]:
        """Forwards, backwards, and the optimiser: this process's rows as they were before, and the loss's parts on the global batch."""
        parts: dict[str, Tensor] = {}
        loss_of = partial(self._loss_of, labels=labels, taught=taught, parts=parts)
        self.optimizer.zero_grad()
        rows = backward(self._forward, self._stored(inputs), loss_of, self.options.micro_batch, self._backward)
        self.ranks.average_gradients(self.system.parameters())
        if self.options.clip:
            self.fabric.clip_gradients(self.model, self.optimizer, max_norm=self.options.clip, error_if_nonfinite=False)
        with stage("optimiser"):
            self.optimizer.step()
        return rows, parts

    def _loss_of(self, rows: Tensor, labels: Tensor, taught: TeacherBatch | None, parts: dict[str, Tensor]) -> Tensor:
        """The loss on the global batch, of which `rows` are this process's; its parts are left in `parts`."""
        rows = self.ranks.rows(rows)
        self._seed(self.place.epoch, self.place.step)  # all processes draw the same for the one loss
        try:
            with stage("loss"):
                base, distillation = self.system.losses(rows, labels, taught, self.progress)
        except InputError as fault:
            if bool(rows[:, : self.model.dim].norm(dim=1).gt(0.5).all()):
                raise
            raise Diverged("the model's rows no longer have unit length, the training diverged") from fault  # they are zeros or NaN
        parts.update(base=base.detach(), distillation=distillation.detach())
        if not all(map(torch.isfinite, parts.values())):
            shown = ", ".join(f"{name} {float(value):.4g}" for name, value in parts.items())
            raise Diverged(f"the loss is not finite ({shown})")
        if self.place.step == len(self.batches) // 2 and distillation.detach() > 0:  # at the first step the student is its teacher
            about_targets = {} if taught is None else targets_reading(self.system.distill, taught, labels)
            share = gradient_share(rows, self.model.dim, base, distillation)
            self.place.reading = {**about_targets, "gradient_share": share}
        return base + distillation

    def _forward(self, inputs: Tensor) -> Tensor:
        with stage("forward"), self.fabric.autocast():
            return self.system.rows(inputs)

    def _backward(self, loss: Tensor) -> None:
        with stage("backward"):
            self.fabric.backward(loss)

    def _stored(self, inputs: Tensor) -> Tensor:
        channels_last = self.options.channels_last and inputs.ndim == 4
        return inputs.to(memory_format=torch.channels_last) if channels_last else inputs

    def _seed(self, *place: int) -> None:
        """What is drawn from here on, on the CPU or the run's device, is a function of the place. (`torch.manual_seed` would do it on every
        device, and without a GPU keep each call for one that may yet come.)"""
        seed = seed_of(self.options.seed, *place)
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.default_generators[self.device.index or 0].manual_seed(seed)
        elif self.device.type != "cpu":
            torch.get_device_module(self.device).manual_seed(seed)

    def digest(self) -> str:
        """Of the model and all that it learns from."""
        return state_digest(self.system.state_dict())

    def state(self) -> dict[str, Any]:
        """All that a checkpoint holds."""
        return {"place": asdict(self.place), **{name: part.state_dict() for name, part in self._stateful.items()}}

    def restore(self, state: dict[str, Any]) -> None:
        """Be where the training was when `state` was taken."""
        check_kinds(self.system.state_dict(), state["system"], "the system")
        for name, part in self._stateful.items():
            part.load_state_dict(state[name])
        self.place = Place(**state["place"])
        if wrong := [name for name, kind in hints_of(Place).items() if not fits(getattr(self.place, name), kind)]:
            raise TypeError(f"its {wrong[0]} is {reprlib.repr(getattr(self.place, wrong[0]))}")
