"""What else might help: targets, teachers, weights and beginnings that the paper does not have, tried on held-out classes only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from obdsd.presets import preset
from study.plan import CUB, LETTERS, LINEAR, PROJECTED, QUIET, SEARCH_SEED, TWO_LAYER, Change
from study.records import run_all
from study.search import features, on_folds

SETTINGS: dict[str, dict[str, Any]] = {
    "linear": {**QUIET, **LINEAR, "epochs": 40, "lr": 5e-4},
    "two-layer": {**QUIET, **TWO_LAYER, "epochs": 40, "lr": 1e-4},
}
BEGUN_ON = {"cub": (CUB, 5), "letters": (LETTERS, 40)}  # epochs at 5e-4: what the search chose for the plain loss with either beginning
WEIGHTS = (100.0, 1000.0)
FEATURES = {"teacher": "features", "ramp": "constant"}
VARIANTS: dict[str, tuple[str, Change]] = {  # a preset, and what is changed of it
    "ms": ("ms", {}),
    "psd": ("ms+psd", {}),
    "obd-sd": ("ms+obd-sd", {}),
    "obd-sd τ=0.1": ("ms+obd-sd", {"temperature": 0.1}),
    "sharp walk": ("ms+obd-sd-softmax", {"targets": "batch-diffusion(form=softmax, walk_temperature=0.05)"}),
    "sparse walk": ("ms+obd-sd", {"targets": "sparse-walk"}),
    "sparse walk ω=0.9": ("ms+obd-sd", {"targets": "sparse-walk(omega=0.9)"}),
    "walk within classes": ("ms+obd-sd", {"targets": "labelled-walk(omega=0.9, within=true)"}),
    "walk across classes": ("ms+obd-sd", {"targets": "labelled-walk(within=false)"}),
    "even entropy 60": ("ms+psd", {"targets": "even-entropy(60)"}),
    "balanced": ("ms+psd-balanced", {}),
    "balanced walk": ("ms+obd-sd", {"targets": "balanced(batch-diffusion(omega=0.3))"}),
    "no diagonal": ("ms+psd", {"system": "no-diagonal"}),
    "no diagonal, walk": ("ms+obd-sd", {"system": "no-diagonal"}),
    "share 0.5": ("ms+psd-constant", {"system": "share-keeper(0.5)"}),
    "share 0.5, walk": ("ms+obd-sd", {"ramp": "constant", "system": "share-keeper(0.5)"}),
    "ema 0.999": ("ms+psd-constant", {"teacher": "ema"}),
    "ω falls, 0.9 to 0": ("ms+obd-sd", {"system": "omega-schedule(start=0.9, end=0)"}),
    "ω rises, 0 to 0.9": ("ms+obd-sd", {"system": "omega-schedule(start=0, end=0.9)"}),
    "τ falls, 1 to 0.1": ("ms+psd", {"system": "temperature-schedule(start=1, end=0.1)"}),
    "τ rises, 0.1 to 1": ("ms+psd", {"system": "temperature-schedule(start=0.1, end=1)"}),
    "old teacher": ("ms+psd", {"system": "old-teacher"}),
    "old teacher, walk": ("ms+obd-sd", {"system": "old-teacher"}),
    "features": ("ms+psd", FEATURES),
    "features, walk": ("ms+obd-sd", FEATURES),
    "features, sparse walk": ("ms+obd-sd", {**FEATURES, "targets": "sparse-walk"}),
    "features, within classes": ("ms+obd-sd", {**FEATURES, "targets": "labelled-walk(within=true)"}),
    "features, across classes": ("ms+obd-sd", {**FEATURES, "targets": "labelled-walk(within=false)"}),
    "features, no diagonal": ("ms+psd", {**FEATURES, "system": "no-diagonal"}),
    "features, share 0.5": ("ms+psd", {**FEATURES, "system": "share-keeper(0.5)"}),
}


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


def weights_of(name: str) -> tuple[float, ...]:
    """λ that a variant is tried with; the plain loss has none."""
    return WEIGHTS if name != "ms" else (0.0,)


def run_variants(head: str = "linear", jobs: int = 1) -> None:
    """Train variants that the paper does not have, with two weights, on held-out classes."""
    import study.parts  # noqa: F401  registers what the variants are made of

    plan, data = {}, features()
    for name, (start, changes) in VARIANTS.items():
        options = preset(start, data, **{**SETTINGS[head], **changes})
        for weight in weights_of(name):
            plan |= dict(on_folds(f"variants/{head}/{name}/weight={weight:g}", options.replace(weight=weight)))
    run_all(plan, jobs)


def run_beginnings(jobs: int = 1) -> None:
    """Train heads that begin in different ways with the plain loss, on held-out classes."""
    import study.parts  # noqa: F401  registers the system

    plan = {}
    for data, (file, epochs) in BEGUN_ON.items():
        options = preset("ms", features(file), **QUIET, **PROJECTED, epochs=epochs, lr=5e-4)
        for name in BEGINNINGS:
            begun = options.replace(system=f"beginning({name!r})")
            for seed in (SEARCH_SEED, SEARCH_SEED + 1):
                plan |= dict(on_folds(f"beginnings/{data}/{name}/seed-{seed}", begun, seed))
    run_all(plan, jobs)
