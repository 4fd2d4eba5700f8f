"""The loop of a training: epochs, evaluations, checkpoints, and the result."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from obdsd.errors import InputError, Terminated
from obdsd.evaluation import Scores
from obdsd.evaluation.scores import finite_or_none
from obdsd.options import as_dict
from obdsd.terminal import TrainingDisplay
from obdsd.training.checkpoints import read_state
from obdsd.training.loggers import logger_of
from obdsd.training.run_folder import RunFolder
from obdsd.training.schedule import lr_factor, set_learning_rates
from obdsd.training.stopping import Stop
from obdsd.training.trainer import Trainer

SYSTEM = ("loss", "teacher", "targets", "system", "weight", "temperature", "ramp")
"""Options that a result repeats: what the system is made of."""


class Loop:
    """Takes a trainer through its epochs and keeps what it came to in the run's folder."""

    def __init__(self, trainer: Trainer, folder: RunFolder, stop: Stop) -> None:
        self.trainer, self.folder, self.stop = trainer, folder, stop
        self.options, self.ranks, self.scoring = trainer.options, trainer.ranks, trainer.scoring
        self.saved = time.monotonic()

    def run(self, display: TrainingDisplay) -> None:
        """All epochs that are left."""
        logger = logger_of(self.options.logger, self.folder.path) if self.ranks.rank == 0 else None
        with self.stop.deferred():
            while self.trainer.place.epoch < self.options.epochs and not self._out_of_patience():
                self._run_epoch(display)
                line = self._close_epoch(self._evaluate())
                display.epoch(line)
                if logger is not None:
                    logger.log_metrics(flat(line), step=line["epoch"])
            if self.ranks.any(self.stop.asked is not None):  # since the last step; everything is saved
                self.stop.go()
        if logger is not None:
            logger.finalize("success")

    def _run_epoch(self, display: TrainingDisplay) -> None:
        """What is left of the epoch under way."""
        trainer, place = self.trainer, self.trainer.place
        since = time.perf_counter()
        trainer.begin_epoch()
        for inputs, labels, indices in self._batches_left():
            set_learning_rates(trainer.optimizer, lr_factor(self.options, place.epoch, (place.step + 1) / len(trainer.batches)))
            try:
                parts = trainer.step(inputs, labels, indices)
            except InputError as fault:
                raise self._failure(" ".join(str(fault).split()), indices) from fault
            losses = {name: float(value) for name, value in parts.items()}
            place.sums = {name: place.sums.get(name, 0.0) + value for name, value in losses.items()}
            place.items += len(labels) * self.ranks.size
            place.step += 1
            place.epoch_seconds, since = place.epoch_seconds + time.perf_counter() - since, time.perf_counter()
            display.step(place.epoch, len(labels) * self.ranks.size, losses)
            self._save_if_due()
        if not all(bool(torch.isfinite(weight).all()) for weight in trainer.model.parameters()):
            raise InputError(f"epoch {place.epoch}: the model's weights are not finite; the checkpoint before is kept, try a smaller lr")

    def _batches_left(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        place = self.trainer.place
        try:
            yield from self.trainer.batches.epoch(place.epoch, place.step)
        except RuntimeError:
            if self.stop.asked is None:  # else the signal reached the loader's processes too, and the next batch will not come
                raise
            self._save()
            self.stop.go()

    def _save_if_due(self) -> None:
        """A checkpoint if one is asked for by steps, minutes or a signal; after the last it is time to go."""
        options, step = self.options, self.trainer.place.step
        leave = self.ranks.any(self.stop.asked is not None)
        minutes = 0 < options.checkpoint_minutes <= (time.monotonic() - self.saved) / 60
        if leave or minutes or (options.checkpoint_steps and step % options.checkpoint_steps == 0):
            self._save()
        if leave:
            self.stop.go()

    def _save(self) -> None:
        self.folder.save(self.trainer.state())
        self.saved = time.monotonic()

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where the run's last checkpoint was written."""
        try:
            self.trainer.restore(state)
        except (RuntimeError, KeyError, ValueError, TypeError) as mismatch:
            first = " ".join(str(mismatch).split())[:160]
            raise InputError(f"{self.folder.checkpoints.last}: is of another model or optimiser ({first}); begin a new run") from mismatch

    def _evaluate(self) -> dict[str, Mapping[str, Any]]:
        """What is due after this epoch: held-out classes and geometry, and for curves only the test classes."""
        options, done = self.options, self.trainer.place.epoch + 1
        due = done == options.epochs or (options.evaluate_every and done % options.evaluate_every == 0)
        scores: dict[str, Mapping[str, Any]] = {}
        try:
            with self.stop.deferred(waits=self.ranks.size > 1):  # one rank must not leave the others waiting
                if due:
                    scores["train"] = self.scoring.geometry()
                    if "val" in self.trainer.collection.parts:
                        scores["validation"] = self.scoring.validation().as_dict()
                if options.test_every and done % options.test_every == 0:
                    scores["test"] = self.scoring.test().as_dict()
        except (KeyboardInterrupt, Terminated):
            self._save()  # all steps of the epoch are in it; it is evaluated anew
            raise
        return scores

    def _close_epoch(self, scores: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """The epoch's line, then the checkpoint: a line without it is written anew."""
        trainer, place = self.trainer, self.trainer.place
        trainer.system.end_epoch(place.reading)  # here, so that no checkpoint lies between it and the next epoch
        loss = {name: value / len(trainer.batches) for name, value in place.sums.items()}
        loss["weight"] = trainer.system.current_weight(trainer.progress)
        line: dict[str, Any] = {"epoch": place.epoch, "loss": loss}
        line |= {"seconds": round(place.epoch_seconds, 3), "items_per_second": round(place.items / max(place.epoch_seconds, 1e-9), 1)}
        if place.reading:
            line["distillation"] = {name: finite_or_none(value) for name, value in place.reading.items()}
        line |= scores
        if "validation" in scores:
            self._remember_best(scores["validation"]["recall@1"])
        trainer.place = replace(
            place,
            epoch=place.epoch + 1,
            step=0,
            items=0,
            sums={},
            reading={},
            epoch_seconds=0.0,
            seconds=place.seconds + place.epoch_seconds,
        )
        self.folder.append(line)
        self._save()
        return line

    def _remember_best(self, recall: float) -> None:
        place = self.trainer.place
        place.stale += 1
        if recall > place.best:
            place.best, place.best_epoch, place.stale = recall, place.epoch, 0
            if self.options.select == "best":
                self.folder.save_best({"model": self.trainer.model.state_dict()})

    def _out_of_patience(self) -> bool:
        return 0 < self.options.patience <= self.trainer.place.stale

    def finish(self, display: TrainingDisplay) -> None:
        """Keep the chosen epoch's model, score it on the test classes, and write the result."""
        trainer, options = self.trainer, self.options
        chosen, by = trainer.place.epoch - 1, "last epoch"
        if options.select == "best":
            chosen, by = trainer.place.best_epoch, "best on held-out classes"
            trainer.model.load_state_dict(self.ranks.once(lambda: read_state(self.folder.checkpoints.best))["model"])
            self.scoring.forget()
        display.note(f"scoring the {options.score} classes")
        scores: Scores = self.scoring.final()
        assert scores.per_class is not None
        result = {
            "scores": scores.as_dict(),
            "scored": options.score,
            "epoch": chosen,
            "chosen_by": by,
            "system": {name: value for name, value in as_dict(options).items() if name in SYSTEM},
            "train": self.scoring.geometry(),
            "validation": self.scoring.validation().as_dict() if "val" in trainer.collection.parts else None,
            "reference": self.ranks.once(self.folder.reference),
            "seconds": round(trainer.place.seconds, 3),
            "seed": options.seed,
            "preset": options.preset,
            "device": trainer.device.type,
        }
        kept = self.scoring.known() if trainer.collection.kind == "images" else {}  # rows of a file are embedded again in no time
        self.folder.finish(result, scores.per_class, trainer.model, kept)
        self.ranks.once(lambda: None)  # nobody goes before the result is there

    def score_reference(self, display: TrainingDisplay) -> None:
        """What the user has before any training: once, and only where something is pretrained."""
        wanted = self.options.reference and self.trainer.model.knows_something
        if wanted and self.ranks.once(self.folder.reference) is None:
            display.note("scoring the untrained features")
            self.folder.write("reference.json", {name: scores.as_dict() for name, scores in self.scoring.reference().items()})

    def _failure(self, fault: str, indices: Tensor) -> InputError:
        """The one line for a step that cannot be taken; the batch's items go to a file."""
        place, path = self.trainer.place, self.folder.path / "failure.json"
        where = {"epoch": place.epoch, "step": place.step, "fault": fault, "indices": indices.tolist(), "lr": self.options.lr}
        self.folder.write(path.name, where)
        if "must be of unit length" in fault:  # the model's own rows, which it normalises: only zeros or NaN are not
            fault = "the model's rows no longer have unit length, the training diverged"
        remedy = "; try a smaller lr" if "finite" in fault or "diverged" in fault else ""
        return InputError(
            f"epoch {place.epoch}, step {place.step}: {fault}; stopped before the update, the batch's items are in {path}{remedy}"
        )


def flat(line: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Nested numbers as `validation/recall@1`, for loggers."""
    numbers: dict[str, float] = {}
    for name, value in line.items():
        if isinstance(value, Mapping):
            numbers |= flat(value, f"{prefix}{name}/")
        elif isinstance(value, (int, float)):
            numbers[prefix + name] = value
    return numbers
