"""What a person should look at in a collection: labels that the other items contradict, and near-copies.

A label is judged by class means. Rows are centred and whitened, which tells classes apart that share most directions. Then the cosine of an
item with the mean of its own class, without the item itself, is set against that with the mean of any other class. In our trials
(docs/results.md) this found far more wrong labels than votes of nearest neighbours or a walk on their graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import faiss
import numpy as np
import scipy.sparse
from jaxtyping import Float, Int
from numpy.typing import NDArray

from obdsd.counting import Progress
from obdsd.errors import InputError
from obdsd.evaluation.points import Points, checked, chunks
from obdsd.search.reranker import silent

SHRINKAGE = 10.0  # times the mean eigenvalue; chosen on training classes of CUB-200-2011 and letters
NEIGHBOURS = 10  # of each item, among which near-copies are looked for
CLOSE = 0.4  # of the usual distance to the nearest item: what is nearer is a near-copy
ROUNDING = 1e-6  # of a cosine in float32
SHOWN = 3  # items of each class that are shown beside a suspect
AT_ONCE = 1 << 22  # similarities that are held

Rows = NDArray[np.float32]
Numbers = NDArray[np.int64]


class Judged(NamedTuple):
    """How much better another class fits each item than its own: `score`, the difference of the two cosines, and which class that is.

    `if_wrong` is the score that each item would have with a random wrong label. An item alone in its class has no score: NaN.
    """

    score: Float[np.ndarray, " n"]
    better: Int[np.ndarray, " n"]
    if_wrong: Float[np.ndarray, " n"]

    @property
    def wrong_share(self) -> float:
        """The estimated share of wrong labels: twice the share of scores above m, the median score of wrong labels.

        Half of the wrong labels score above m by its definition, and next to none of the right ones.
        """
        known = self.score[~np.isnan(self.score)]
        return min(1.0, 2 * float((known > np.median(self.if_wrong)).mean())) if len(known) else 0.0


class WrongLabel(NamedTuple):
    """An item whose label is contradicted, the class that fits better, and the most similar items of its own and of that class."""

    item: int
    score: float
    better: int
    own: tuple[int, ...]
    others: tuple[int, ...]


class Copies(NamedTuple):
    """Two items that are nearly the same, of one class or across classes."""

    one: int
    other: int
    similarity: float
    across: bool


@dataclass(frozen=True, eq=False)
class Suspects:
    """What was found, worst first. `wrong_share` is the estimated share of wrong labels; `alone` counts the items that are alone in their
    class, of whose labels nothing can be said."""

    labels: list[WrongLabel]
    copies: list[Copies]
    wrong_share: float
    alone: int


def find_suspects(
    embeddings: Any, labels: Any, *, most: int | None = None, seed: int = 0, close: float = CLOSE, progress: Progress = silent
) -> Suspects:
    """The suspects of a collection.

    Args:
        embeddings: A row for each item, of any length.
        labels: The class of each item, a number or a name; without labels only near-copies are looked for.
        most: How many labels to list; by default as many as are estimated to be wrong.
        seed: Of the random labels that the estimate is made with.
        close: Items are near-copies if their distance is at most this share of the usual distance to the nearest item.
        progress: Told the stage, how much of it is done, and of how much.
    """
    unlabelled = labels is None
    points = checked(Points(embeddings, np.zeros(len(embeddings), dtype=np.int64) if unlabelled else labels))
    rows, numbers = points.embeddings, np.unique(points.labels, return_inverse=True)[1]
    if len(rows) < 2:
        raise InputError(f"embeddings: {len(rows)} item has nothing to be compared with; give 2 or more")
    copies = near_copies(rows, numbers, close, progress)
    if unlabelled:
        return Suspects([], copies, 0.0, 0)
    if numbers.max() == 0:
        raise InputError("labels: all items have one label, so no other class can fit better; give 2 classes or more")
    Z = whitened(rows)
    judged = judge(Z, numbers, seed, progress)
    known = np.flatnonzero(~np.isnan(judged.score))
    count = round(judged.wrong_share * len(known)) if most is None else min(most, len(known))
    worst = known[np.argsort(-judged.score[known], kind="stable")[:count]]
    found = [
        WrongLabel(item, float(judged.score[item]), better, *(_nearest(Z, numbers, item, label) for label in (int(numbers[item]), better)))
        for item, better in zip(worst.tolist(), judged.better[worst].tolist(), strict=True)
    ]
    return Suspects(found, copies, judged.wrong_share, len(rows) - len(known))


def whitened(rows: Rows, shrinkage: float = SHRINKAGE) -> Rows:
    """Unit rows z = (x - mean) C^(-1/2), C the covariance plus `shrinkage` times its mean eigenvalue, up to a rotation."""
    mean = rows.mean(axis=0, dtype=np.float64)
    covariance = sum((part - mean).T @ (part - mean) for _, part in chunks(rows)) / len(rows)
    values, directions = np.linalg.eigh(covariance)
    usual = values.clip(0).sum() / min(len(rows) - 1, len(values))
    if usual < ROUNDING**2:
        raise InputError("embeddings: all rows are the same, so nothing tells classes apart; give those of a model that sees the items")
    turn = directions / np.sqrt(values.clip(0) + shrinkage * usual)
    Z = np.empty_like(rows)
    for part, exact in chunks(rows):
        turned = (exact - mean) @ turn
        Z[part] = turned / np.maximum(np.linalg.norm(turned, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    return Z


def judge(rows: Rows, labels: Numbers, seed: int = 0, progress: Progress = silent) -> Judged:
    """Set each item's cosine with the mean of its class, without itself, against those with the means of all other classes."""
    items, classes = len(rows), int(labels.max()) + 1
    sizes = np.bincount(labels, minlength=classes)
    members = scipy.sparse.csr_matrix((np.ones(items, dtype=np.float32), (labels, np.arange(items))), shape=(classes, items))
    sums = np.asarray(members @ rows)
    means = _unit(sums)
    wrong = (labels + np.random.default_rng(seed).integers(1, classes, items)) % classes
    judged = Judged(np.empty(items), np.empty(items, dtype=np.int64), np.empty(items))
    for part in _parts(items, classes):
        similar = rows[part] @ means.T  # (some, classes)
        own, place = labels[part], np.arange(len(similar))
        similar[place, own] = np.einsum("ij,ij->i", rows[part], _unit(sums[own] - rows[part]))
        judged.score[part], judged.better[part] = _ahead(similar, own)
        judged.if_wrong[part], _ = _ahead(similar, wrong[part])
        progress("judging labels", part.stop, items)
    judged.score[sizes[labels] == 1] = np.nan
    return judged


def near_copies(rows: Rows, labels: Numbers, close: float = CLOSE, progress: Progress = silent) -> list[Copies]:
    """Pairs whose distance 1 - cosine is at most `close` times the usual (median) distance to the nearest item; those across classes
    first, then the closest."""
    items, k = len(rows), min(NEIGHBOURS, len(rows) - 1)
    distance, found = np.empty((items, k), dtype=np.float32), np.empty((items, k), dtype=np.int64)
    for part in _parts(items, 1024):
        cosines, near = faiss.knn(rows[part], rows, k + 1, metric=faiss.METRIC_INNER_PRODUCT)
        others = np.argsort(near == np.arange(part.start, part.stop)[:, None], axis=1, kind="stable")[:, :k]
        distance[part], found[part] = 1 - np.take_along_axis(cosines, others, axis=1), np.take_along_axis(near, others, axis=1)
        progress("looking for copies", part.stop, items)
    is_near = distance <= close * float(np.median(distance[:, 0])) + ROUNDING
    one, other = np.nonzero(is_near)[0], found[is_near]
    pairs, first = np.unique(np.sort(np.column_stack([one, other]), axis=1), axis=0, return_index=True)
    cosines = 1 - distance[is_near][first]
    across = labels[pairs[:, 0]] != labels[pairs[:, 1]]
    order = np.lexsort((-cosines, ~across))
    ends = pairs.tolist()
    return [Copies(ends[n][0], ends[n][1], float(cosines[n]), bool(across[n])) for n in order.tolist()]


def _ahead(similar: Rows, chosen: Numbers) -> tuple[Rows, Numbers]:
    """By how much the best other class is ahead of the chosen one, and which it is."""
    place = np.arange(len(similar))
    own = similar[place, chosen]
    similar[place, chosen] = -np.inf
    best = similar.argmax(axis=1)
    ahead = similar[place, best] - own
    similar[place, chosen] = own
    return ahead, best


def _nearest(rows: Rows, labels: Numbers, item: int, label: int) -> tuple[int, ...]:
    """The items of a class that are most similar to an item."""
    members = np.flatnonzero(labels == label)
    members = members[members != item]
    return tuple(members[np.argsort(-(rows[members] @ rows[item]), kind="stable")[:SHOWN]].tolist())


def _unit(rows: Rows) -> Rows:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(np.float32).tiny)


def _parts(items: int, columns: int) -> Iterator[slice]:
    """Slices of so many items that their rows of so many columns fit into memory."""
    step = max(1, min(items, AT_ONCE // columns))
    return (slice(start, min(start + step, items)) for start in range(0, items, step))
