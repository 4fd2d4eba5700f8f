"""Why a head that begins as the projection does better: heads that share one property or another with it, on held-out classes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from obdsd.presets import preset
from study.plan import CUB, LETTERS, PROJECTED, QUIET, SEARCH_SEED
from study.records import run_all
from study.search import features, on_folds

SEEDS = range(SEARCH_SEED, SEARCH_SEED + 2)
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


def run_beginnings(jobs: int = 1) -> None:
    """Train heads that begin in different ways with the plain loss, on held-out classes."""
    import study.parts  # noqa: F401  registers the system

    plan = {}
    for data, (file, epochs) in DATA.items():
        options = preset("ms", features(file), **QUIET, **PROJECTED, epochs=epochs, lr=5e-4)
        for name in BEGINNINGS:
            begun = options.replace(system=f"beginning({name!r})")
            for seed in SEEDS:
                plan |= dict(on_folds(f"beginnings/{data}/{name}/seed-{seed}", begun, seed))
    run_all(plan, jobs)
