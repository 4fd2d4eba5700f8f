"""Diffusion on the proxies' manifold, which the paper names as future work: the walk also runs over the proxies of a proxy loss."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from obdsd.errors import InputError
from obdsd.method.checks import check_distance_from_one, check_omega, check_unit_length, refuse, require
from obdsd.method.diffusion import diffuse, inner_products, symmetric_transition
from obdsd.method.precision import in_full
from obdsd.method.targets import Targets, rows_and_cosines
from obdsd.method.teachers import Teacher, TeacherBatch


@dataclass(frozen=True)
class ProxyDiffusion(Targets):
    """The walk over the batch and the classes' proxies together: diffusion on the proxies' manifold (docs/method.md derives it).

    U = [Z; P] holds the batch's rows and the teacher's `proxies`, S is the symmetric transition matrix of UUᵀ, and the targets are
    softmax(A_BB/τ), A_BB the batch's block of (1-ω)(I-ωS)⁻¹UUᵀ. It costs (b+p)³: pass the proxies of the batch's classes.

    Args:
        omega: Probability of continuing the walk.

    >>> z = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> proxy = torch.tensor([[0.6, 0.8]])  # nothing else links the two
    >>> ProxyDiffusion(omega=0.5)(TeacherBatch(z, proxies=proxy))
    tensor([[0.6095, 0.3905],
            [0.3628, 0.6372]])
    """

    omega: float

    def __post_init__(self) -> None:
        check_omega(self.omega)

    def check(self, items: int, objective: nn.Module, teacher: Teacher) -> None:
        check_distance_from_one(self.omega, torch.float32)
        if not getattr(objective, "has_proxies", False):
            refuse("loss", type(objective).__name__, "has no proxies to walk over", "use proxy-anchor, proxy-nca or soft-triple")
        rule = "does not live among the student's proxies"
        require(teacher.knows_proxies, "teacher", type(teacher).__name__, rule, "use previous-epoch")

    def complete(self, batch: TeacherBatch, objective: nn.Module, labels: Int[Tensor, " b"]) -> TeacherBatch:
        return replace(batch, proxies=objective.proxies_of(labels))  # type: ignore[operator]

    def __call__(self, teacher: TeacherBatch | Float[Tensor, "b d"], temperature: float = 1.0) -> Float[Tensor, "b b"]:
        Z, _ = rows_and_cosines(teacher, temperature)
        proxies = teacher.proxies if isinstance(teacher, TeacherBatch) else None
        if proxies is None:
            raise InputError("proxies=None leaves no proxies to walk over; pass TeacherBatch(embeddings, proxies=unit_rows)")
        U = torch.cat((in_full(Z), in_full(proxies)))
        D = inner_products(U, U)
        if len(proxies):
            check_unit_length("proxies", D.diagonal()[len(Z) :], proxies.dtype, squared=True)
        X = diffuse(U, symmetric_transition(D), self.omega, symmetric=True)  # A = X Uᵀ
        return torch.softmax(inner_products(X[: len(Z)], U[: len(Z)]) / temperature, dim=1)
