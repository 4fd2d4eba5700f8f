"""The batches of a training set with very many classes: how their making grows with the classes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.harness import Comparison, run
from obdsd.data.batches import ClassBatches

MANY, FEW, EACH = 20_000, 2_000, 5  # SOP has 11,318 classes of 5 images on average


def labels_of(classes: int) -> np.ndarray:
    return np.random.default_rng(0).permutation(np.repeat(np.arange(classes), EACH))


def comparisons() -> Iterator[Comparison]:
    many, few = labels_of(MANY), labels_of(FEW)
    yield Comparison(
        name=f"{MANY} classes",
        ours=lambda: ClassBatches(many),
        peer=lambda: [np.flatnonzero(many == label) for label in np.unique(many)],
        peer_name="all items looked through for each class",
        goal=5.0,
        slow=True,
    )
    yield Comparison(
        name=f"{MANY} classes at once",
        ours=lambda: ClassBatches(many),
        peer=lambda: [ClassBatches(few) for _ in range(MANY // FEW)],
        peer_name=f"{FEW} classes, {MANY // FEW} times: the same if the time is linear in the classes",
        goal=0.5,
    )


def main() -> None:
    run(f"Batches by class, {EACH} items a class", "batches", comparisons())
