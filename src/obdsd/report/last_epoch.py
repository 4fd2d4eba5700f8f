"""A run's last epoch, set up anew: who taught in it, and what was taught in one real batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from obdsd.catalogue import TARGETS
from obdsd.data import Collection, Part
from obdsd.errors import InputError
from obdsd.method.teachers import PreviousEpochTeacher, Teacher
from obdsd.models import Embedder
from obdsd.options import TrainOptions
from obdsd.presets import preset
from obdsd.report.content import Batch, Matrix
from obdsd.spec import Spec
from obdsd.training import RunRecord, Trainer
from obdsd.training.build import of_head, training_part
from obdsd.training.checkpoints import read_state
from obdsd.training.features import as_rows, unit_features
from obdsd.training.gradient import in_chunks
from obdsd.training.loader import TrainingBatches
from obdsd.training.run_folder import RunFolder
from obdsd.training.trainer import Place

BATCHES = 8  # that are seen; one if they are images, which take time

OF_TEACHER = "How similar the teacher finds each pair. Blocks on the diagonal are pairs of one class."
OF_STUDENT = "How similar the trained model finds each pair. It should resemble the targets that it was taught."
PAIRWISE = "The teacher's similarities, each row made a distribution (PSD). Every pair is judged on its own."
DIFFUSED = "The same after diffusion over the batch (OBD-SD): pairs joined through others that both resemble become brighter."
CONTROL = "Targets softened without looking at the graph. What diffusion shows beyond this comes from the manifold."


class Lesson(NamedTuple):
    """A batch with the student's and the teacher's unit rows, and the targets if they were asked for; only items that the teacher knows."""

    labels: Tensor
    student: Tensor
    teacher: Tensor
    targets: Tensor | None


class LastEpoch(NamedTuple):
    """The training as it was in its last epoch, as far as it can be set up again."""

    trainer: Trainer | None  # None if it cannot: a model that it began with is gone
    stand_in: Teacher | None  # whose rows are shown where the run's own teacher was not asked, or is gone
    who: str  # is shown as the teacher


def last_epoch_of(
    record: RunRecord, model: Embedder, collection: Collection, device: torch.device
) -> tuple[list[Lesson], Batch, Trainer | None]:
    """What is seen where the run was trained: what its teacher taught in its batches, the first of them, and the training to take steps
    of."""
    if record.options.frozen:  # then it saw features, and the model was its head
        features = unit_features(model.to(device), collection, device=device, workers=None, batch_size=record.options.eval_batch_size)
        model, collection = model.head_alone(), as_rows(collection, features)
    if not record.options.has_teacher:  # then there is nothing to be seen but the training itself
        trainer = _trainer(record, model.to(device), collection, device)
        model.cpu()
        return [], Batch(matrices=[], classes=[], which=""), trainer
    part = training_part(record.options, collection)
    last = _last_epoch(record, model.to(device), collection, device)
    lessons = _lessons(record, model, part, last, device)
    batch = _batch(record, lessons, last.who, part.class_names)
    for seen in (model, last.stand_in):
        if seen is not None:
            seen.cpu()  # the memory of a step is then its own
    return lessons, batch, last.trainer


def _last_epoch(record: RunRecord, model: Embedder, collection: Collection, device: torch.device) -> LastEpoch:
    """From the checkpoint before the last epoch's end, or from the last one if the teacher stays the same."""
    trainer, checkpoints = _trainer(record, model, collection, device), RunFolder(record.folder, writes=False).checkpoints
    who, stand_in = "the model itself, as no checkpoint of its teacher is left", PreviousEpochTeacher(model)
    for path in (checkpoints.before, checkpoints.last):
        if trainer is None or not path.exists():
            continue
        try:
            state = read_state(path)
            trainer.system.load_state_dict(state["system"])
            trainer.place = Place(**state["place"])
        except (InputError, RuntimeError, KeyError, ValueError, TypeError):  # damaged: the reader is told who stands in
            continue
        under_way, teacher = trainer.place.epoch == record.last_epoch, trainer.system.teacher
        trainer.place.epoch = record.last_epoch
        if trainer.system.asks(trainer.progress) and (under_way or teacher.steady):
            return LastEpoch(trainer, None, str(record.options.teacher))
    return LastEpoch(trainer, stand_in.to(device), who)


def _trainer(record: RunRecord, model: Embedder, collection: Collection, device: torch.device) -> Trainer | None:
    """The training at the beginning of its last epoch; the trained model stands for what only a checkpoint holds."""
    halved = record.options.precision == "16" and device.type != "cuda"
    options = of_head(record.options).replace(device=str(device), workers=0, cache=None, **({"precision": "32"} if halved else {}))
    try:
        trainer = Trainer(options, collection)
    except InputError:
        return None
    trainer.model.load_state_dict(model.state_dict())
    trainer.system.begin(lambda: model)
    trainer.place.epoch = record.last_epoch
    return trainer


@torch.no_grad()
def _lessons(record: RunRecord, model: Embedder, part: Part, last: LastEpoch, device: torch.device) -> list[Lesson]:
    """The first batches of the run's last epoch, as the trained model and the teacher see them."""
    model.eval()
    if last.trainer is not None:
        last.trainer.begin_epoch()
    teachers = None if last.trainer is None else last.trainer.system.teacher.preprocessing
    batches = TrainingBatches(record.options.replace(workers=0), part, model, teachers=teachers)
    number = 1 if batches.rows is None else BATCHES
    drawn = islice(batches.epoch(record.last_epoch), number)
    lessons = [_lesson(record.options, model, last, *(values.to(device) for values in batch)) for batch in drawn]
    return [lesson for lesson in lessons if len(lesson.labels) > 1]


def _lesson(
    options: TrainOptions, model: Embedder, last: LastEpoch, inputs: Tensor, labels: Tensor, indices: Tensor, shown: Tensor | None = None
) -> Lesson:
    student = torch.cat([model(some) for some in torch.split(inputs, options.micro_batch or len(inputs))])
    known: slice | Tensor = slice(None)
    targets: Tensor | None = None
    if last.stand_in is not None:
        teacher = in_chunks(last.stand_in, inputs, indices, options.micro_batch)
    else:
        assert last.trainer is not None
        batch = last.trainer.teach(inputs if shown is None else shown, indices, labels)
        assert batch is not None
        known, teacher = slice(None) if batch.known is None else batch.known, batch.only_known()
        distill = last.trainer.system.distill
        if "targets" in distill.matching.reads and len(teacher.embeddings) > 1:
            targets = distill.taught(teacher).float().cpu()
    return Lesson(labels[known].cpu(), student[known].float().cpu(), teacher.embeddings.float().cpu(), targets)


def _batch(record: RunRecord, lessons: Sequence[Lesson], who: str, class_names: Sequence[str]) -> Batch:
    """The first batch with what each method would teach in it."""
    which = f"first batch of epoch {record.last_epoch + 1}; teacher: {who}"
    if not lessons:
        return Batch(matrices=[], classes=[], which=which)
    order = torch.argsort(lessons[0].labels, stable=True)
    return Batch(
        matrices=list(_matrices(record.options, lessons[0], order)),
        classes=[class_names[int(label)] for label in lessons[0].labels[order]],
        which=which,
    )


def _matrices(options: TrainOptions, lesson: Lesson, order: Tensor) -> Iterator[Matrix]:
    """The run's own targets stand beside PSD's, OBD-SD's and a control's, which are taken by its ω and τ where it has them."""
    student, teacher, own = lesson.student[order], lesson.teacher[order], options.targets
    usual = preset("ms+obd-sd", options.data).targets
    diffusion = own if own.name == usual.name else usual.with_setting("omega", own.settings.get("omega", usual.settings["omega"]))
    pairwise, control = Spec("pairwise"), Spec("mean-mix", {"omega": diffusion.settings["omega"]})

    def taught(title: str, kind: Literal["targets", "refined"], sentence: str, targets: Spec) -> Matrix:
        values = TARGETS.build(targets)(teacher, options.temperature)
        return Matrix(title=title, kind=kind, sentence=f"{sentence} Here: {targets}.", values=values.numpy().astype(np.float32))

    yield Matrix(title="Teacher's similarities", kind="similarity", sentence=OF_TEACHER, values=(teacher @ teacher.T).numpy())
    yield taught("Targets of PSD", "targets", PAIRWISE, pairwise)
    yield taught("Targets of OBD-SD", "refined", DIFFUSED, diffusion)
    yield taught("Control without a graph", "refined", CONTROL, control)
    if lesson.targets is not None and own not in (pairwise, diffusion, control):
        values = lesson.targets[order][:, order].numpy()
        yield Matrix(title="Targets of this run", kind="refined", sentence=f"What this run was taught: {own}.", values=values)
    yield Matrix(title="Student's similarities", kind="similarity", sentence=OF_STUDENT, values=(student @ student.T).numpy())
