"""Checks of what callers pass in: every message names the field, the rule, the value and the remedy.

Shapes and plain numbers are checked at once, everywhere. Values *inside* tensors are checked at once on the CPU. On an
accelerator that would make the host wait for the device at every step; there the verdict is copied back without waiting and
read by a later check, once it has arrived: a bad batch is reported a step or so late, and a good one costs no wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import torch
from torch import Tensor

from obdsd.errors import InputError


def require(ok: bool, field: str, value: object, rule: str, remedy: str) -> None:
    """Refuse `value` of `field` unless `ok`."""
    if not ok:
        raise InputError(f"{field}={value} {rule}; {remedy}")


def check_omega(omega: float) -> None:
    """ω is the probability of continuing the walk: at 1 the walk never ends and I - ωS is singular."""
    require(0 <= omega < 1, "omega", omega, "must lie in [0, 1)", "try 0.3, or 0 for no diffusion")


def check_temperature(temperature: float, field: str = "temperature") -> None:
    require(0 < temperature < float("inf"), field, temperature, "must be positive and finite", "try 1.0")


def check_square(field: str, matrix: Tensor) -> None:
    square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1]
    require(square, f"{field}.shape", tuple(matrix.shape), "must be (batch, batch)", "pass Z @ Z.T of (batch, dim) rows")
    require(matrix.shape[0] >= 2, f"{field}.shape", tuple(matrix.shape), "must have 2 rows or more", "use a larger batch")
    require(matrix.is_floating_point(), f"{field}.dtype", matrix.dtype, "must be floating point", f"pass {field}.float()")


def check_embeddings(field: str, rows: Tensor) -> None:
    """Refuse anything but a (batch ≥ 2, dim) tensor of finite rows of unit length; rows are never re-normalised silently."""
    require(rows.ndim == 2, f"{field}.shape", tuple(rows.shape), "must be (batch, dim)", "flatten or pool to one row a sample")
    require(rows.shape[0] >= 2, f"{field}.shape", tuple(rows.shape), "must have 2 rows or more", "use a larger batch")
    require(rows.is_floating_point(), f"{field}.dtype", rows.dtype, "must be floating point", f"pass {field}.float()")
    if torch.compiler.is_compiling():  # a compiled graph cannot branch on values
        return
    half = rows.dtype in (torch.float16, torch.bfloat16)
    tolerance = 2e-2 if half else 1e-3
    length = torch.linalg.vector_norm(rows.detach(), dim=1, dtype=torch.float32 if half else None)
    worst = (length - 1).abs().max()  # NaN if any entry is NaN, infinite if any is infinite

    def judge(worst: float) -> None:
        require(worst < float("inf"), field, worst, "has NaN or infinite entries", "check the model, the learning rate, overflow in fp16")
        require(
            worst <= tolerance,
            field,
            f"rows off by {worst:.3g}",
            f"must be of unit length within {tolerance}",
            f"pass torch.nn.functional.normalize({field}, dim=1)",
        )

    verdicts.submit(worst, judge)


class Verdicts:
    """Numbers computed by value checks, each with a judge that raises; read when they can be had without waiting."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[[], bool], Tensor, Callable[[float], None]]] = deque()

    def submit(self, number: Tensor, judge: Callable[[float], None]) -> None:
        if number.device.type == "cpu":
            judge(number.item())
            return
        arrived = torch.Event(number.device)
        on_host = number.to("cpu", non_blocking=True)
        arrived.record()
        self.defer(arrived.query, on_host, judge)

    def defer(self, arrived: Callable[[], bool], on_host: Tensor, judge: Callable[[float], None]) -> None:
        """Judge what has arrived of the earlier numbers and keep this one for later."""
        self._waiting.append((arrived, on_host, judge))
        while self._waiting and self._waiting[0][0]():
            _, number, earlier = self._waiting.popleft()
            earlier(number.item())


verdicts = Verdicts()
