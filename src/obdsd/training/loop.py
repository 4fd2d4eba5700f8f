"""The training loop: the paper's algorithm on an engine that knows devices and precision."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from obdsd.data import Collection
from obdsd.errors import InputError, Terminated
from obdsd.evaluation import Scores
from obdsd.evaluation.scores import finite_or_none
from obdsd.method.global_diffusion import GlobalDiffusion
from obdsd.method.teachers import FrozenTeacher, TeacherBatch
from obdsd.models import Embedder
from obdsd.models.devices import choose_device
from obdsd.settings import TrainOptions
from obdsd.training import assembly, systems
from obdsd.training.batches import TrainingBatches
from obdsd.training.checkpoints import read_state
from obdsd.training.display import Display
from obdsd.training.gradient import backward
from obdsd.training.loggers import check_logger, logger_of
from obdsd.training.probe import gradient_share, targets_reading
from obdsd.training.progress import Progress, flat, seed_of
from obdsd.training.ranks import Ranks, engine
from obdsd.training.runs import RunFolder, RunResult
from obdsd.training.schedule import lr_factor, set_learning_rates
from obdsd.training.scoring import Scoring
from obdsd.training.stopping import Stop
from obdsd.training.systems import System

PRECISIONS: dict[str, Any] = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}


class Training:
    """Everything that a run consists of, and the steps that it takes."""

    def __init__(self, options: TrainOptions, collection: Collection, folder: RunFolder, stop: Stop | None = None) -> None:
        self.options, self.folder, self.collection = options, folder, collection
        self.stop = stop or Stop()
        check_logger(options.logger)
        kind = choose_device(options.device).type
        if options.precision == "16" and kind != "cuda":
            raise InputError(f"precision=16 needs a GPU, device={kind} has none; use bf16")
        self.fabric = engine(options.device, PRECISIONS[options.precision])
        self.ranks, device = Ranks(self.fabric), self.fabric.device
        self.part = part = assembly.training_part(options, collection)
        systems.check_walk(options, len(part))
        self.embedder = assembly.with_shared_statistics(assembly.model_of(options, collection), self.ranks.size, device)
        assembly.check_micro_batch(options, self.embedder)
        self.batches = TrainingBatches(options, part, self.embedder, self.ranks.rank, self.ranks.size)
        self.system = System(
            self.embedder,
            systems.objective_of(options, len(part.class_names), self.embedder).to(device),
            systems.distillation_of(options),
            systems.teacher_of(options, self.embedder, len(part)).to(device),
        )
        self.embedder.to(device)
        if options.channels_last:
            self.embedder.to(memory_format=torch.channels_last)
        if options.compile:
            self.embedder.compile()
        self.optimizer: Any = self.fabric.setup_optimizers(assembly.optimizer_of(options, self.embedder, self.system.objective))
        self.scoring = Scoring(options, collection, self.embedder, self.ranks)
        self.progress = Progress()
        self.saved = time.monotonic()
        self.here = {"threads": torch.get_num_threads(), "processes": self.ranks.size}

    def run(self, display: Display) -> None:
        """All epochs that are left. After each, the teacher becomes the model as it then is."""
        logger = logger_of(self.options.logger, self.folder.path) if self.ranks.rank == 0 else None
        with self.stop.deferred():
            while self.progress.epoch < self.options.epochs and not self._out_of_patience():
                self._run_epoch(display)
                self.system.teacher.update(self.embedder)
                line = self._close_epoch(self._evaluate())
                display.epoch(line)
                if logger is not None:
                    logger.log_metrics(flat(line), step=line["epoch"])
            if self.ranks.any(self.stop.asked is not None):  # since the last step; everything is saved
                self.stop.go()
        if logger is not None:
            logger.finalize("success")

    def _run_epoch(self, display: Display) -> None:
        """What is left of the epoch under way."""
        at = self.progress
        self.scoring.forget()
        self.embedder.train()
        self.embedder.backbone.requires_grad_(at.epoch >= self.options.head_only_epochs)
        since = time.perf_counter()
        self.walk_the_training_set()
        for inputs, labels, indices in self._batches_left():
            set_learning_rates(self.optimizer, lr_factor(self.options, at.epoch, (at.step + 1) / len(self.batches)))
            try:
                parts = self.step(*self.fabric.to_device((inputs, labels, indices)))
            except (InputError, ValueError, NotImplementedError, AssertionError) as fault:
                if not isinstance(fault, InputError) and not self.options.loss.startswith("pml:"):
                    raise
                raise self._failure(" ".join(str(fault).split()) or type(fault).__name__, indices) from fault
            losses = {name: float(value) for name, value in parts.items()}
            at.sums = {name: at.sums.get(name, 0.0) + value for name, value in losses.items()}
            at.items += len(labels) * self.ranks.size
            at.step += 1
            at.epoch_seconds, since = at.epoch_seconds + time.perf_counter() - since, time.perf_counter()
            display.step(at.epoch, len(labels) * self.ranks.size, losses)
            self._save_if_due()
        if not all(bool(torch.isfinite(weight).all()) for weight in self.embedder.parameters()):
            raise InputError(f"epoch {at.epoch}: the model's weights are not finite; the checkpoint before is kept, try a smaller lr")

    def _batches_left(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        try:
            yield from self.batches.epoch(self.progress.epoch, self.progress.step)
        except RuntimeError:
            if self.stop.asked is None:  # else the signal reached the loader's processes too, and the next batch will not come
                raise
            self._save()
            self.stop.go()

    def _save_if_due(self) -> None:
        """A checkpoint if one is asked for by steps, minutes or a signal; after the last it is time to go."""
        options, at = self.options, self.progress
        leave = self.ranks.any(self.stop.asked is not None)
        minutes = 0 < options.checkpoint_minutes <= (time.monotonic() - self.saved) / 60
        if leave or minutes or (options.checkpoint_steps and at.step % options.checkpoint_steps == 0):
            self._save()
        if leave:
            self.stop.go()

    def _save(self) -> None:
        self.folder.save(self._state())
        self.saved = time.monotonic()

    def _seed(self, *place: int) -> None:
        """What is drawn from here on, on the CPU or the run's device, is a function of the place. (`torch.manual_seed` would do it on every
        device, and without a GPU keep each call for one that may yet come.)"""
        seed, device = seed_of(self.options.seed, *place), self.fabric.device
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            torch.cuda.default_generators[device.index or 0].manual_seed(seed)
        elif device.type != "cpu":
            torch.get_device_module(device).manual_seed(seed)

    def step(self, inputs: Tensor, labels: Tensor, indices: Tensor) -> dict[str, Tensor]:
        """One step of the paper's algorithm, on the global batch."""
        options, ranks, at, system = self.options, self.ranks, self.progress, self.system
        progress, dim = at.epoch / options.epochs, self.embedder.dim
        if options.channels_last and inputs.ndim == 4:
            inputs = inputs.to(memory_format=torch.channels_last)
        self._seed(at.epoch, at.step, ranks.rank)  # each process drops out other things
        all_labels, all_indices = ranks.all(labels), ranks.all(indices)
        said = self._teaching(inputs, indices, all_labels) if system.distill.active(progress) else None
        parts: dict[str, Tensor] = {}

        def loss_of(rows: Tensor) -> Tensor:
            rows = ranks.rows(rows)
            self._seed(at.epoch, at.step)  # all processes draw the same for the one loss
            base, distillation = system.losses(rows, all_labels, said, progress)
            parts.update(base=base.detach(), distillation=distillation.detach())
            if not all(map(torch.isfinite, parts.values())):
                found = ", ".join(f"{name} {float(value):.4g}" for name, value in parts.items())
                raise InputError(f"the loss is not finite ({found})")
            if at.step == len(self.batches) // 2 and distillation.detach() > 0:  # at the first step the student still is its teacher
                said_what = {} if said is None else targets_reading(system.distill, said, all_labels)
                at.reading = {**said_what, "gradient_share": gradient_share(rows, dim, base, distillation)}
            return base + distillation

        self.optimizer.zero_grad()
        rows = backward(self._forward, inputs, loss_of, options.micro_batch, self.fabric.backward)
        ranks.average_gradients(system.parameters())
        if options.clip:
            self.fabric.clip_gradients(self.embedder, self.optimizer, max_norm=options.clip, error_if_nonfinite=False)
        self.optimizer.step()
        if options.teacher != "none":
            system.teacher.observe(all_indices, ranks.all(rows[:, :dim]))
            system.teacher.step(self.embedder)
        return parts

    def _forward(self, inputs: Tensor) -> Tensor:
        with self.fabric.autocast():
            return self.system.rows(inputs)

    def _teaching(self, inputs: Tensor, indices: Tensor, labels: Tensor) -> TeacherBatch:
        """The teacher's word on the global batch."""
        with self.fabric.autocast():
            said = self.system.said(inputs, indices, self.options.micro_batch)
        return self.system.among_proxies(self.ranks.teaching(said), labels)

    def walk_the_training_set(self) -> None:
        """Global diffusion, at an epoch's beginning: over the training set as the teacher embeds it, without augmentation."""
        at, targets = self.progress, self.system.distill.targets
        if not isinstance(targets, GlobalDiffusion) or at.step or not self.system.distill.active(at.epoch / self.options.epochs):
            return
        if targets.fitted and isinstance(self.system.teacher, FrozenTeacher):  # it would say the same again
            return
        model = self.system.teacher.get_submodule("model")
        assert isinstance(model, Embedder)
        targets.fit(torch.from_numpy(self.scoring.rows_of(model, self.part)).to(self.fabric.device))

    def _evaluate(self) -> dict[str, Scores | dict[str, Any]]:
        """What is due after this epoch: held-out classes and geometry, and for curves only the test classes."""
        options, done = self.options, self.progress.epoch + 1
        due = done == options.epochs or (options.evaluate_every and done % options.evaluate_every == 0)
        found: dict[str, Scores | dict[str, Any]] = {}
        try:
            with self.stop.deferred(waits=self.ranks.size > 1):  # one rank must not leave the others waiting
                if due:
                    found["train"] = self.scoring.geometry()
                    if "val" in self.collection.parts:
                        found["validation"] = self.scoring.validation()
                if options.test_every and done % options.test_every == 0:
                    found["test"] = self.scoring.test()
        except (KeyboardInterrupt, Terminated):
            self._save()  # all steps of the epoch are in it; it is evaluated anew
            raise
        return found

    def _close_epoch(self, found: Mapping[str, Scores | dict[str, Any]]) -> dict[str, Any]:
        """The epoch's line, then the checkpoint: a line without it is written anew."""
        at, options = self.progress, self.options
        loss = {name: value / len(self.batches) for name, value in at.sums.items()}
        loss["weight"] = self.system.distilling.current_weight(at.epoch / options.epochs)
        line: dict[str, Any] = {"epoch": at.epoch, "loss": loss}
        line |= {"seconds": round(at.epoch_seconds, 3), "items_per_second": round(at.items / max(at.epoch_seconds, 1e-9), 1)}
        if at.reading:
            line["distillation"] = {name: finite_or_none(value) for name, value in at.reading.items()}
        line |= {name: scores.as_dict() if isinstance(scores, Scores) else scores for name, scores in found.items()}
        if isinstance(scores := found.get("validation"), Scores):
            self._remember_best(scores)
        self.progress = replace(
            at, epoch=at.epoch + 1, step=0, items=0, sums={}, reading={}, epoch_seconds=0.0, seconds=at.seconds + at.epoch_seconds
        )
        self.folder.append(line)
        self._save()
        return line

    def _remember_best(self, scores: Scores) -> None:
        at, value = self.progress, scores["recall@1"]
        assert value is not None
        at.stale += 1
        if value > at.best:
            at.best, at.best_epoch, at.stale = value, at.epoch, 0
            if self.options.select == "best":
                self.folder.save_best({"model": self.embedder.state_dict()})

    def _out_of_patience(self) -> bool:
        return 0 < self.options.patience <= self.progress.stale

    def finish(self, display: Display) -> RunResult:
        """Keep the chosen epoch's model, score it on the test classes, and write the result."""
        chosen, by = self.progress.epoch - 1, "last epoch"
        if self.options.select == "best":
            chosen, by = self.progress.best_epoch, "best on held-out classes"
            self.embedder.load_state_dict(self.ranks.once(lambda: read_state(self.folder.checkpoints.best))["model"])
            self.scoring.forget()
        display.say(f"scoring the {self.options.score} classes")
        scores, geometry, reference = self.scoring.final(), self.scoring.geometry(), self.ranks.once(self.folder.reference)
        validation = self.scoring.validation() if "val" in self.collection.parts else None
        assert scores.per_class is not None
        record = {
            "scores": scores.as_dict(),
            "scored": self.options.score,
            "epoch": chosen,
            "chosen_by": by,
            "system": self.system.description(),
            "train": geometry,
            "validation": None if validation is None else validation.as_dict(),
            "reference": reference,
            "seconds": round(self.progress.seconds, 3),
            "seed": self.options.seed,
            "preset": self.options.preset,
            **self.here,
            "device": self.fabric.device.type,
            "versions": self.ranks.once(self.folder.versions),
        }
        kept = self.scoring.known() if self.collection.kind == "images" else {}  # rows of a file are embedded again in no time
        self.folder.finish(record, scores.per_class, self.embedder, kept)
        self.ranks.once(lambda: None)  # nobody goes before the result is there
        return RunResult(folder=self.folder.path, options=self.options, scores=scores, epoch=chosen, chosen_by=by, record=record)

    def score_reference(self, display: Display) -> None:
        """What the user has before any training: once, and only where something is pretrained."""
        wanted = self.options.reference and systems.pretrained(self.options, self.embedder)
        if wanted and self.ranks.once(self.folder.reference) is None:
            display.say("scoring the untrained features")
            found = {name: scores.as_dict() for name, scores in self.scoring.reference().items()}
            self.folder.write("reference.json", found)

    def project_head(self, display: Display) -> None:
        """The head begins as the projection that keeps most of the training set's features; so does a teacher that follows the model."""
        display.say("projecting the features of the training set: the head begins there")
        projection = torch.from_numpy(self.scoring.projection()).to(self.fabric.device)
        self.embedder.head.load_state_dict({"weight": projection, "bias": torch.zeros(len(projection))})
        if self.options.teacher in ("previous-epoch", "ema"):
            self.system.teacher.get_submodule("model").load_state_dict(self.embedder.state_dict())

    def begin_again(self, first: RunFolder) -> None:
        """Be taught by what another training came to; its time counts too."""
        model, seconds = self.ranks.once(lambda: (Embedder.load(first.path / "model").state_dict(), first.result()["seconds"]))
        self.system.teacher.get_submodule("model").load_state_dict(model)
        self.progress.seconds = seconds

    def _state(self) -> dict[str, Any]:
        system, targets = self.system, self.system.distill.targets
        return {
            **vars(self.progress),
            "model": self.embedder.state_dict(),
            "objective": system.objective.state_dict(),
            "teacher": system.teacher.state_dict(),
            "targets": targets.state_dict() if isinstance(targets, GlobalDiffusion) else {},
            "optimizer": self.optimizer.state_dict(),
            "precision": self.fabric.strategy.precision.state_dict(),
        }

    def restore(self, state: dict[str, Any] | None) -> None:
        if state is None:
            return
        try:
            for name in ("model", "objective", "teacher"):
                getattr(self.system, name).load_state_dict(state.pop(name))
            self.optimizer.load_state_dict(state.pop("optimizer"))
            self.fabric.strategy.precision.load_state_dict(state.pop("precision"))
            walked, targets = state.pop("targets"), self.system.distill.targets
            if isinstance(targets, GlobalDiffusion):
                targets.load_state_dict(walked)
                targets.to(self.fabric.device)
            self.progress = Progress(**state)
        except (RuntimeError, KeyError, ValueError, TypeError) as mismatch:
            first = " ".join(str(mismatch).split())[:160]
            raise InputError(f"{self.folder.checkpoints.last}: is of another model or optimiser ({first}); begin a new run") from mismatch

    def _failure(self, fault: str, indices: Tensor) -> InputError:
        """The one line for a step that cannot be taken; the batch's items go to a file."""
        at, path = self.progress, self.folder.path / "failure.json"
        where = {"epoch": at.epoch, "step": at.step, "fault": fault, "indices": indices.tolist(), "lr": self.options.lr}
        self.folder.write(path.name, where)
        if "must be of unit length" in fault:  # the model's own rows, which it normalises: only zeros or NaN are not
            fault = "the model's rows have no length of 1 any more, the training diverged"
        remedy = "; try a smaller lr" if "finite" in fault or "diverged" in fault else ""
        return InputError(f"epoch {at.epoch}, step {at.step}: {fault}; stopped before the update, the batch's items are in {path}{remedy}")
