"""The training loop: the paper's algorithm on an engine that knows devices and precision."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lightning.fabric import Fabric
from torch import Tensor

from obdsd.data import Collection
from obdsd.data.fingerprint import fingerprint
from obdsd.errors import InputError
from obdsd.evaluation import Scores
from obdsd.files import write_json
from obdsd.models.devices import choose_device
from obdsd.settings import TrainOptions
from obdsd.training import assembly
from obdsd.training.display import Display, display_for
from obdsd.training.gradient import ask, backward
from obdsd.training.loggers import check_logger, logger_of
from obdsd.training.probe import gradient_share, targets_reading
from obdsd.training.runs import RunFolder, RunResult, read_state, write_state
from obdsd.training.schedule import lr_factor, set_learning_rates
from obdsd.training.scoring import Scoring

PRECISIONS: dict[str, Any] = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}


def train(options: TrainOptions, *, show: bool = True) -> RunResult:
    """Train by the options and leave a run folder with a model folder in it.

    Raises an `InputError` of one line for everything that is the user's to mend; the last finished epoch is then kept.
    """
    folder = RunFolder(run_path(options))
    collection = assembly.collection_of(options)
    training = Training(options, collection, folder)
    data, state = data_record(collection), None
    if options.resume:
        state = folder.resume(options, data)
    else:
        folder.begin(options, data)
    with display_for(show)(options.epochs, len(training.batches), 0 if state is None else state["epoch"] + 1) as display:
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
    """How far a training is; with the weights, all its state."""

    epoch: int = -1  # the last that is finished
    best: float = -1.0
    best_epoch: int = -1
    stale: int = 0  # evaluations since the best
    seconds: float = 0.0


class Training:
    """Everything that a run consists of, and the steps that it takes."""

    def __init__(self, options: TrainOptions, collection: Collection, folder: RunFolder) -> None:
        self.options, self.folder, self.collection = options, folder, collection
        check_logger(options.logger)
        device = choose_device(options.device)
        if options.precision == "16" and device.type != "cuda":
            raise InputError(f"precision=16 needs a GPU, device={device.type} has none; use bf16")
        part = assembly.training_part(options, collection)
        self.fabric = Fabric(
            accelerator=device.type, devices=1 if device.index is None else [device.index], precision=PRECISIONS[options.precision]
        )
        self.embedder = assembly.model_of(options, collection)
        assembly.check_micro_batch(options, self.embedder)
        self.batches = assembly.TrainingBatches(options, part, self.embedder)
        self.objective = assembly.objective_of(options, len(part.class_names), self.embedder.dim).to(device)
        self.distill = assembly.distillation_of(options)
        optimizer = assembly.optimizer_of(options, self.embedder, self.objective)
        self.teacher = assembly.teacher_of(options, self.embedder, len(part)).to(device)
        if options.channels_last:
            self.embedder.to(memory_format=torch.channels_last)
        if options.compile:
            self.embedder.compile()
        self.model, self.optimizer = self.fabric.setup(self.embedder, optimizer)
        self.scoring = Scoring(options, collection, self.embedder, self.fabric.device)
        self.progress = Progress()
        self.reading: dict[str, float] = {}  # of the batch in the middle of the epoch

    def run(self, display: Display) -> None:
        """All epochs that are left. After each, the teacher becomes the model as it then is."""
        logger = logger_of(self.options.logger, self.folder.path)
        while self.progress.epoch + 1 < self.options.epochs and not self._out_of_patience():
            epoch, start = self.progress.epoch + 1, time.perf_counter()
            self.embedder.backbone.requires_grad_(epoch >= self.options.head_only_epochs)
            loss, items = self._run_epoch(epoch, display)
            if not all(bool(torch.isfinite(weight).all()) for weight in self.embedder.parameters()):
                raise InputError(f"epoch {epoch}: the model's weights are not finite; the epoch before is kept, try a smaller lr")
            self.teacher.update(self.embedder)
            seconds = time.perf_counter() - start
            self.progress.seconds += seconds
            self.progress.epoch = epoch
            line = {"epoch": epoch, "loss": loss, "seconds": round(seconds, 3), "items_per_second": round(items / seconds, 1)}
            if self.reading:
                line["distillation"] = self.reading
            line |= self._evaluate(epoch)
            self.folder.append(line)
            write_state(self.folder.last, self._state())
            display.epoch(line)
            if logger is not None:
                logger.log_metrics(_flat(line), step=epoch)
        if logger is not None:
            logger.finalize("success")

    def _run_epoch(self, epoch: int, display: Display) -> tuple[dict[str, float], int]:
        """One pass over the training set; the means of the loss's parts, and how many items went by."""
        self.model.train()
        self.reading = {}
        sums: dict[str, Tensor] = {}
        items = 0
        for step, (inputs, labels, indices) in enumerate(self.batches.epoch(epoch)):
            set_learning_rates(self.optimizer, lr_factor(self.options, epoch, (step + 1) / len(self.batches)))
            self._seed_dropout(epoch, step)
            try:
                parts = self._step(epoch, step, *self.fabric.to_device((inputs, labels, indices)))
            except (InputError, ValueError, NotImplementedError) as fault:
                if not isinstance(fault, InputError) and not self.options.loss.startswith("pml:"):
                    raise
                raise self._failure(epoch, step, " ".join(str(fault).split()), indices) from fault
            for name, value in parts.items():
                sums[name] = sums.get(name, torch.zeros_like(value)) + value
            items += len(labels)
            display.step(epoch, len(labels), {name: float(value) for name, value in parts.items()})
        weight = self.distill.current_weight(epoch / self.options.epochs)
        return {**{name: float(value) / len(self.batches) for name, value in sums.items()}, "weight": weight}, items

    def _seed_dropout(self, *place: int) -> None:
        """On the device that draws it, and no other: without a GPU, `torch.manual_seed` would keep each call for one that may yet come."""
        device = self.fabric.device
        draws = torch.default_generator if device.type == "cpu" else torch.get_device_module(device)
        draws.manual_seed(_seed_of(self.options.seed, *place))

    def _step(self, epoch: int, step: int, inputs: Tensor, labels: Tensor, indices: Tensor) -> dict[str, Tensor]:
        """One step of the paper's algorithm (Eq. 7): base loss + τ²·(t/T)·λ·KL(refined targets of the teacher ‖ student)."""
        options, progress = self.options, epoch / self.options.epochs
        if options.channels_last and inputs.ndim == 4:
            inputs = inputs.to(memory_format=torch.channels_last)
        said = None
        if self.distill.active(progress):
            with self.fabric.autocast():
                said = ask(self.teacher, inputs, indices, options.micro_batch)
        parts: dict[str, Tensor] = {}

        def loss_of(z: Tensor) -> Tensor:
            z = z.view_as(z)  # a reading takes the gradient here, before the engine's own hook on the model's rows
            base, distillation = self.objective(z, labels), self.distill(z, said, progress)
            parts.update(base=base.detach(), distillation=distillation.detach())
            if not all(map(torch.isfinite, parts.values())):
                found = ", ".join(f"{name} {float(value):.4g}" for name, value in parts.items())
                raise InputError(f"the loss is not finite ({found})")
            if step == len(self.batches) // 2 and said is not None:  # at the first step the student still is its teacher
                self.reading = {**targets_reading(self.distill, said, labels), "gradient_share": gradient_share(z, base, distillation)}
            return base + distillation

        self.optimizer.zero_grad()
        forward = self._forward_bare if options.micro_batch else self.model
        z = backward(forward, inputs, loss_of, options.micro_batch, self.fabric.backward)
        if options.clip:
            self.fabric.clip_gradients(self.model, self.optimizer, max_norm=options.clip, error_if_nonfinite=False)
        self.optimizer.step()
        if options.teacher != "none":
            self.teacher.observe(indices, z)
            self.teacher.step(self.embedder)
        return parts

    def _forward_bare(self, inputs: Tensor) -> Tensor:
        """Without the engine's wrapper, whose outputs take no gradient but that of the whole loss."""
        with self.fabric.autocast():
            return self.embedder(inputs)

    def _evaluate(self, epoch: int) -> dict[str, Any]:
        """What is due after this epoch: held-out classes and geometry, and for curves only the test classes."""
        options, found = self.options, {}
        last = epoch + 1 == options.epochs
        if last or (options.evaluate_every and (epoch + 1) % options.evaluate_every == 0):
            found["train"] = self.scoring.geometry()
            if "val" in self.collection.parts:
                scores = self.scoring.validation()
                found["validation"] = scores.as_dict()
                self._remember_best(epoch, scores)
        if options.test_every and (epoch + 1) % options.test_every == 0:
            found["test"] = self.scoring.test().as_dict()
        return found

    def _remember_best(self, epoch: int, scores: Scores) -> None:
        value = scores.recall[1]
        self.progress.stale += 1
        if value > self.progress.best:
            self.progress.best, self.progress.best_epoch, self.progress.stale = value, epoch, 0
            if self.options.select == "best":
                write_state(self.folder.best, {"model": self.embedder.state_dict()})

    def _out_of_patience(self) -> bool:
        return 0 < self.options.patience <= self.progress.stale

    def finish(self, display: Display) -> RunResult:
        """Keep the chosen epoch's model, score it on the test classes, and write the result."""
        chosen, by = self.progress.epoch, "last epoch"
        if self.options.select == "best":
            chosen, by = self.progress.best_epoch, "best on held-out classes"
            self.embedder.load_state_dict(read_state(self.folder.best)["model"])
        display.say(f"scoring the {self.options.score} classes")
        scores = self.scoring.final()
        assert scores.per_class is not None
        self.embedder.save(self.folder.path / "model")
        record = {
            "scores": scores.as_dict(),
            "scored": self.options.score,
            "epoch": chosen,
            "chosen_by": by,
            "train": self.scoring.geometry(),
            "validation": self.scoring.validation().as_dict() if "val" in self.collection.parts else None,
            "reference": self.folder.reference(),
            "seconds": round(self.progress.seconds, 3),
            "seed": self.options.seed,
            "preset": self.options.preset,
            "threads": torch.get_num_threads(),
            "device": self.fabric.device.type,
            "versions": self.folder.versions(),
        }
        self.folder.finish(record, scores.per_class)
        return RunResult(folder=self.folder.path, options=self.options, scores=scores, epoch=chosen, chosen_by=by, record=record)

    def score_reference(self, display: Display) -> None:
        """What the user has before any training: once, and only where something is pretrained."""
        if self.options.reference and assembly.pretrained(self.options, self.embedder) and self.folder.reference() is None:
            display.say("scoring the untrained features")
            write_json(self.folder.reference_file, {name: scores.as_dict() for name, scores in self.scoring.reference().items()})

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
            raise InputError(f"{self.folder.last}: is of another model or optimiser ({first}); begin a new run") from mismatch

    def _failure(self, epoch: int, step: int, fault: str, indices: Tensor) -> InputError:
        """The one line for a step that cannot be taken; the batch's items go to a file."""
        path = self.folder.path / "failure.json"
        write_json(path, {"epoch": epoch, "step": step, "fault": fault, "indices": indices.tolist(), "lr": self.options.lr})
        remedy = "; try a smaller lr" if "finite" in fault else ""
        return InputError(f"epoch {epoch}, step {step}: {fault}; stopped before the update, the batch's items are in {path}{remedy}")


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
