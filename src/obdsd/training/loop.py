"""The training loop: the paper's algorithm on an engine that knows devices and precision."""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from obdsd.data import Collection
from obdsd.data.fingerprint import fingerprint
from obdsd.errors import InputError, Terminated
from obdsd.evaluation import Scores
from obdsd.models.devices import choose_device
from obdsd.processes import first_process
from obdsd.settings import TrainOptions
from obdsd.training import assembly
from obdsd.training.checkpoints import read_state
from obdsd.training.display import Display, display_for
from obdsd.training.gradient import ask, backward
from obdsd.training.loggers import check_logger, logger_of
from obdsd.training.probe import gradient_share, targets_reading
from obdsd.training.ranks import Ranks, engine
from obdsd.training.runs import RunFolder, RunResult
from obdsd.training.schedule import lr_factor, set_learning_rates
from obdsd.training.scoring import Scoring
from obdsd.training.stopping import Stop

PRECISIONS: dict[str, Any] = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}


def train(options: TrainOptions, *, show: bool = True) -> RunResult:
    """Train by the options and leave a run folder with a model folder in it.

    Raises an `InputError` of one line for everything that is the user's to mend. Whatever ends it early, `resume` goes on from the last
    checkpoint and comes to the same weights and numbers. SIGTERM and Ctrl-C let the step finish and write a checkpoint first.
    """
    folder = RunFolder(run_path(options), writes=first_process())
    show = show and first_process()
    with Stop() as stop, folder:
        collection = assembly.collection_of(options)
        training = Training(options, collection, folder, stop)
        state, remarks = folder.open(options, data_record(collection), training.here)
        with display_for(show)(options.epochs, len(training.batches), 0 if state is None else state["epoch"]) as display:
            for remark in remarks:
                display.say(remark)
            with training.ranks.together():
                training.score_reference(display)
                training.restore(state)
                training.run(display)
                return training.finish(display)


def data_record(collection: Collection) -> dict[str, Any]:
    """What tells these data from others."""
    return {name: {"items": len(part), "fingerprint": fingerprint(part)} for name, part in collection.parts.items()}


def run_path(options: TrainOptions) -> Path:
    """Where the run's folder is: `out`, or a name made of data, preset and seed."""
    if options.out is not None:
        return Path(options.out).expanduser()
    name, _, path = options.data.partition(":")
    return Path("runs") / f"{Path(path).stem or Path(name).stem}-{options.preset}-{options.seed}"


@dataclass
class Progress:
    """How far a training is; with the weights, all its state. Randomness is a function of the place and needs none."""

    epoch: int = 0  # the one under way
    step: int = 0  # batches of it that are done
    items: int = 0  # in them
    sums: dict[str, Tensor] = field(default_factory=dict)  # of the loss's parts over them
    reading: dict[str, float] = field(default_factory=dict)  # of the distillation, in the middle of the epoch
    epoch_seconds: float = 0.0
    seconds: float = 0.0  # of all epochs before
    best: float = -1.0
    best_epoch: int = -1
    stale: int = 0  # evaluations since the best


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
        part = assembly.training_part(options, collection)
        self.embedder = assembly.with_shared_statistics(assembly.model_of(options, collection), self.ranks.size, device)
        assembly.check_micro_batch(options, self.embedder)
        self.batches = assembly.TrainingBatches(options, part, self.embedder, self.ranks.rank, self.ranks.size)
        self.objective = assembly.objective_of(options, len(part.class_names), self.embedder.dim).to(device)
        self.distill = assembly.distillation_of(options)
        self.teacher = assembly.teacher_of(options, self.embedder, len(part)).to(device)
        self.embedder.to(device)
        if options.channels_last:
            self.embedder.to(memory_format=torch.channels_last)
        if options.compile:
            self.embedder.compile()
        self.optimizer: Any = self.fabric.setup_optimizers(assembly.optimizer_of(options, self.embedder, self.objective))
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
                self.teacher.update(self.embedder)
                line = self._close_epoch(self._evaluate())
                display.epoch(line)
                if logger is not None:
                    logger.log_metrics(_flat(line), step=line["epoch"])
            if self.ranks.any(self.stop.asked is not None):  # since the last step; everything is saved
                self.stop.go()
        if logger is not None:
            logger.finalize("success")

    def _run_epoch(self, display: Display) -> None:
        """What is left of the epoch under way."""
        at = self.progress
        self.embedder.train()
        self.embedder.backbone.requires_grad_(at.epoch >= self.options.head_only_epochs)
        since = time.perf_counter()
        for inputs, labels, indices in self._batches_left():
            set_learning_rates(self.optimizer, lr_factor(self.options, at.epoch, (at.step + 1) / len(self.batches)))
            self._seed_dropout(at.epoch, at.step, self.ranks.rank)
            try:
                parts = self._step(*self.fabric.to_device((inputs, labels, indices)))
            except (InputError, ValueError, NotImplementedError) as fault:
                if not isinstance(fault, InputError) and not self.options.loss.startswith("pml:"):
                    raise
                raise self._failure(" ".join(str(fault).split()), indices) from fault
            for name, value in parts.items():
                at.sums[name] = at.sums.get(name, torch.zeros_like(value)) + value
            at.items += len(labels) * self.ranks.size
            at.step += 1
            at.epoch_seconds, since = at.epoch_seconds + time.perf_counter() - since, time.perf_counter()
            display.step(at.epoch, len(labels) * self.ranks.size, {name: float(value) for name, value in parts.items()})
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

    def _seed_dropout(self, *place: int) -> None:
        """On the device that draws it, and no other: without a GPU, `torch.manual_seed` would keep each call for one that may yet come."""
        device = self.fabric.device
        draws = torch.default_generator if device.type == "cpu" else torch.get_device_module(device)
        draws.manual_seed(_seed_of(self.options.seed, *place))

    def _step(self, inputs: Tensor, labels: Tensor, indices: Tensor) -> dict[str, Tensor]:
        """One step of the paper's algorithm (Eq. 7): base loss + τ²·(t/T)·λ·KL(refined targets of the teacher ‖ student)."""
        options, ranks, at = self.options, self.ranks, self.progress
        progress = at.epoch / options.epochs
        if options.channels_last and inputs.ndim == 4:
            inputs = inputs.to(memory_format=torch.channels_last)
        said = None
        if self.distill.active(progress):
            with self.fabric.autocast():
                said = ranks.teaching(ask(self.teacher, inputs, indices, options.micro_batch))
        all_labels, all_indices = ranks.all(labels), ranks.all(indices)
        parts: dict[str, Tensor] = {}

        def loss_of(z: Tensor) -> Tensor:
            z = ranks.rows(z)
            base, distillation = self.objective(z, all_labels), self.distill(z, said, progress)
            parts.update(base=base.detach(), distillation=distillation.detach())
            if not all(map(torch.isfinite, parts.values())):
                found = ", ".join(f"{name} {float(value):.4g}" for name, value in parts.items())
                raise InputError(f"the loss is not finite ({found})")
            if at.step == len(self.batches) // 2 and said is not None:  # at the first step the student still is its teacher
                share = gradient_share(z, base, distillation)
                at.reading = {**targets_reading(self.distill, said, all_labels), "gradient_share": share}
            return base + distillation

        self.optimizer.zero_grad()
        z = backward(self._forward, inputs, loss_of, options.micro_batch, self.fabric.backward)
        ranks.average_gradients(itertools.chain(self.embedder.parameters(), self.objective.parameters()))
        if options.clip:
            self.fabric.clip_gradients(self.embedder, self.optimizer, max_norm=options.clip, error_if_nonfinite=False)
        self.optimizer.step()
        if options.teacher != "none":
            self.teacher.observe(all_indices, ranks.all(z))
            self.teacher.step(self.embedder)
        return parts

    def _forward(self, inputs: Tensor) -> Tensor:
        with self.fabric.autocast():
            return self.embedder(inputs)

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
        loss = {name: float(value) / len(self.batches) for name, value in at.sums.items()}
        line: dict[str, Any] = {"epoch": at.epoch, "loss": {**loss, "weight": self.distill.current_weight(at.epoch / options.epochs)}}
        line |= {"seconds": round(at.epoch_seconds, 3), "items_per_second": round(at.items / max(at.epoch_seconds, 1e-9), 1)}
        if at.reading:
            line["distillation"] = at.reading
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
        at, value = self.progress, scores.recall[1]
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
        display.say(f"scoring the {self.options.score} classes")
        scores, geometry, reference = self.scoring.final(), self.scoring.geometry(), self.ranks.once(self.folder.reference)
        validation = self.scoring.validation() if "val" in self.collection.parts else None
        assert scores.per_class is not None
        record = {
            "scores": scores.as_dict(),
            "scored": self.options.score,
            "epoch": chosen,
            "chosen_by": by,
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
        self.folder.finish(record, scores.per_class, self.embedder)
        self.ranks.once(lambda: None)  # nobody goes before the result is there
        return RunResult(folder=self.folder.path, options=self.options, scores=scores, epoch=chosen, chosen_by=by, record=record)

    def score_reference(self, display: Display) -> None:
        """What the user has before any training: once, and only where something is pretrained."""
        wanted = self.options.reference and assembly.pretrained(self.options, self.embedder)
        if wanted and self.ranks.once(self.folder.reference) is None:
            display.say("scoring the untrained features")
            found = {name: scores.as_dict() for name, scores in self.scoring.reference().items()}
            self.folder.write("reference.json", found)

    def _state(self) -> dict[str, Any]:
        return {
            **vars(self.progress),
            "model": self.embedder.state_dict(),
            "objective": self.objective.state_dict(),
            "teacher": self.teacher.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "precision": self.fabric.strategy.precision.state_dict(),
        }

    def restore(self, state: dict[str, Any] | None) -> None:
        if state is None:
            return
        try:
            for name in ("model", "objective", "teacher", "optimizer"):
                part = self.embedder if name == "model" else getattr(self, name)
                part.load_state_dict(state.pop(name))
            self.fabric.strategy.precision.load_state_dict(state.pop("precision"))
            self.progress = Progress(**state)
        except (RuntimeError, KeyError, ValueError, TypeError) as mismatch:
            first = " ".join(str(mismatch).split())[:160]
            raise InputError(f"{self.folder.checkpoints.last}: is of another model or optimiser ({first}); begin a new run") from mismatch

    def _failure(self, fault: str, indices: Tensor) -> InputError:
        """The one line for a step that cannot be taken; the batch's items go to a file."""
        at, path = self.progress, self.folder.path / "failure.json"
        where = {"epoch": at.epoch, "step": at.step, "fault": fault, "indices": indices.tolist(), "lr": self.options.lr}
        self.folder.write(path.name, where)
        remedy = "; try a smaller lr" if "finite" in fault else ""
        return InputError(f"epoch {at.epoch}, step {at.step}: {fault}; stopped before the update, the batch's items are in {path}{remedy}")


def _seed_of(*place: int) -> int:
    return int.from_bytes(hashlib.blake2b(repr(place).encode(), digest_size=7).digest(), "little")


def _flat(line: dict[str, Any], prefix: str = "") -> dict[str, float]:
    """Nested numbers as `validation/recall/1`, for loggers."""
    found: dict[str, float] = {}
    for name, value in line.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{prefix}{name}/")
        elif isinstance(value, (int, float)):
            found[prefix + name] = value
    return found
