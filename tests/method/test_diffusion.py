import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from obdsd import diffuse, softmax_transition, symmetric_transition
from tests.oracles import slow

batches = st.builds(
    slow.unit_rows, st.integers(2, 20), st.integers(1, 12), st.integers(0, 10**6), st.just(torch.float64)
)  # few dimensions: many negative cosines and, at 1, duplicates and isolated rows
omegas = st.sampled_from([0.0, 1e-9, 0.1, 0.3, 0.5, 0.9, 0.99])


@given(batches, st.sampled_from([1.0, 0.1, 0.005]))
def test_transitions_equal_their_literal_definitions(Z, temperature):
    D = Z @ Z.T
    torch.testing.assert_close(symmetric_transition(D), slow.symmetric_transition(D))
    torch.testing.assert_close(softmax_transition(D, temperature), slow.softmax_transition(D, temperature))


@given(batches, omegas)
def test_closed_form_is_where_the_walk_converges(Z, omega):
    D = Z @ Z.T
    by_definition, softmax = slow.symmetric_transition(D), slow.softmax_transition(D, 1.0)
    for S, solvers in ((by_definition, (None, False)), (symmetric_transition(D), (None, False, True)), (softmax, (None, False))):
        for symmetric in solvers:  # looked at, by LU, by Cholesky
            torch.testing.assert_close(diffuse(D, S, omega, symmetric=symmetric), slow.walk(D, S, omega), rtol=0, atol=1e-10)


def test_links_too_weak_to_divide_by_are_none():
    """1e-39 is a subnormal number of float32: its root's inverse squared is infinite."""
    D = torch.eye(3)
    D[0, 1] = D[1, 0] = 1e-39
    assert torch.equal(symmetric_transition(D), torch.eye(3))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("transition", [symmetric_transition, softmax_transition])
def test_half_precision_is_solved_in_float32(dtype, transition):
    Z = slow.unit_rows(40, 16, seed=2)
    D = ((Z @ Z.T + (Z @ Z.T).T) / 2).to(dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        A = diffuse(D, transition(D), 0.999)
    assert A.dtype == torch.float32
    torch.testing.assert_close(A, diffuse(D.double(), transition(D.double()), 0.999).float(), rtol=0, atol=1e-4)


def test_tiny_similarities_in_half_precision_do_not_overflow():
    D = torch.tensor([[1.0, 6e-6], [6e-6, 1.0]]).half()
    torch.testing.assert_close(symmetric_transition(D), torch.tensor([[0.0, 1.0], [1.0, 0.0]]))


def test_a_symmetric_matrix_that_is_no_transition_is_solved_too():
    D = slow.unit_rows(8, 4, seed=11, dtype=torch.float64)
    D = D @ D.T
    assert torch.equal(D, D.T)
    torch.testing.assert_close(diffuse(D, D, 0.9), 0.1 * torch.linalg.inv(torch.eye(8, dtype=torch.float64) - 0.9 * D) @ D)


def test_mixed_types_are_promoted():
    Z = slow.unit_rows(6, 4, seed=12, dtype=torch.float64)
    S = symmetric_transition(Z @ Z.T)
    torch.testing.assert_close(diffuse(Z.float(), S, 0.5), diffuse(Z.float().double(), S, 0.5))


def test_the_gradient_of_the_transition_does_not_depend_on_the_solver():
    Z = slow.unit_rows(6, 4, seed=13, dtype=torch.float64)
    gradients = []
    for symmetric in (None, False):
        S = symmetric_transition(Z @ Z.T).requires_grad_()
        diffuse(Z, S, 0.5, symmetric=symmetric).square().sum().backward()
        gradients.append(S.grad)
    torch.testing.assert_close(*gradients)


def test_gradients_in_float64():
    D = (slow.unit_rows(5, 3, seed=3, dtype=torch.float64) @ slow.unit_rows(5, 3, seed=3, dtype=torch.float64).T).requires_grad_()
    S = symmetric_transition(D).detach().requires_grad_()
    assert torch.autograd.gradcheck(lambda d: symmetric_transition((d + d.T) / 2), D)
    assert torch.autograd.gradcheck(lambda d: softmax_transition(d, 0.3), D)
    assert torch.autograd.gradcheck(lambda d, s: diffuse(d, (s + s.T) / 2, 0.7, symmetric=True), (D, S))
    assert torch.autograd.gradcheck(lambda d, s: diffuse(d, s, 0.7, symmetric=False), (D, S))


def test_gradient_past_an_isolated_row_is_finite():
    Z = torch.tensor([[1.0, 0.0], [0.6, 0.8], [-0.8, -0.6]], dtype=torch.float64)
    D = (Z @ Z.T).requires_grad_()
    symmetric_transition(D).sum().backward()
    assert D.grad.isfinite().all()


@given(batches, st.sampled_from([0.1, 0.5, 0.9]), st.integers(0, 100))
def test_proposition_2_corrected(Z, omega, seed):
    """A minimises, for every column a of A and d of D, aᵀ(I-S)a + ((1-ω)/ω)‖a-d‖²."""
    D = Z @ Z.T
    S = symmetric_transition(D)
    A = diffuse(D, S, omega)

    def energy(X):
        return (X * (X - S @ X)).sum() + (1 - omega) / omega * (X - D).square().sum()

    nudge = 1e-2 * torch.randn(A.shape, generator=torch.Generator().manual_seed(seed), dtype=A.dtype)
    assert energy(A) < energy(A + nudge)
    gradient = torch.autograd.functional.jacobian(energy, A)
    torch.testing.assert_close(gradient, torch.zeros_like(A), rtol=0, atol=1e-11)


def test_equation_11_as_printed_is_not_minimised_by_equation_5(reference):
    Z = reference["case0/teacher"][:24].double()
    D = Z @ Z.T
    W = D.clamp(min=0).fill_diagonal_(0)
    V = W.sum(dim=1)
    omega = 0.3
    A = diffuse(D, symmetric_transition(D), omega)

    def printed(X):  # X_ij is divided by sqrt(V_i V_j) in print, where the derivation needs sqrt(V_j) alone
        Y = X / (V[:, None] * V[None, :]).sqrt()
        smoothness = 0.5 * sum((W * (Y[i][:, None] - Y[i][None, :]).square()).sum() for i in range(len(X)))
        return smoothness + (1 - omega) / omega * (X - D).square().sum()

    gradient = torch.autograd.functional.jacobian(printed, A)
    assert gradient.abs().max() > 0.1


@pytest.mark.parametrize("setting", ["cub", "cars", "sop"])
@pytest.mark.parametrize("case", ["case0", "case1"])
def test_diffused_similarities_of_the_oracle(reference, case, setting):
    omega = {"cub": 0.3, "cars": 0.99, "sop": 0.5}[setting]
    Z = reference[f"{case}/teacher"].double()
    D = Z @ Z.T
    expected = reference[f"{case}/diffused_symmetric_{setting}"]
    atol = 1e-8 * expected.abs().max().item()
    S = symmetric_transition(D)
    torch.testing.assert_close(diffuse(D, S, omega), expected, rtol=0, atol=atol)
    torch.testing.assert_close(diffuse(Z, S, omega) @ Z.T, expected, rtol=0, atol=atol)  # the walk is low-rank
