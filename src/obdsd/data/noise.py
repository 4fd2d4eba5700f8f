"""Symmetric label noise (Sec. 5.7)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from obdsd.errors import InputError


def flip_labels(labels: NDArray[np.int64], ratio: float, seed: int = 0) -> NDArray[np.int64]:
    """A copy in which a seeded `ratio` of the labels is replaced, each uniformly by one of the *other* classes.

    >>> clean = np.repeat(np.arange(4), 5)
    >>> int((flip_labels(clean, ratio=0.2) != clean).sum())
    4
    """
    classes = int(labels.max()) + 1
    if not 0 <= ratio <= 1:
        raise InputError(f"noise ratio={ratio} must lie in [0, 1]; the paper uses 0.1 to 0.4")
    if classes < 2:
        raise InputError(f"noise ratio={ratio} needs 2 classes or more to flip between; there is {classes}")
    random = np.random.default_rng(seed)
    flipped = random.permutation(len(labels))[: round(ratio * len(labels))]
    noisy = labels.copy()
    noisy[flipped] = (labels[flipped] + random.integers(1, classes, size=len(flipped))) % classes
    return noisy
