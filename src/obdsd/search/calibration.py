"""From which similarity on does something fit? Measured on labelled classes that the model has not seen.

The question is that of a search: a photo asks a whole collection, and the best answer counts. So a *false match* is a query whose best
item of another class is at least as similar as the threshold: had its own class not been there, the search would have shown that item. A
*miss* is a query whose best item of its own class is less similar than the threshold. Biometrics calls the two rates FPIR and FNIR; they
are FMR and FNMR of a query against a whole collection. A larger collection holds more items that look alike by chance, so the rate belongs
to a collection of that size.

The rates over single pairs, FMR and FNMR in the narrow sense, are measured beside them. They do not depend on the size of the collection,
and for a search they are far too kind: at an FMR of 1 % a query meets ten false matches among a thousand items.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from obdsd.counting import Progress
from obdsd.errors import InputError
from obdsd.evaluation.points import Points, checked
from obdsd.search.reranker import silent

RATES = (0.01, 0.001)
BINS = 1 << 20  # of the cosines of pairs: thresholds for pairs are exact to 2e-6
HELD = 1 << 22  # similarities that are held at a time
RESAMPLES = 1000
COVERAGE = 0.95
SAME = 1 - 1e-6  # only copies are more similar

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]


class Best(NamedTuple):
    """Of each query: the similarity of the best item of another class, and of its own (NaN if there is none), and its class."""

    other: Floats
    own: Floats
    labels: Numbers


class Pairs(NamedTuple):
    """How many pairs of items have a cosine in each bin, from -1 to 1: pairs across classes, and inside a class."""

    across: Numbers
    inside: Numbers


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """The least similarity that counts as a match if the false-match rate may be `rate`.

    `false_matches` is the rate that it has on the queries, `misses` the share of queries that miss their own class (FNMR). Intervals are of
    95 %, over classes. `pair_similarity` and `pair_misses` are the same over single pairs; None if there are too few of them.
    """

    rate: float
    similarity: float
    similarity_interval: tuple[float, float]
    false_matches: float
    misses: float
    misses_interval: tuple[float, float]
    pair_similarity: float | None
    pair_misses: float | None


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Thresholds, the largest rate first, and what they were measured on. `searched` counts the items that a query is compared with;
    one that is among the queries and in the collection counts once.

    `half` is a similarity at which half of the queries miss their class, and the false-match rate there.
    """

    thresholds: tuple[Threshold, ...]
    half: tuple[float, float]
    queries: int
    with_own: int
    classes: int
    searched: int
    pairs_across: int
    pairs_inside: int


def calibrate(
    embeddings: Any,
    labels: Any,
    rates: Sequence[float] = RATES,
    *,
    groups: Any = None,
    collection: Points | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> Calibration:
    """The similarity at which the false-match rate of a search is each of `rates`.

    Every item asks all others, and those of the `collection` as well. Of one class and one group no item is a match for another.

    Args:
        embeddings: A row for each item of the held-out classes.
        labels: Their classes.
        rates: False-match rates, each above 0 and below 1. There must be at least 1/rate items.
        groups: What marks items that are the same thing again, such as two views by one camera.
        collection: More items that are searched, with labels of the same names. Those of a query's own class are not compared with it.
        seed: Of the bootstrap over classes.
        progress: Told the stage, how much of it is done, and of how much.

    >>> rows = [[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]]
    >>> calibrate(rows, ["wren", "wren", "owl", "owl"], rates=[0.5]).thresholds[0].misses
    0.0
    """
    points = checked(Points(embeddings, labels, groups))
    check_rates(rates, len(points.embeddings))
    best, pairs, searched = compare_all(points, None if collection is None else checked(collection, "collection."), progress)
    if len(np.unique(best.labels)) < 2:
        raise InputError("labels: there is one class only, so nothing can be matched by mistake; give 2 classes or more")
    if np.isnan(best.own).all():
        raise InputError("labels: no item has another one of its class, so no match can be missed; give classes of 2 items or more")
    middle = float(np.nanmedian(best.own))
    return Calibration(
        half=(middle, float((best.other >= middle).mean())),
        thresholds=tuple(_threshold(best, pairs, rate, seed) for rate in sorted(rates, reverse=True)),
        queries=len(best.labels),
        with_own=int((~np.isnan(best.own)).sum()),
        classes=len(np.unique(best.labels)),
        searched=searched,
        pairs_across=int(pairs.across.sum()),
        pairs_inside=int(pairs.inside.sum()),
    )


def items_needed(rate: float) -> int:
    """How many items a rate needs: that one of them may be a false match.

    >>> items_needed(0.001)
    1000
    """
    return math.ceil(1 / rate - 1e-9)


def check_rates(rates: Sequence[float], items: int) -> None:
    """Refuse rates that are none, or that so many items cannot show."""
    if not rates:
        raise InputError("rates= must hold a number; try 0.01")
    for rate in rates:
        if not 0 < rate < 1:
            raise InputError(f"rates={rate:g} must lie between 0 and 1; try 0.01")
    least = min(rates)
    if items < items_needed(least):
        larger = next((rate for rate in (0.001, 0.01, 0.05, 0.1) if items >= items_needed(rate)), 0.5)
        remedy = f"give {items_needed(least):,} or more, or ask for a larger rate such as {larger:g}"
        raise InputError(f"rates={least:g} cannot be measured on {items:,} items; {remedy}")


def compare_all(points: Points, collection: Points | None, progress: Progress = silent) -> tuple[Best, Pairs, int]:
    """Compare every item with all others, and with the collection; how many items a query is compared with.

    A copy of an item in the collection has its class and is not compared with it: an item's own class is looked for among the items alone.
    For others the copy is as similar as the item, so it changes no rate, and it is not counted.
    """
    rows = points.embeddings
    others = np.empty((0, rows.shape[1]), dtype=np.float32) if collection is None else collection.embeddings
    if others.shape[1] != rows.shape[1]:
        raise InputError(f"collection.embeddings have length {others.shape[1]}, embeddings {rows.shape[1]}; give rows of one model")
    names = [points.labels.astype(str)] + ([] if collection is None else [collection.labels.astype(str)])
    numbers = np.unique(np.concatenate(names), return_inverse=True)[1]
    labels, known = numbers[: len(rows)], numbers[len(rows) :]
    groups = np.arange(len(rows)) if points.groups is None else np.unique(points.groups, return_inverse=True)[1]
    best = Best(np.empty(len(rows)), np.empty(len(rows)), labels)
    pairs = Pairs(np.zeros(BINS, dtype=np.int64), np.zeros(BINS, dtype=np.int64))
    is_copy = np.zeros(len(others), dtype=bool)
    step = max(1, HELD // (len(rows) + len(others)))
    for start in range(0, len(rows), step):
        part = slice(start, min(start + step, len(rows)))
        cosines = np.clip(rows[part] @ rows.T, -1, 1)  # (some, items)
        is_same = labels[part, None] == labels
        is_own = is_same & (groups[part, None] != groups)
        own = np.where(is_own, cosines, -np.inf).max(axis=1)
        best.own[part] = np.where(np.isfinite(own), own, np.nan)
        best.other[part] = np.where(is_same, -np.inf, cosines).max(axis=1)
        if len(others):
            similar, is_known = np.clip(rows[part] @ others.T, -1, 1), labels[part, None] == known
            best.other[part] = np.maximum(best.other[part], np.where(is_known, -np.inf, similar).max(axis=1))
            is_copy |= (is_known & (similar > SAME)).any(axis=0)
        is_later = np.arange(part.start, part.stop)[:, None] < np.arange(len(rows))  # each pair counts once
        for counts, chosen in ((pairs.across, ~is_same & is_later), (pairs.inside, is_own & is_later)):
            counts += np.bincount(_bins(cosines[chosen]), minlength=BINS)
        progress("comparing", part.stop, len(rows))
    return best, pairs, len(rows) - 1 + int((~is_copy).sum())


def similarity_at(best: Best, rate: float) -> tuple[float, float]:
    """The least similarity at which at most `rate` of the queries have a false match, and the share of queries that then miss their class.

    It lies just above that of the first query too many.
    """
    place = len(best.other) - 1 - math.floor(rate * len(best.other) + 1e-9)
    similarity = float(np.nextafter(np.float32(np.partition(best.other, place)[place]), np.float32(2)))
    own = best.own[~np.isnan(best.own)]
    return similarity, float((own < similarity).mean()) if len(own) else math.nan


def _threshold(best: Best, pairs: Pairs, rate: float, seed: int) -> Threshold:
    similarity, misses = similarity_at(best, rate)
    if similarity > SAME:
        copies = int((best.other > SAME).sum())
        where = f"{copies:,} of {len(best.other):,} items are there again under another label, so no similarity tells classes apart"
        raise InputError(f"labels: {where}; give the items of the index the same labels, and look at obdsd data suspects")
    places = {label: np.flatnonzero(best.labels == label) for label in np.unique(best.labels).tolist()}

    def again(drawn: NDArray[Any]) -> tuple[float, float]:
        chosen = np.concatenate([places[label] for label in drawn.tolist()])
        return similarity_at(Best(*(values[chosen] for values in best)), rate)

    how: dict[str, Any] = {"n_resamples": RESAMPLES, "vectorized": False, "confidence_level": COVERAGE, "method": "percentile"}
    interval = stats.bootstrap((np.array([*places]),), again, rng=np.random.default_rng(seed), **how).confidence_interval
    low, high = np.asarray(interval.low).tolist(), np.asarray(interval.high).tolist()
    pair_similarity, pair_misses = _of_pairs(pairs, rate)
    return Threshold(
        rate=rate,
        similarity=similarity,
        similarity_interval=(low[0], high[0]),
        false_matches=float((best.other >= similarity).mean()),
        misses=misses,
        misses_interval=(low[1], high[1]),
        pair_similarity=pair_similarity,
        pair_misses=pair_misses,
    )


def _of_pairs(pairs: Pairs, rate: float) -> tuple[float | None, float | None]:
    """The same over single pairs, by their bins; None if not even one pair may be a false match."""
    allowed = math.floor(rate * int(pairs.across.sum()) + 1e-9)
    if not allowed:
        return None, None
    from_top = np.cumsum(pairs.across[::-1])  # pairs in the highest bins
    kept = int(np.searchsorted(from_top, allowed, side="right"))  # so many bins hold no more pairs than are allowed
    return 1 - 2 * kept / BINS, int(pairs.inside[: BINS - kept].sum()) / int(pairs.inside.sum())


def _bins(cosines: NDArray[np.float32]) -> Numbers:
    """The bin of each cosine; 1 itself is in the last."""
    return np.minimum((cosines.astype(np.float64) + 1) * (BINS // 2), BINS - 1).astype(np.int64)
