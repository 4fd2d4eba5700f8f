"""Why a head that begins as the projection does better: heads that share one property or another with it, on held-out classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from obdsd.presets import preset
from obdsd.settings import TrainOptions
from obdsd.training.display import Display
from obdsd.training.loop import Training
from study.plan import CUB, FOLDS, LETTERS, SEARCH_SEED
from study.search import features
from study.variants import HELD_OUT, run_changed, train_changed

SEEDS = 2
DATA = {"cub": (CUB, 5), "letters": (LETTERS, 40)}  # epochs at 5e-4: what the search chose for the plain loss with either beginning


def _lengths(weights: Tensor) -> Tensor:
    return torch.linalg.vector_norm(weights, dim=1, keepdim=True)


BEGINNINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {  # from random weights W and the projection P, both (dim, features)
    "random": lambda W, P: W,
    "random, a tenth as long": lambda W, P: W / 10,
    "random, as long as the projection": lambda W, P: nn.functional.normalize(W, dim=1),
    "random, orthonormal": lambda W, P: torch.linalg.qr(W.T).Q.T,
    "random inside the main directions": lambda W, P: nn.functional.normalize(W[:, : len(P)] @ P, dim=1) * _lengths(W),
    "random inside the main directions, orthonormal": lambda W, P: torch.linalg.qr(W[:, : len(P)]).Q @ P,
    "projection, as long as random": lambda W, P: P * _lengths(W),
    "projection": lambda W, P: P,
}


def beginning_as(name: str) -> type[Training]:
    """A training whose head begins as one of these, without a bias."""

    class Begun(Training):
        def project_head(self, display: Display) -> None:
            drawn = self.embedder.head.get_parameter("weight").detach().clone()
            super().project_head(display)
            weight = self.embedder.head.get_parameter("weight")
            with torch.no_grad():
                weight.copy_(BEGINNINGS[name](drawn, weight.clone()))

    return Begun


def run_beginnings(jobs: int = 1) -> None:
    """Train heads that begin in different ways with the plain loss, on held-out classes."""
    plan = {}
    for data, (file, epochs) in DATA.items():
        options = preset("ms", features(file), **{**HELD_OUT, "epochs": epochs, "lr": 5e-4, "head_init": "projection"})
        for name in BEGINNINGS:
            for seed in range(SEARCH_SEED, SEARCH_SEED + SEEDS):
                for fold, held_out in enumerate(FOLDS):
                    record = f"beginnings/{data}/{name}/seed-{seed}/fold-{fold}"
                    plan[record] = (name, replace(options, seed=seed, val_fold=held_out))
    run_changed(_run, plan, jobs)


def _run(record: str, name: str, options: TrainOptions) -> float:
    return train_changed(record, options, beginning_as(name))
