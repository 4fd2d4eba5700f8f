"""What a report measures of each run: its curves, the geometry of its training set, and one real batch with what is taught in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from obdsd.data import Part
from obdsd.errors import InputError
from obdsd.evaluation.geometry import singular_values
from obdsd.evaluation.pairs import Shares, cosine_histograms, gradient_shares
from obdsd.experiments.reporting.runs import Finished
from obdsd.method.targets import MeanMix, PairwiseTargets, Targets
from obdsd.method.teachers import PreviousEpochTeacher, Teacher, TeacherBatch
from obdsd.models import Embedder
from obdsd.report.content import Geometry, Heatmaps, Histogram
from obdsd.training import systems
from obdsd.training.batches import TrainingBatches
from obdsd.training.checkpoints import read_state
from obdsd.training.gradient import ask

SAMPLE = 2_000  # training items whose geometry is shown
BINS = 40
BATCHES = 8  # over which the gradient's shares are averaged; one if they are images, which take time
STEADY = ("frozen", "features", "born-again")  # teachers that are the same in every epoch
ALONE = ("pairwise", "batch-diffusion", "mean-mix", "uniform-mix")  # targets that need nothing but the teacher's rows

CURVES: dict[str, tuple[str, ...]] = {  # a curve's name, and where its value is in a line of metrics.jsonl
    "loss: base": ("loss", "base"),
    "loss: distillation": ("loss", "distillation"),
    "Recall@1, held-out classes": ("validation", "recall@1"),
    "Recall@1, test classes (nothing is chosen by them)": ("test", "recall@1"),
    "density": ("train", "density"),
    "distance of class means": ("train", "inter"),
    "spectral decay": ("train", "spectral-decay"),
    "share of the distillation in the gradient": ("distillation", "gradient_share"),
}


def curves_of(metrics: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[int, float]]]:
    """Each curve that a run has, as (epoch counted from 1, value)."""
    found: dict[str, list[tuple[int, float]]] = {}
    for line in metrics:
        for name, way in CURVES.items():
            value: Any = line
            for step in way:
                value = value.get(step) if isinstance(value, Mapping) else None
            if value is not None:
                found.setdefault(name, []).append((int(line["epoch"]) + 1, float(value)))
    return {name: found[name] for name in CURVES if name in found}


def sample_of(part: Part, seed: int, most: int = SAMPLE) -> Part:
    """Some items of each class by seed; of a set of many classes two of each and not all classes."""
    if len(part) <= most:
        return part
    generator = np.random.default_rng(seed)
    classes = len(part.class_names)
    quota = max(2, most // classes)
    order = generator.permutation(len(part))
    by_class = order[np.argsort(part.labels[order], kind="stable")]
    labels = part.labels[by_class]
    place = np.arange(len(by_class)) - np.searchsorted(labels, labels)  # within its class
    kept = np.isin(labels, generator.permutation(classes)[: most // quota])
    return part.take(np.sort(by_class[kept & (place < quota)]))


@dataclass(frozen=True, eq=False, kw_only=True)
class Taught:
    """A real batch: its student's and its teacher's unit rows."""

    student: Tensor
    teacher: Tensor
    labels: Tensor


def teacher_of_last_epoch(run: Finished, model: Embedder, items: int) -> tuple[Teacher, str]:
    """Who taught in the last epoch, and what to call it: from the checkpoint before its end; without one the model itself."""
    options, checkpoints = run.options, run.folder.checkpoints
    for path in (checkpoints.before, checkpoints.last):
        if not path.exists():
            continue
        try:
            state = read_state(path)
            under_way = state.get("epoch") == run.last_epoch
            if options.teacher in ("none", "heads"):
                if under_way and state["step"] == 0:
                    teacher: Teacher = PreviousEpochTeacher(model)
                    teacher.get_submodule("model").load_state_dict(state["model"])
                    return teacher, "the model an epoch before, though it did not teach"
            elif under_way or options.teacher in STEADY:
                teacher = systems.teacher_of(options, model, items)
                teacher.load_state_dict(state["teacher"])
                return teacher, options.teacher
        except (InputError, RuntimeError, KeyError):  # damaged, or the model that taught is gone: the reader is told below
            continue
    return PreviousEpochTeacher(model), "the model itself, as no checkpoint of its teacher is left"


@torch.no_grad()
def taught_batches(run: Finished, model: Embedder, teacher: Teacher, part: Part, device: torch.device) -> list[Taught]:
    """The first batches of the run's last epoch, as the trained model and its teacher see them."""
    model.eval()
    batches = TrainingBatches(replace(run.options, workers=0), part, model)
    number = 1 if batches.rows is None else BATCHES
    found = []
    for inputs, labels, indices in islice(batches.epoch(run.last_epoch), number):
        said = ask(teacher, inputs.to(device), indices.to(device), run.options.micro_batch)
        chunk = run.options.micro_batch or len(inputs)
        student = torch.cat([model(some.to(device)) for some in torch.split(inputs, chunk)])
        known = torch.ones(len(labels), dtype=torch.bool) if said.known is None else said.known.cpu()
        found.append(Taught(student=student.float().cpu()[known], teacher=said.embeddings.float().cpu()[known], labels=labels[known]))
    return found


def heatmaps_of(run: Finished, taught: Taught, who: str, class_names: Sequence[str]) -> Heatmaps:
    """What each method would teach in this batch, by the run's own ω and τ."""
    options, order = run.options, torch.argsort(taught.labels, stable=True)
    student, teacher = taught.student[order], taught.teacher[order]
    kinds: dict[str, Targets] = {
        "targets, PSD": PairwiseTargets(),
        f"targets, OBD-SD (ω = {options.omega:g})": systems.targets_of(replace(options, targets="batch-diffusion")),
        f"targets, control without a graph (mean mix, ω = {options.omega:g})": MeanMix(options.omega),
    }
    matrices = {"teacher similarity": teacher @ teacher.T}
    matrices |= {name: refine(teacher, options.temperature) for name, refine in kinds.items()}
    matrices["student similarity"] = student @ student.T
    return Heatmaps(
        matrices={name: matrix.numpy().astype(np.float32) for name, matrix in matrices.items()},
        classes=[class_names[int(label)] for label in taught.labels[order]],
        batch=f"first batch of epoch {run.last_epoch + 1}; teacher: {who}",
    )


def geometry_of(run: Finished, rows: NDArray[np.float32], labels: NDArray[np.int64], batches: Sequence[Taught], seed: int) -> Geometry:
    """Of training items; the gradient's shares are those of the distillation in real batches, none where nothing distils."""
    edges = np.linspace(-1, 1, BINS + 1)
    values = singular_values(rows)
    cosines = cosine_histograms(rows, labels, edges, seed)
    intra, inter = (Histogram(edges=(1 - edges[::-1]).tolist(), shares=side[::-1].tolist()) for side in cosines)
    return Geometry(spectrum=(values / values.sum()).tolist(), intra=intra, inter=inter, gradient=_gradient(run, batches, edges))


def _gradient(run: Finished, batches: Sequence[Taught], edges: NDArray[np.float64]) -> dict[str, list[float]]:
    options = run.options
    if options.teacher in ("none", "heads") or options.targets not in ALONE:
        return {}
    if all(batch.student.shape == batch.teacher.shape and torch.allclose(batch.student, batch.teacher, atol=1e-5) for batch in batches):
        return {}  # its teacher is gone, and the model would teach itself
    distill, shares = systems.distillation_of(options), []
    for batch in batches:
        targets = distill.taught(TeacherBatch(batch.teacher))
        shares.append(gradient_shares(batch.student, targets, batch.labels, edges, options.temperature))
    mean = Shares(*(np.mean(side, axis=0) for side in zip(*shares, strict=True)))
    return {
        "cosine": ((edges[:-1] + edges[1:]) / 2).tolist(),
        "positive": mean.positive.tolist(),
        "negative": mean.negative.tolist(),
    }
