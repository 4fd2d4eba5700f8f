"""How much of what the walk teaches in real batches is a flatter teacher, the batch's mean row, and the graph."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import islice

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from obdsd.files import write_json
from obdsd.method.targets import BatchDiffusion
from obdsd.models import Embedder
from obdsd.training import train
from obdsd.training.assembly import collection_of
from obdsd.training.display import Display
from obdsd.training.loop import Training
from obdsd.training.runs import RunFolder
from study.plan import REGIMES, SEARCH_SEED, beginning, options_of
from study.records import RESULTS, SCRATCH

HEADS = {"linear head": "cub-linear-long", "two-layer head": "cub-two-layer-long", "projected head": "cub-projected-free"}
OMEGAS = (0.3, 0.7)
BATCHES = 20


def explained(Z: Tensor, omega: float) -> tuple[float, float]:
    """Shares of the variance of log softmax(A), inside rows and off the diagonal, that (1-ω)D explains, and (1-ω)D + ωm
    with m the mean row of D."""
    D = Z @ Z.mT
    said = _inside_rows(BatchDiffusion(omega)(Z).log())
    flatter = (1 - omega) * D
    guesses = (flatter, flatter + omega * D.mean(dim=0, keepdim=True))
    first, second = (float(1 - (said - _inside_rows(guess)).var() / said.var()) for guess in guesses)
    return first, second


def _inside_rows(values: Tensor) -> Tensor:
    """Off the diagonal, each row's mean taken off."""
    others = values[~torch.eye(len(values), dtype=torch.bool)].reshape(len(values), -1)
    return others - others.mean(dim=1, keepdim=True)


def write_shares(file_of: Callable[[str], str]) -> None:
    """Means over batches of CUB's training set, by who teaches: the features, and heads before and after a training with the plain loss."""
    found = {}
    for who, batches in _teachers(file_of).items():
        shares = np.array([[explained(Z, omega) for omega in OMEGAS] for Z in batches]).mean(axis=0)
        found[who] = {f"{omega:g}": [round(float(share), 4) for share in pair] for omega, pair in zip(OMEGAS, shares, strict=True)}
    write_json(RESULTS / "walk.json", found)


@torch.no_grad()
def _teachers(file_of: Callable[[str], str]) -> dict[str, list[Tensor]]:
    found: dict[str, list[Tensor]] = {}
    for who, regime in HEADS.items():
        plan = REGIMES[regime]
        options = options_of(plan, "ms", file_of(plan.data), {**beginning(plan, "ms"), "seed": SEARCH_SEED, "out": str(SCRATCH / "walk")})
        training = Training(options, collection_of(options), RunFolder(SCRATCH / "walk"))
        inputs = [batch for batch, _, _ in islice(training.batches.epoch(0), BATCHES)]
        found.setdefault("features", [F.normalize(batch.double(), dim=1) for batch in inputs])
        if options.head_init == "projection":
            training.project_head(Display(0, 0))
        trained = f"{who}, {options.epochs} epochs of the plain loss"
        found[f"{who}, untrained"] = [F.normalize(training.embedder.eval()(batch).double(), dim=1) for batch in inputs]
        with torch.enable_grad():
            folder = train(options).folder
        model = Embedder.load(folder / "model").eval()
        found[trained] = [F.normalize(model(batch).double(), dim=1) for batch in inputs]
        shutil.rmtree(folder)
    return found
