"""How sure a difference is: paired over seeds, and over test classes."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

RESAMPLES = 4000
Verdict = Literal["better", "undecided", "worse", "single"]


class Interval(NamedTuple):
    """A mean with the ends of its 95 % interval; NaN ends where one value has none."""

    mean: float
    low: float
    high: float

    @property
    def tells_apart(self) -> bool:
        """Whether 0 lies outside."""
        return self.low > 0 or self.high < 0

    @property
    def verdict(self) -> Verdict:
        """What a difference's interval says; `single` where one seed has none."""
        if math.isnan(self.low):
            return "single"
        return "undecided" if not self.tells_apart else "better" if self.mean > 0 else "worse"


def t_interval(values: NDArray[np.float64], coverage: float = 0.95) -> Interval:
    """Student's interval of a mean over seeds; of paired differences if those are given.

    >>> t_interval(np.array([1.0, 2.0, 3.0])).mean
    2.0
    """
    n, mean = len(values), float(np.mean(values))
    if n < 2:
        return Interval(mean, float("nan"), float("nan"))
    half = float(stats.t.ppf((1 + coverage) / 2, n - 1) * np.std(values, ddof=1) / np.sqrt(n))
    return Interval(mean, mean - half, mean + half)


def class_interval(differences: NDArray[np.float64], queries: NDArray[np.int64], seed: int = 0, coverage: float = 0.95) -> Interval:
    """Bootstrap over test classes: would other classes have shown the difference too?

    `differences` holds each class's mean over seeds of ours minus baseline, `queries` how many queries it has.
    """
    generator = np.random.default_rng(seed)
    drawn = generator.integers(0, len(differences), (RESAMPLES, len(differences)))
    means = (differences[drawn] * queries[drawn]).sum(axis=1) / queries[drawn].sum(axis=1)
    low, high = np.quantile(means, [(1 - coverage) / 2, (1 + coverage) / 2])
    return Interval(float(np.average(differences, weights=queries)), float(low), float(high))
