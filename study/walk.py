"""How much of the walk's targets is a flatter teacher, how much the batch's mean row, and how much the graph."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import islice

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from obdsd.experiments.runs import carry_out
from obdsd.files import write_json
from obdsd.method.targets import BatchDiffusion
from obdsd.options import TrainOptions
from obdsd.training import RunRecord
from study.plan import FOLDS, SEARCH_SEED
from study.records import RESULTS, SCRATCH
from study.search import chosen_options
from study.testing import begun

HEADS: dict[str, tuple[str, tuple[str, ...]]] = {  # a regime, and the rows whose models are measured
    "linear head": ("cub-linear-long", ("ms",)),
    "two-layer head": ("cub-two-layer-long", ("ms", "psd", "obd-sd", "mean-mix", "uniform-mix", "flat", "balanced")),
    "projected head": ("cub-projected-free", ("ms",)),
}
OMEGAS = (0.3, 0.7)
SEEDS = 2
BATCHES = 20


def explained(Z: Tensor, omega: float) -> tuple[float, float]:
    """Shares of the variance of log softmax(A) that (1-ω)D explains, and (1-ω)D + ωm with m the mean row of D."""
    D = Z @ Z.mT
    taught = BatchDiffusion(omega)(Z).log()
    flatter = (1 - omega) * D
    return _share(taught, flatter), _share(taught, flatter + omega * D.mean(dim=0, keepdim=True))


def share_of_the_mean_row(Z: Tensor) -> float:
    """Share of the variance of the cosines that is the mean row: the same items are near to everybody."""
    D = Z @ Z.mT
    return _share(D, D.mean(dim=0, keepdim=True).expand_as(D))


def _share(values: Tensor, guess: Tensor) -> float:
    """Share of the variance of `values`, inside rows and off the diagonal, that `guess` explains."""
    inside = _inside_rows(values)
    return float(1 - (inside - _inside_rows(guess)).var() / inside.var())


def _inside_rows(values: Tensor) -> Tensor:
    """Entries off the diagonal, minus the mean of their row."""
    others = values[~torch.eye(len(values), dtype=torch.bool)].reshape(len(values), -1)
    return others - others.mean(dim=1, keepdim=True)


def write_shares(jobs: int = 1) -> None:
    """Measure how much of the walk's targets is a flatter teacher, the mean row, and the graph."""
    plan = {
        (who, row, seed): chosen_options(regime, row).replace(
            seed=seed, score="validation", val_fold=FOLDS[0], out=str(SCRATCH / "walk" / regime / row / f"{seed}")
        )
        for who, (regime, rows) in HEADS.items()
        for row in rows
        for seed in range(SEARCH_SEED, SEARCH_SEED + SEEDS)
    }
    carry_out(plan, jobs, True)
    found: dict[str, list[tuple[float, ...]]] = {}
    for (who, row, _), options in plan.items():
        for teacher, batches in _teachers(who, row, options):
            found.setdefault(teacher, []).extend(map(_reading, batches))
    write_json(
        RESULTS / "walk.json", {who: [round(float(mean), 4) for mean in np.mean(readings, axis=0)] for who, readings in found.items()}
    )
    shutil.rmtree(SCRATCH / "walk")


def _reading(Z: Tensor) -> tuple[float, ...]:
    return share_of_the_mean_row(Z), *(share for omega in OMEGAS for share in explained(Z, omega))


@torch.no_grad()
def _teachers(who: str, row: str, options: TrainOptions) -> Iterator[tuple[str, list[Tensor]]]:
    """Unit embeddings of a run's first batches by its final model; for the plain loss also the features and the untrained head."""
    trainer = begun(options)
    inputs = [batch for batch, _, _ in islice(trainer.batches.epoch(0), BATCHES)]
    models = {f"{who}, {row}, {options.epochs} epochs": RunRecord.read(str(options.out)).model().eval()}
    if row == "ms":
        models = {f"{who}, untrained": trainer.model.eval(), **models}
        yield "features", [F.normalize(batch.double(), dim=1) for batch in inputs]
    for name, model in models.items():
        yield name, [F.normalize(model(batch).double(), dim=1) for batch in inputs]
