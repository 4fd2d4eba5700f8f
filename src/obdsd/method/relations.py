"""Matching by the relations of rows: relaxed contrastive (RCL), distances and angles (RKD), probabilities (PKT).

Each compares what rows are to each other, never a row with a row: student and teacher may have rows of different lengths.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from obdsd.method.checks import check_number, check_temperature, require
from obdsd.method.matching import OfRows

ANGLE_BYTES = 256 * 2**20  # of angles held at a time: all of 220 rows
ANGLE_COPIES = 6  # how many numbers are held for each angle, until the backward pass is done
EQUAL = 1e-6  # rows that are nearer than this count as equal


@dataclass(frozen=True)
class RCL(OfRows):
    """Relaxed contrastive: the teacher's distances say how much a pair is drawn together and how much it is pushed apart.

    W_ij = exp(-‖t_i - t_j‖²/σ) of the teacher's rows, D_ij = ‖x_i - x_j‖ of the student's, R_ij = D_ij / μ_i with μ_i the mean of row i:
    (1/b) Σ_{i≠j} W_ij R_ij² + (1-W_ij) max(δ - R_ij, 0)². The mean holds the zero at j = i, and the gradient flows through it.

    Args:
        sigma: How fast a pair's share of drawing together falls with the teacher's squared distance (σ).
        delta: Below which distance, as a share of the row's mean, a pair is pushed apart (δ).
    """

    sigma: float = 1.0
    delta: float = 1.0

    def __post_init__(self) -> None:
        check_temperature(self.sigma, "sigma")
        check_temperature(self.delta, "delta")

    def of_rows(self, student: Float[Tensor, "b d"], teacher: Float[Tensor, "b e"]) -> Float[Tensor, ""]:
        return relaxed_contrastive(student, teacher, self.sigma, self.delta)


@dataclass(frozen=True)
class RKD(OfRows):
    """Relational: the student's distances in units of their mean, and the angles of its triangles, are drawn to the teacher's.

    Both by smooth L1, the mean over all b² pairs, or all b³ triples of a vertex and two others.

    Args:
        distance: Weight of the distances.
        angle: Weight of the angles. They take b³ steps; of more than about 220 rows they are computed twice, to bound the memory.
    """

    distance: float = 1.0
    angle: float = 2.0

    def __post_init__(self) -> None:
        for field in ("distance", "angle"):
            value = getattr(self, field)
            check_number(field, value)
            require(0 <= value < float("inf"), field, value, "must be 0 or more and finite", "use 0 to leave it out")
        require(self.distance + self.angle > 0, "distance", self.distance, "and angle=0 leave nothing to match", "try distance=1, angle=2")

    def of_rows(self, student: Float[Tensor, "b d"], teacher: Float[Tensor, "b e"]) -> Float[Tensor, ""]:
        of_distances = self.distance * relational_distance(student, teacher) if self.distance else 0.0
        of_angles = self.angle * relational_angle(student, teacher) if self.angle else 0.0
        return of_distances + of_angles  # type: ignore[return-value]


@dataclass(frozen=True)
class PKT(OfRows):
    """Probabilistic: cosines as probabilities, p_ij = (cos + 1)/2 over the sum of its row, diagonal included.

    The mean over all b² entries of P log((P + 1e-7)/(Q + 1e-7)), P the teacher's and Q the student's: small numbers, which want a large
    weight.
    """

    def of_rows(self, student: Float[Tensor, "b d"], teacher: Float[Tensor, "b e"]) -> Float[Tensor, ""]:
        return probabilistic(student, teacher)


def relaxed_contrastive(
    student: Float[Tensor, "b d"], teacher: Float[Tensor, "b e"], sigma: float = 1.0, delta: float = 1.0
) -> Float[Tensor, ""]:
    """RCL of any rows: the teacher's are brought to unit length, the student's are taken as they are.

    >>> x = torch.tensor([[0.0], [1.0], [3.0]])
    >>> relaxed_contrastive(x, torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
    tensor(1.1408)
    """
    with torch.no_grad():
        W = torch.exp(-distances(F.normalize(teacher, dim=1)).square() / sigma)  # (b, b), 1 on the diagonal
    D = distances(student)
    R = D / D.mean(dim=1, keepdim=True)
    return (W * R.square() + (1 - W) * F.relu(delta - R).square()).sum() / len(R)  # 0 on the diagonal


def relational_distance(student: Float[Tensor, "b d"], teacher: Float[Tensor, "b e"]) -> Float[Tensor, ""]:
    """RKD's distances, of any rows."""
    with torch.no_grad():
        of_teacher = _in_their_mean(distances(teacher))
    return F.smooth_l1_loss(_in_their_mean(distances(student)), of_teacher)


def _in_their_mean(D: Tensor) -> Tensor:
    return D * (len(D) * (len(D) - 1) / D.sum())


def relational_angle(student: Float[Tensor, "b d"], teacher: Float[Tensor, "b e"]) -> Float[Tensor, ""]:
    """RKD's angles, of any rows; a chunk of vertices at a time where all would take too much memory."""
    n = len(student)
    D = distances(student)
    with torch.no_grad():
        of_teacher = distances(teacher)
    chunk = max(1, ANGLE_BYTES // (ANGLE_COPIES * student.element_size() * n * n))
    if chunk >= n:
        return _angles_apart(D, of_teacher, 0, n) / n**3
    total = student.new_zeros(())
    for first in range(0, n, chunk):  # nothing of a chunk is kept for the backward pass but the distances
        apart = checkpoint(_angles_apart, D, of_teacher, first, first + chunk, use_reentrant=False, preserve_rng_state=False)
        total = total + apart
    return total / n**3


def _angles_apart(student: Tensor, teacher: Tensor, first: int, end: int) -> Tensor:
    """The sum of smooth L1 over the triangles of some vertices, by the distances of all rows."""
    with torch.no_grad():
        of_teacher = cosines_at(slice(first, end), teacher)
    return F.smooth_l1_loss(cosines_at(slice(first, end), student), of_teacher, reduction="sum")


def cosines_at(vertices: slice, D: Float[Tensor, "b b"]) -> Float[Tensor, "v b b"]:
    """The cosine of the angle at each vertex i between any two rows, (D_ij² + D_ik² - D_jk²) / 2 D_ij D_ik; 0 with a row that is i itself.

    >>> corner = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    >>> cosines_at(slice(0, 1), distances(corner))[0]
    tensor([[0., 0., 0.],
            [0., 1., 0.],
            [0., 0., 1.]])
    """
    squares, sides = D.square(), D[vertices]
    inverse = (sides > EQUAL) / sides.clamp(min=EQUAL)
    of_sides = squares[vertices]
    return (of_sides[:, :, None] + of_sides[:, None, :] - squares) * (inverse[:, :, None] * inverse[:, None, :] / 2)


def probabilistic(student: Float[Tensor, "b d"], teacher: Float[Tensor, "b e"]) -> Float[Tensor, ""]:
    """PKT of any rows, which are brought to unit length."""
    with torch.no_grad():
        P = _probabilities(teacher)
    Q = _probabilities(student)
    return (P * torch.log((P + 1e-7) / (Q + 1e-7))).mean()


def _probabilities(rows: Tensor) -> Tensor:
    z = rows / (torch.linalg.vector_norm(rows, dim=1, keepdim=True) + 1e-7)
    p = (z @ z.mT + 1) / 2
    return p / p.sum(dim=1, keepdim=True)


def distances(rows: Float[Tensor, "b d"]) -> Float[Tensor, "b b"]:
    """‖x_i - x_j‖: exact for near rows, too. Two equal rows are 1e-6 apart and get no gradient from each other.

    >>> distances(torch.tensor([[0.0, 0.0], [3.0, 4.0], [3.0, 4.0]]))
    tensor([[0.0000e+00, 5.0000e+00, 5.0000e+00],
            [5.0000e+00, 0.0000e+00, 1.0000e-06],
            [5.0000e+00, 1.0000e-06, 0.0000e+00]])
    """
    D = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist").clamp(min=EQUAL)
    return D.masked_fill(torch.eye(len(D), dtype=torch.bool, device=D.device), 0.0)
