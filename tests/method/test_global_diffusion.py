import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from obdsd import BatchDiffusion, GlobalDiffusion, SelfDistillation, TeacherBatch
from tests.oracles import slow
from tests.refusing import refused

DOUBLE = torch.float64


def fitted(rows: torch.Tensor, omega: float, neighbours: int = 50, power: float = 1.0) -> GlobalDiffusion:
    diffusion = GlobalDiffusion(omega, neighbours, power, tolerance=1e-13 if rows.dtype == DOUBLE else 1e-6)
    diffusion.fit(rows)
    return diffusion


def dense_targets(Z: torch.Tensor, omega: float, k: int, power: float = 1.0, temperature: float = 1.0) -> torch.Tensor:
    """The published way: dense (n, n) matrices, no low rank, no iteration."""
    n, D = len(Z), Z @ Z.T
    nearest = (D - 3 * torch.eye(n)).argsort(dim=1, descending=True)[:, :k]
    near = torch.zeros(n, n, dtype=torch.bool).scatter_(1, nearest, True)
    W = torch.where(near & near.T, D.clamp(min=0) ** power, 0)
    V = W.sum(dim=1)
    S = torch.where(V > 0, W / (V[:, None] * V).clamp(min=1e-300).sqrt(), 0) + torch.diag((V == 0).to(W))
    A = (1 - omega) * torch.linalg.solve(torch.eye(n, dtype=Z.dtype) - omega * S, D)
    return torch.softmax(A / temperature, dim=1)


def clustered(n: int, dim: int, seed: int) -> torch.Tensor:
    centres = slow.unit_rows(n // 5, dim, seed, DOUBLE).repeat(5, 1)
    return nn.functional.normalize(centres + 0.8 * slow.unit_rows(n, dim, seed + 1, DOUBLE), dim=1)


@pytest.mark.parametrize("omega", [0.0, 1e-9, 0.3, 0.9, 0.99])
@pytest.mark.parametrize("power", [1.0, 3.0])
@pytest.mark.parametrize("temperature", [1.0, 0.05])
def test_exact_against_the_dense_closed_form(omega, power, temperature):
    Z = clustered(500, 16, seed=0)
    diffusion = fitted(Z, omega, 20, power)
    indices = torch.tensor([3, 499, 0, 77, 177, 277, 12, 3])  # any order, one drawn twice
    expected = dense_targets(Z, omega, 20, power, temperature=1.0)
    found = diffusion(TeacherBatch(Z[indices], indices=indices), temperature)
    A = expected.log()[indices][:, indices]  # up to a constant a row, which a softmax does not see
    torch.testing.assert_close(found, torch.softmax(A / temperature, dim=1), rtol=0, atol=1e-10)


def test_float32_agrees_with_float64():
    Z = clustered(500, 16, seed=1)
    for omega in (0.3, 0.99):
        ours = fitted(Z.float(), omega, 20)
        assert ours.walked.dtype == torch.float32
        torch.testing.assert_close(ours.walked.double(), fitted(Z, omega, 20).walked, rtol=0, atol=2e-5)


@given(n=st.integers(2, 30), dim=st.integers(1, 8), seed=st.integers(0, 10**6), omega=st.sampled_from([0.0, 0.3, 0.99]))
def test_with_all_neighbours_it_is_batch_diffusion_of_the_whole_set(n, dim, seed, omega):
    Z = slow.unit_rows(n, dim, seed, DOUBLE)
    everyone = TeacherBatch(Z, indices=torch.arange(n))
    torch.testing.assert_close(fitted(Z, omega, n - 1)(everyone, 0.5), BatchDiffusion(omega)(Z, 0.5), rtol=0, atol=1e-9)


def test_a_batch_stands_for_a_teachers_word():
    Z = clustered(50, 6, seed=6)
    diffusion, indices = fitted(Z, 0.5, 5), torch.tensor([8, 3, 21])
    word = diffusion.batch(indices)
    assert torch.equal(word.embeddings, Z[indices])
    assert torch.equal(word.indices, indices)
    of_others = TeacherBatch(slow.unit_rows(3, 99, seed=5), indices=indices)  # what the teacher says itself is not used
    assert torch.equal(diffusion(of_others), diffusion(word))


def test_rows_that_the_teacher_does_not_know_leave_with_their_indices():
    diffusion = fitted(clustered(50, 6, seed=8), 0.5, 5)
    student, indices = slow.unit_rows(4, 3, seed=9, dtype=DOUBLE), torch.tensor([8, 3, 21, 40])
    known = torch.tensor([True, False, True, True])
    distill = SelfDistillation(2.0, targets=diffusion, ramp="constant")
    some = distill(student, TeacherBatch(student, known, indices), 1.0)
    torch.testing.assert_close(some, distill(student[known], diffusion.batch(indices[known]), 1.0))


def test_a_state_dict_brings_its_shapes_along(tmp_path):
    holder = nn.ModuleDict({"targets": fitted(clustered(50, 6, seed=10), 0.5, 5)})
    torch.save(holder.state_dict(), tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    assert set(state) == {"targets.rows", "targets.walked"}
    fresh = nn.ModuleDict({"targets": GlobalDiffusion(0.5, 5)})
    other_size = nn.ModuleDict({"targets": fitted(slow.unit_rows(9, 3, seed=11), 0.5, 5)})
    for restored in (fresh, other_size):
        restored.load_state_dict(state)
        assert restored["targets"].fitted
        word = restored["targets"].batch(torch.arange(50))
        assert torch.equal(restored["targets"](word), holder["targets"](word))
    fresh.load_state_dict({"targets.rows": torch.empty(0, 0), "targets.walked": torch.empty(0, 0)})
    assert not fresh["targets"].fitted
    with pytest.raises(RuntimeError, match=r"Missing key.*targets\.walked"):
        fresh.load_state_dict({"targets.rows": torch.empty(0, 0)})


def test_it_keeps_its_own_copy_and_nothing_to_train():
    Z = clustered(50, 6, seed=12).requires_grad_()
    diffusion = fitted(Z, 0.5, 5)
    before = copy.deepcopy(diffusion.state_dict())
    with torch.no_grad():
        Z.zero_()
    assert all(torch.equal(before[name], value) for name, value in diffusion.state_dict().items())
    assert not any(value.requires_grad for value in diffusion.state_dict().values())
    assert list(diffusion.parameters()) == []
    with pytest.raises(ValueError, match="rows=rows off by 1"):
        diffusion.fit(Z.detach())
    assert all(torch.equal(before[name], value) for name, value in diffusion.state_dict().items())  # as if not asked


Z = slow.unit_rows(6, 3, seed=13)
ready = fitted(Z, 0.3, 2)
BAD = [
    (lambda: GlobalDiffusion(1.0), "omega=1.0 must lie in [0, 1)"),
    (lambda: GlobalDiffusion(0.3, 0), "neighbours=0 must be 1 or more; try 50"),
    (lambda: GlobalDiffusion(0.3, "50"), "neighbours='50' is a text; pass a whole number, without quotes"),
    (lambda: GlobalDiffusion(0.3, 2.5), "neighbours=2.5 is a float; pass a whole number"),
    (lambda: GlobalDiffusion(0.3, power=-1.0), "power=-1.0 must be a positive finite number"),
    (lambda: GlobalDiffusion(0.3, tolerance=0.0), "tolerance=0.0 must be a positive finite number"),
    (lambda: GlobalDiffusion(0.3).fit(Z), "neighbours=50 must lie in 1..5 for 6 rows"),
    (lambda: GlobalDiffusion(0.3, 2).fit(Z[0]), "rows.shape=(3,) must be (batch, dim)"),
    (lambda: GlobalDiffusion(0.3, 20, 3.0)(Z), "GlobalDiffusion(omega=0.3, neighbours=20, power=3.0) has walked nowhere yet"),
    (lambda: GlobalDiffusion(0.3).batch(torch.arange(3)), "walked nowhere yet; call fit(rows) with the embeddings of the whole"),
    (lambda: ready(Z), "indices=NoneType cannot be looked up; pass batch(indices) or TeacherBatch(embeddings, indices=indices)"),
    (lambda: ready.batch(torch.tensor([0, 6])), "indices=0..6 must lie in 0..5; fit the whole training set"),
    (lambda: ready(TeacherBatch(Z[:2], indices=torch.tensor([-1, 3]))), "indices=-1..3 must lie in 0..5"),
    (lambda: ready(ready.batch(torch.arange(3)), 0.0), "temperature=0.0 must be a positive finite number"),
]
test_bad_input_is_refused_in_one_clear_line = refused(BAD)
