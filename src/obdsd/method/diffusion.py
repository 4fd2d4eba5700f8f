"""Diffusion on the batch's own graph: Sec. 3.3 of the paper, Eq. 3 to 5."""

from __future__ import annotations

import math
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import threshold

from obdsd.method.checks import (
    check_distance_from_one,
    check_omega,
    check_readable,
    check_square,
    check_temperature,
    judge_values,
    refuse,
    require,
)
from obdsd.method.precision import HALF, in_full, without_autocast


def symmetric_transition(similarity: Float[Tensor, "b b"]) -> Float[Tensor, "b b"]:
    """S = V^(-1/2) W V^(-1/2): the paper's transition matrix (Sec. 3.3.1, step 2) of the affinity W = max(D, 0), W_ii = 0.

    Negative cosines would make a degree negative and its root NaN, hence the clamp. A row without a positive neighbour
    gets a self-loop, S_ii = 1: the walk stays there, A_i = D_i, and I - ωS stays positive definite.

    >>> symmetric_transition(torch.tensor([[1.0, 0.25, -0.2], [0.25, 1.0, -0.1], [-0.2, -0.1, 1.0]]))
    tensor([[0., 1., 0.],
            [1., 0., 0.],
            [0., 0., 1.]])
    """
    check_square("similarity", similarity)
    D = in_full(similarity)
    W = threshold(D, torch.finfo(D.dtype).tiny, 0).fill_diagonal_(0)  # a degree of less has no root to divide by
    degree = W.sum(dim=1)
    isolated = degree == 0
    root = degree.masked_fill(isolated, 1).rsqrt()
    S = W * torch.outer(root, root)
    S.diagonal().add_(isolated)
    return S


def softmax_transition(similarity: Float[Tensor, "b b"], temperature: float = 1.0) -> Float[Tensor, "b b"]:
    """S = row softmax of D/τ_d without the diagonal: what the authors' code walks on.

    >>> softmax_transition(torch.eye(3))
    tensor([[0.0000, 0.5000, 0.5000],
            [0.5000, 0.0000, 0.5000],
            [0.5000, 0.5000, 0.0000]])
    """
    check_square("similarity", similarity)
    check_temperature(temperature)
    return torch.softmax((in_full(similarity) / temperature).fill_diagonal_(float("-inf")), dim=1)


def diffuse(
    state: Float[Tensor, "b m"], transition: Float[Tensor, "b b"], omega: float, *, symmetric: bool | None = None
) -> Float[Tensor, "b m"]:
    """A = (1-ω)(I-ωS)⁻¹ state: where the walk f ← ωSf + (1-ω)·state converges (Eq. 3, 4).

    Solved, never inverted, in float32 or better: by Cholesky if S is `symmetric`, else by LU, which is slower. Left at None, S is
    looked at on the CPU; elsewhere looking would wait for the device, and S is taken as general, as it is where a gradient
    with respect to S is wanted (Cholesky's is that of a symmetric S). Rounding grows as 1/(1-ω). Refused, elsewhere than on the CPU
    a little later: a `symmetric` S that is not, or that makes I-ωS not positive definite, and an A that is not finite.

    >>> S = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    >>> diffuse(torch.eye(2), S, omega=0.5)
    tensor([[0.6667, 0.3333],
            [0.3333, 0.6667]])
    """
    check_square("transition", transition)
    check_omega(omega)
    if state.ndim != 2 or len(state) != len(transition):
        shapes = f"{tuple(state.shape)} against transition.shape={tuple(transition.shape)}"
        refuse("state.shape", shapes, "must be (batch, m) with the transition's batch", "pass one row a sample")
    check_readable("state", state)
    working = torch.promote_types(torch.promote_types(state.dtype, transition.dtype), torch.float32)
    check_distance_from_one(omega, working)
    start, S = (1 - omega) * state.to(working), transition.to(working)
    look = symmetric is None and S.is_cpu and not S.requires_grad and not torch.compiler.is_compiling()
    asymmetry = (S.detach() - S.detach().mT).amax() if look or symmetric else None  # the largest of ±x is |x|
    M = -omega * S
    M.diagonal().add_(1)
    total = M.detach().sum()  # a solver may turn an infinite entry into a finite answer
    # The solvers' own error checks would wait for the device: what they found is judged with the result.
    if asymmetry is None or (look and asymmetry != 0):
        return _judged(torch.linalg.solve_ex(M, start)[0], total)
    U, failed = torch.linalg.cholesky_ex(M, upper=True)
    if look and failed:  # symmetric, but no transition matrix
        return _judged(torch.linalg.solve_ex(M, start)[0], total)
    del M  # each is as large as the batch squared
    # M = UᵀU gives AᵀUᵀU = startᵀ: transposed, nothing is copied, as cholesky_solve would.
    Y = torch.linalg.solve_triangular(U, start.mT, upper=True, left=False)
    del start
    A = torch.linalg.solve_triangular(U.mT, Y, upper=False, left=False).mT
    return _judged(A, total, asymmetry, failed, tolerance=2e-2 if transition.dtype in HALF else 1e-4)


def _judged(A: Tensor, *of_matrix: Tensor, tolerance: float = 0.0) -> Tensor:
    """A itself, unless something is wrong with it or with the matrix that it was solved with."""
    if A.numel():
        values = torch.stack([value.to(A.dtype) for value in (*A.detach().aminmax(), *of_matrix)])
        judge_values(values, partial(_judge, tolerance))
    return A


def _judge(tolerance: float, low: float, high: float, total: float, asymmetry: float = 0.0, failed: float = 0.0) -> None:
    remedy = "leave symmetric out, or pass symmetric_transition(D)"
    require(not asymmetry > tolerance, "transition", f"{asymmetry:.3g} from its transpose", "must be symmetric", remedy)
    rule = "must have eigenvalues from -1 to 1 and no NaN to be solved as symmetric"
    require(not failed, "transition", "no transition matrix", rule, remedy)
    finite = all(map(math.isfinite, (low, high, total)))
    rule = "must be finite: I - omega * transition is singular, or something in it or in the state is not finite"
    require(finite, "the walk's end", f"{low:.3g}..{high:.3g}", rule, "pass rows that sum to 1")


def inner_products(x: Float[Tensor, "a d"], y: Float[Tensor, "b d"]) -> Float[Tensor, "a b"]:
    """x yᵀ in float32 or better, also under autocast: cosines of unit rows."""
    with without_autocast(x):
        return in_full(x) @ in_full(y).mT
