"""A training from its options to its result: epochs, evaluations, checkpoints."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from obdsd.data import Collection
from obdsd.data.teachers import OtherRows
from obdsd.data.unusable import not_taken
from obdsd.errors import InputError, Terminated
from obdsd.evaluation import Scores
from obdsd.evaluation.scores import finite_or_none
from obdsd.models.weights import fit
from obdsd.options import PARTS, TrainOptions, as_dict
from obdsd.processes import check_carried, first_process, versions
from obdsd.stopping import Stop
from obdsd.terminal import Tell, TrainingDisplay, Watch, stages, training_display
from obdsd.training import build
from obdsd.training.interpolation import go_back, told
from obdsd.training.loggers import check_logger, flat, logger_of
from obdsd.training.paths import from_anywhere, with_paths_of
from obdsd.training.profile import Profile
from obdsd.training.ranks import Ranks, engine
from obdsd.training.run_folder import RunFolder, RunRecord, data_record, fitted_as_begun, run_path
from obdsd.training.scoring import FROZEN
from obdsd.training.trainer import Diverged, Place, Trainer

SYSTEM = (*PARTS, "weight", "temperature", "ramp")
"""Options that a result repeats: what the system is made of."""


class Loop:
    """Takes a trainer through its epochs and keeps what it came to in the run's folder."""

    def __init__(self, trainer: Trainer, folder: RunFolder, stop: Stop) -> None:
        self.trainer, self.folder, self.stop = trainer, folder, stop
        self.options, self.ranks, self.scoring = trainer.options, trainer.ranks, trainer.scoring
        self.saved = time.monotonic()
        self.told: str | None = None  # the teacher's precision
        self.profile = Profile(folder.path, trainer.device) if self.options.profile and folder.writes else None

    def run(self, display: TrainingDisplay) -> None:
        """All epochs that are left."""
        logger = logger_of(self.options.logger, self.folder.path) if self.ranks.rank == 0 else None
        with self.stop.deferred():
            with closing(self.trainer.batches):
                while self.trainer.place.epoch < self.options.epochs and not 0 < self.options.patience <= self.trainer.place.stale:
                    self._epoch(display, logger)
            if self.ranks.any(self.stop.asked is not None):  # since the last step; everything is saved
                self.stop.go()
        if logger is not None:
            logger.finalize("success")

    def _epoch(self, display: TrainingDisplay, logger: Any) -> None:
        """One epoch from its batches to its line."""
        self._run_epoch(display)
        since, scores = time.perf_counter(), self._evaluate()
        if self.profile is not None and scores:
            self.profile.evaluated(time.perf_counter() - since)
        line = self._close_epoch(scores)
        display.epoch(line)
        if logger is not None:
            number = line["epoch"] + 1  # as people count
            logger.log_metrics(flat({**line, "epoch": number}), step=number)

    def _run_epoch(self, display: TrainingDisplay) -> None:
        """What is left of the epoch under way."""
        trainer, place = self.trainer, self.trainer.place
        since = time.perf_counter()
        trainer.begin_epoch()
        if trainer.answers is not None and trainer.answers.precision != self.told:
            self.told = trainer.answers.precision
            display.note(str(trainer.answers))
        for inputs, labels, indices, *shown in self._batches_left():
            factor = lr_factor(self.options, place.epoch, (place.step + 1) / len(trainer.batches))
            for group in trainer.optimizer.param_groups:
                group["lr"] = group["base_lr"] * factor
            try:
                parts = trainer.step(inputs, labels, indices, *shown)
            except InputError as fault:
                raise self._failure(fault, indices) from fault
            losses = {name: float(value) for name, value in parts.items()}
            place.sums = {name: place.sums.get(name, 0.0) + value for name, value in losses.items()}
            place.items += len(labels) * self.ranks.size
            place.step += 1
            place.epoch_seconds, since = place.epoch_seconds + time.perf_counter() - since, time.perf_counter()
            display.step(place.epoch, place.step, place.items / max(place.epoch_seconds, 1e-9), losses)
            self._save_if_due()
        if not all(bool(torch.isfinite(weight).all()) for weight in trainer.model.parameters()):
            raise InputError(
                f"epoch {place.epoch + 1}: the model's weights are not finite; the checkpoint before is kept, try a smaller lr"
            )

    def _batches_left(self) -> Iterator[tuple[Tensor, ...]]:
        place = self.trainer.place
        batches = self.trainer.batches.epoch(place.epoch, place.step)
        try:
            if self.profile is None or place.epoch < min(1, self.options.epochs - 1):  # the first epoch may have no teacher yet
                yield from batches
            else:
                yield from self.profile.watched(batches)
        except Terminated:  # a process of the loader is lost; the step before is complete
            self._save()
            raise

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
        except OtherRows:
            raise
        except (RuntimeError, LookupError, ValueError, TypeError, AttributeError) as mismatch:
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
        except (KeyboardInterrupt, Terminated, InputError):
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
        if trainer.answers is not None:
            line["teacher"] = asdict(trainer.answers)
        if place.reading:
            line["distillation"] = {name: finite_or_none(value) for name, value in place.reading.items()}
        line |= scores
        if "validation" in scores:
            self._remember_best(scores["validation"]["recall@1"])
        seconds = place.seconds + place.epoch_seconds
        trainer.place = Place(place.epoch + 1, seconds=seconds, best=place.best, best_epoch=place.best_epoch, stale=place.stale)
        self.folder.append(line)
        self._save()
        return line

    def _remember_best(self, recall: float) -> None:
        place = self.trainer.place
        place.stale += 1
        if recall > place.best:
            place.best, place.best_epoch, place.stale = recall, place.epoch, 0
            if self.options.select == "best":
                self.folder.save_best(place.epoch, self.trainer.kept.state_dict())

    def finish(self, display: TrainingDisplay) -> None:
        """Keep the chosen epoch's model, then score it on the test classes, and write the result."""
        trainer, options = self.trainer, self.options
        chosen, by = trainer.place.epoch - 1, "last epoch"
        if options.select == "best":
            chosen, by = trainer.place.best_epoch, "best on held-out classes"
            fit(trainer.kept, self.ranks.once(lambda: self.folder.checkpoints.read_best(chosen)), self.folder.checkpoints.best(chosen))
            self.scoring.forget()
        by += ", running average" * (options.keep == "average")
        found = None if trainer.start is None else self._interpolate(trainer.start.model, display)
        by += ", interpolated" * options.interpolate
        if trainer.kept is not trainer.model:
            trainer.model.load_state_dict(trainer.kept.state_dict())
        if self.folder.writes:
            data = self.folder.begun_as()["data"]
            before = build.seen_before(trainer.system, trainer.begun_as)
            trainer.whole.trained_on = build.provenance_of(options, trainer.source, data, before)
            if trainer.source.kind == "embeddings":
                trainer.whole.made_by = trainer.source.made_by or trainer.whole.made_by
            trainer.whole.save(self.folder.model)
        try:
            self._score(display, chosen, by, found)
        except InputError as fault:
            kept = f"the trained model is kept in {self.folder.model}, only its scores are missing"
            raise InputError(f"{fault}; {kept}: mend that, then the same command with --resume scores it") from fault

    def _interpolate(self, start: nn.Module, display: TrainingDisplay) -> dict[str, Any]:
        """Let held-out classes choose how far to go from the weights at the start to those that are kept."""
        display.note("scoring the weights between the start and the end on held-out classes")

        def recall() -> float:
            self.scoring.forget()
            return float(self.scoring.validation().as_dict()["recall@1"] or 0.0)

        found = go_back(self.trainer.kept, start.state_dict(), recall)
        self.scoring.forget()
        display.note(told(found))
        return found

    def _score(self, display: TrainingDisplay, chosen: int, by: str, interpolation: dict[str, Any] | None) -> None:
        trainer, options = self.trainer, self.options
        scores: Scores | None = None
        if options.score != "none":
            display.note(f"scoring the {options.score} classes")
            scores = self.scoring.final()
        result = {
            "scores": scores.as_dict() if scores else {},
            "scored": options.score,
            "epoch": chosen,
            "chosen_by": by,
            "interpolation": interpolation,
            "system": {name: value for name, value in as_dict(options).items() if name in SYSTEM},
            "train": self.scoring.geometry(),
            "validation": self.scoring.validation().as_dict() if "val" in trainer.collection.parts else None,
            "reference": self.ranks.once(self.folder.reference),
            "reranked": self.scoring.reranked() if scores else {},
            "seconds": round(trainer.place.seconds, 3),
            "seed": options.seed,
            "preset": options.preset,
            "device": trainer.device.type,
        }
        kept = self.scoring.known() if trainer.source.kind == "images" else {}  # rows of a file are embedded again in no time
        self.folder.finish(result, scores.per_class if scores else None, kept, options.keep_checkpoints)

    def score_reference(self, display: TrainingDisplay) -> None:
        """What the user has before any training: once, and only where something is pretrained."""
        options, place = self.options, self.trainer.place
        untrained = self.trainer.collection.kind == "embeddings" or (place.epoch, place.step) == (0, 0)  # what it is taken from
        wanted = options.reference and self.trainer.model.knows_something and options.score != "none" and untrained
        if wanted and self.ranks.once(self.folder.reference) is None:
            display.note("scoring the untrained features")
            self.folder.write("reference.json", self._with_size(self.scoring.reference()))

    def _with_size(self, reference: Mapping[str, Any]) -> dict[str, Any]:
        """Of images the features depend on the size at which they are seen: their name says it."""
        seen_as = self.trainer.whole.preprocessing
        at = "" if seen_as is None else f" at {seen_as.size} px"
        return {name + at * (name == FROZEN): scores for name, scores in reference.items()}

    def _failure(self, fault: InputError, indices: Tensor) -> InputError:
        """The one line for a step that cannot be taken; the batch's items go to a file."""
        place, path, reason = self.trainer.place, self.folder.path / "failure.json", " ".join(str(fault).split())
        where = {"epoch": place.epoch, "step": place.step, "fault": reason, "indices": indices.tolist(), "lr": self.options.lr}
        self.folder.write(path.name, where)
        ending = f"stopped before the update, the batch's items are in {path}{'; try a smaller lr' * isinstance(fault, Diverged)}"
        return InputError(f"epoch {place.epoch + 1}, step {place.step + 1}: {reason}; {ending}")


def lr_factor(options: TrainOptions, epoch: int, done: float) -> float:
    """What multiplies every learning rate when the share `done` in (0, 1] of an epoch is reached.

    >>> [lr_factor(TrainOptions("x.npz", schedule="steps", lr_steps=(2, 3), lr_gamma=0.5), epoch, 0.5) for epoch in range(5)]
    [1.0, 1.0, 0.5, 0.25, 0.25]
    """
    factor = min(1.0, (epoch + done) / options.warmup_epochs) if options.warmup_epochs else 1.0
    if options.schedule == "steps":
        factor *= options.lr_gamma ** sum(epoch >= step for step in options.lr_steps)
    elif options.schedule == "cosine":
        factor *= (1 + math.cos(math.pi * (epoch + done) / options.epochs)) / 2
    return factor


def train(options: TrainOptions, *, show: bool | Watch = True, notes: Sequence[str] = ()) -> RunRecord:
    """Train by the options and leave a run folder with a model folder in it. Progress is shown, or told to whoever watches.

    Raises an `InputError` of one line for everything that is the user's to mend. Whatever ends it early, `resume` goes on from the last
    checkpoint and comes to the same weights and numbers. SIGTERM and Ctrl-C let the step finish and write a checkpoint first. `notes` are
    shown once the options and the data are known to be sound.
    """
    path, show = run_path(options), show if first_process() else False
    check_carried("workers", options.workers or 0)
    with Stop() as stop, _usual_threads():
        ranks = Ranks(engine(options.device, options.precision))
        with ranks.together(), RunFolder(path, writes=ranks.rank == 0) as folder:
            with stages(show) as tell:
                trainer, state, remarks = _prepared(options, folder, ranks, notes if show is True else (), tell)
                options, loop = trainer.options, Loop(trainer, folder, stop)
                if state is None:
                    trainer.begin(partial(_train_first, options, path, trainer, show))
                else:
                    ranks.attempt(lambda: loop.restore(state))
            if ranks.size > 1:
                epoch, step = trainer.place.epoch + 1, trainer.place.step + 1
                ranks.agree({"the epoch": epoch, "the step": step, "the weights' digest": trainer.digest()})
            with training_display(show, options.epochs, len(trainer.batches), trainer.place.epoch, options.distils) as display:
                trainer.scoring.progress = display.stage
                for remark in remarks:
                    display.note(remark)
                loop.score_reference(display)
                loop.run(display)
                loop.finish(display)
            return ranks.once(lambda: RunRecord.read(path))


def _prepared(
    options: TrainOptions, folder: RunFolder, ranks: Ranks, notes: Sequence[str], tell: Tell
) -> tuple[Trainer, dict[str, Any] | None, list[str]]:
    """A training that all processes can begin alike, the state to go on from, and what the user should know.

    The folder is claimed before anything is built. The first process alone reads and writes it; the others are told."""

    def open_data() -> tuple[Collection, dict[str, Any]]:
        check_logger(options.logger)
        folder.claim(options)
        collection = build.collection_of(options.replace(data=folder.source(options.data)), tell)
        return collection, data_record(collection)

    def before_long_work() -> None:
        if folder.is_new:  # the first process alone knows; a run that goes on has the images that it began with
            build.check_images(options, collection, tell)
        if notes:
            print(*notes, sep="\n", file=sys.stderr, flush=True)

    tell("reading the data", 0, 1)
    collection, data = ranks.attempt(open_data)
    tell("reading the data", 1, 1)
    begun = ranks.once(folder.began_with)
    options = fitted_as_begun(options, begun)
    options, of_data = build.fitted(options, collection, ranks.size)
    parts = {f"data: {name}": f"{part['items']} items, fingerprint {part['fingerprint']}" for name, part in data.items()}
    ranks.agree({**versions(), **options.identity(), "data": None, **parts})  # paths may differ from machine to machine
    options = from_anywhere(with_paths_of(options, begun))
    _take_threads(folder.threads() if ranks.size == 1 else None)
    here = {"threads": torch.get_num_threads(), "processes": ranks.size}
    opened = ranks.attempt(lambda: folder.open(options, data, here) if folder.writes else None)
    trainer = ranks.attempt(lambda: Trainer(options, collection, ranks, announce=before_long_work, progress=tell))
    of_models = ranks.attempt(lambda: build.check_seen(options, collection, trainer.system, trainer.begun_as))
    ranks.attempt(lambda: folder.begin(trainer.options, data, here, collection.left_out))
    state, remarks = ranks.once(lambda: opened)  # type: ignore[misc]
    of_data += [trainer.remark] if trainer.remark else []
    of_system = [*trainer.system.teacher.remarks, *build.never_taught(options, trainer.system)]
    return trainer, state, [*not_taken(collection), *of_data, *remarks, *of_models, *of_system]


@contextmanager
def _usual_threads() -> Iterator[None]:
    """What a run changes of the number of threads holds for it alone."""
    usual = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(usual)


def _take_threads(began: int | None) -> None:
    """As many threads as the run began with, because rounding depends on them; unless the user says how many, or cores are fewer."""
    if began is not None and began <= (os.cpu_count() or 1) and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(began)


def _train_first(options: TrainOptions, path: Path, trainer: Trainer, show: bool | Watch) -> nn.Module:
    """The loss to its end, plain or the teacher's own, in a run inside the run that it will teach; if it is finished, it is not repeated.

    Its time counts as this training's too.
    """
    first, ranks = path / "first", trainer.ranks
    if ranks.once((first / "result.json").exists):
        record = ranks.once(lambda: RunRecord.read(first))
    else:
        if show is True:
            which = options.loss_before or "the plain loss"
            print(f"first, {which} is trained in {first}; its model will teach", file=sys.stderr, flush=True)
        here = {"out": str(first), "resume": ranks.once((first / "config.yaml").exists), "reference": False}
        record = train(options.first().replace(**here), show=show)
    trainer.place.seconds = record.seconds
    return ranks.once(record.model)
