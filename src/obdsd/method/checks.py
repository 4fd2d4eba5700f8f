"""Checks of what callers pass in: every message names the field, the rule, the value and the remedy.

Shapes and plain numbers are checked at once, everywhere. Values *inside* tensors are checked at once on the CPU. On an
accelerator that would make the host wait for the device at every step; there the verdict is copied back without waiting and
read by a later check, once it has arrived, or at the end of the program: a bad batch is reported a step or so late, and a good one
costs no wait. Where nobody can look at values, as under `vmap` or on the device `meta`, that is said.
"""

from __future__ import annotations

import atexit
from collections import deque
from collections.abc import Callable
from functools import partial
from numbers import Integral, Real
from typing import NoReturn

import torch
from torch import Tensor

from obdsd.errors import InputError
from obdsd.method.precision import HALF, in_full


def refuse(field: str, value: object, rule: str, remedy: str) -> NoReturn:
    raise InputError(f"{field}={value} {rule}; {remedy}")


def require(ok: bool, field: str, value: object, rule: str, remedy: str) -> None:
    if not ok:
        refuse(field, value, rule, remedy)


def check_number(field: str, value: object, kind: type = Real) -> None:
    """Refuse what is no number, or no whole one: in a message a text looks like the number that it holds."""
    if not isinstance(value, kind):
        what = "a text" if isinstance(value, str) else f"a {type(value).__name__}"
        number = "a whole number" if kind is Integral else "a number"
        refuse(field, repr(value), f"is {what}", f"pass {number}, without quotes" if isinstance(value, str) else f"pass {number}")


def check_omega(omega: float) -> None:
    """ω is the probability of continuing the walk: at 1 the walk never ends and I - ωS is singular."""
    check_number("omega", omega)
    require(0 <= omega < 1, "omega", omega, "must lie in [0, 1)", "try 0.3, or 0 for no diffusion")


def check_distance_from_one(omega: float, dtype: torch.dtype) -> None:
    """Nearer to 1 than this, I - ωS is singular within the rounding of S."""
    nearest = 1 - 500 * torch.finfo(dtype).eps
    require(omega <= nearest, "omega", omega, f"is too near 1 for {dtype}", f"stay below {nearest:.6f} or use float64")


def check_temperature(temperature: float, field: str = "temperature") -> None:
    """Beyond these limits its square, or a cosine divided by it, is no number of float32."""
    check_number(field, temperature)
    require(1e-18 <= temperature <= 1e18, field, temperature, "must be a positive finite number, from 1e-18 to 1e18", "try 1.0")


def whole(field: str, numbers: object) -> Tensor:
    """Labels or indices as int64; refused if they are no tensor of whole numbers."""
    if not isinstance(numbers, Tensor) or numbers.is_floating_point() or numbers.is_complex():
        kind = numbers.dtype if isinstance(numbers, Tensor) else type(numbers).__name__
        refuse(field, kind, "must be a tensor of whole numbers", f"pass torch.as_tensor({field}).long()")
    check_readable(field, numbers)
    return numbers.long()


def check_square(field: str, matrix: Tensor) -> None:
    if isinstance(matrix, Tensor) and (matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]):
        refuse(f"{field}.shape", tuple(matrix.shape), "must be (batch, batch)", "pass Z @ Z.T of (batch, dim) rows")
    check_rows(field, matrix)


def check_rows(field: str, rows: Tensor, least: int = 2) -> None:
    """Refuse anything but a (batch ≥ `least`, dim) tensor of floating-point numbers."""
    if not isinstance(rows, Tensor):
        refuse(field, type(rows).__name__, "must be a (batch, dim) tensor", f"pass torch.as_tensor({field})")
    if rows.ndim != 2:
        refuse(f"{field}.shape", tuple(rows.shape), "must be (batch, dim)", "flatten or pool to one row a sample")
    if rows.shape[0] < least:
        refuse(f"{field}.shape", tuple(rows.shape), f"must have {least} rows or more", "use a larger batch")
    if not rows.is_floating_point():
        refuse(f"{field}.dtype", rows.dtype, "must be floating point", f"pass {field}.float()")
    check_readable(field, rows)


def check_readable(field: str, values: Tensor) -> None:
    """Refuse tensors whose values nobody can look at. (On an accelerator looking would wait for it.)"""
    if not (values.is_cpu or values.is_meta) or torch.compiler.is_compiling():
        return
    try:
        values.detach()[:1].flatten()[:1].tolist()
    except RuntimeError:
        remedy = "call it batch by batch, on real tensors"
        raise InputError(f"{field}: its values cannot be looked at, as under vmap or on the device meta; {remedy}") from None


def checked_indices(indices: object, table: Tensor, if_none: str, if_outside: str) -> Tensor:
    """Indices of a table's rows on its device, in range: out of range on an accelerator, the device itself complains."""
    if not isinstance(indices, Tensor):
        refuse("indices", type(indices).__name__, "cannot be looked up", if_none)
    indices = whole("indices", indices)
    if indices.is_cpu and indices.numel():
        low, high, n = int(indices.min()), int(indices.max()), len(table)
        require(0 <= low and high < n, "indices", f"{low}..{high}", f"must lie in 0..{n - 1}", if_outside)
    return indices.to(table.device)


def check_unit_length(field: str, lengths: Tensor, dtype: torch.dtype, squared: bool = False) -> None:
    """Refuse rows (of type `dtype`) with NaN or infinite entries or of other than unit length; they are never re-normalised silently.

    Whoever has D = ZZᵀ has the squared lengths for nothing: its diagonal.
    """
    judge = partial(_judge_lengths, field, 2e-2 if dtype in HALF else 1e-3, squared)
    judge_values(torch.stack(lengths.detach().aminmax()), judge)  # NaN if there is one


def check_distributions(targets: Tensor) -> None:
    """Refuse targets that are no distributions: rows of numbers from 0 that sum to 1. A KL of others is no distance, or NaN."""
    rows = in_full(targets.detach())
    tolerance = 2e-2 if targets.dtype in HALF else 1e-3
    judge_values(torch.stack((rows.amin(), *rows.sum(dim=1).aminmax())), partial(_judge_distributions, tolerance))


def judge_values(values: Tensor, judge: Callable[..., None]) -> None:
    """Have a few values judged: on the CPU at once, elsewhere when they have arrived."""
    if torch.compiler.is_compiling():  # a compiled graph cannot branch on values
        return
    if values.is_cpu:
        return judge(*values.tolist())
    arrived = torch.Event(values.device)
    _LATE.append((arrived, values.to("cpu", non_blocking=True), judge))
    arrived.record()
    judge_late(wait=False)


_LATE: deque[tuple[torch.Event, Tensor, Callable[..., None]]] = deque()
"""Values on their way from a device, in the order of their checks, each with what tells of its arrival and with its judge."""


@atexit.register
def judge_late(wait: bool = True) -> None:
    """Judge the values that have arrived; with `wait` all of them: for the end of an epoch, not for its steps."""
    while _LATE and (wait or _LATE[0][0].query()):
        arrived, values, judge = _LATE.popleft()
        arrived.synchronize()
        judge(*values.tolist())


def _judge_distributions(tolerance: float, least: float, low: float, high: float) -> None:
    if least >= -tolerance and 1 - tolerance <= low and high <= 1 + tolerance:  # False for NaN
        return
    remedy = "return one distribution over the batch a row, as torch.softmax(…, dim=1) gives"
    require(low <= high < float("inf"), "targets", high, "have NaN or infinite entries", remedy)
    require(least >= -tolerance, "targets", f"{least:.3g} at least", "must not be negative", remedy)
    refuse("targets", f"rows that sum to {low:.4g}..{high:.4g}", f"must sum to 1 within {tolerance}", remedy)


def _judge_lengths(field: str, tolerance: float, squared: bool, low: float, high: float) -> None:
    if squared:
        low, high = low**0.5, high**0.5
    if 1 - tolerance <= low and high <= 1 + tolerance:  # False for NaN
        return
    finite = low <= high < float("inf")
    require(finite, field, high, "has NaN or infinite entries", "check the model, the learning rate, overflow in fp16")
    worst = f"rows off by {max(1 - low, high - 1):.3g}"
    remedy = f"pass torch.nn.functional.normalize({field}, dim=1)"
    refuse(field, worst, f"must be of unit length within {tolerance}", remedy)
