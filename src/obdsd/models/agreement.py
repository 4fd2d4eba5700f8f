"""Whether another program makes the same rows of the same items."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float

from obdsd.errors import InputError

LEAST = 0.99999  # cosine of a row with its true one
NEAREST = 10  # items whose order is compared
ROUNDING = 1e-5  # a difference of cosines that is none
CHUNK = 1024  # items that are compared with all at a time


class Agreement(NamedTuple):
    """How near rows are to the true ones.

    Attributes:
        items: How many rows there are.
        cosine: The least cosine of a row with its true one.
        nearest: How many of the nearest items of each were compared.
        same: How many items have the same nearest in the same order.
        apart: The largest difference, by true cosine, of two items of which one stands where the other should.
    """

    items: int
    cosine: float
    nearest: int
    same: int
    apart: float

    def __str__(self) -> str:
        line = f"least cosine {self.cosine:.7f}"
        if self.nearest:
            line += f"; the {self.nearest} nearest of each in the same order: {self.same:,} of {self.items:,}"
        if self.same < self.items:
            line += f" (where not, their cosines differ by {self.apart:.1g} at most)"
        return line

    def check(self, source: str) -> None:
        """Refuse rows that are others, or that find others."""
        check_cosine(source, self.cosine)
        if self.apart > ROUNDING:
            order = f"their nearest come in another order ({self})"
            raise InputError(f"{source}: its rows are not those of torch, {order}; stay with torch for this model")


def agreement(truth: Float[np.ndarray, "n d"], rows: Float[np.ndarray, "n d"]) -> Agreement:
    """How near rows are to the true ones, row by row and in what each finds among the others.

    >>> agreement(np.eye(4, dtype=np.float32), np.eye(4, dtype=np.float32))
    Agreement(items=4, cosine=1.0, nearest=3, same=4, apart=0.0)
    """
    true, found = torch.from_numpy(truth), torch.from_numpy(rows)
    nearest, same, apart = min(NEAREST, len(true) - 1), 0, 0.0
    for start in range(0, len(true), CHUNK):
        own = torch.arange(start, min(start + CHUNK, len(true)))
        cosines, others = true[own] @ true.T, found[own] @ found.T
        for matrix in (cosines, others):
            matrix[torch.arange(len(own)), own] = -torch.inf  # no item finds itself
        order, other = cosines.topk(nearest).indices, others.topk(nearest).indices
        same += int((order == other).all(dim=1).sum())
        apart = max(apart, float((cosines.gather(1, order) - cosines.gather(1, other)).abs().max())) if nearest else 0.0
    return Agreement(len(true), least_cosine(truth, rows), nearest, same, apart)


def least_cosine(truth: Float[np.ndarray, "n d"], rows: Float[np.ndarray, "n d"]) -> float:
    """The least cosine of a row with its true one; NaN if a number is none."""
    true, found = truth.astype(np.float64), rows.astype(np.float64)
    lengths = np.linalg.norm(true, axis=1) * np.linalg.norm(found, axis=1)
    return float(((true * found).sum(axis=1) / lengths).min())


def check_cosine(source: str, cosine: float) -> None:
    if not cosine >= LEAST:  # as NaN is not
        rule = f"the least cosine is {cosine:.6f} and must be {LEAST}"
        raise InputError(f"{source}: its rows are not those of torch, {rule}; stay with torch for this model")
