import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from obdsd import diffuse, symmetric_transition
from obdsd.method import graph
from obdsd.method.graph import Graph, mutual_neighbours, neighbour_graph, normalised, solve_walk
from tests.oracles import slow
from tests.refusing import refused

OMEGAS = [0.0, 0.1, 0.3, 0.5, 0.9, 0.99]
many = st.integers(0, 10**6)


def dense(W: Graph) -> torch.Tensor:
    """Entry by entry."""
    matrix = torch.zeros(W.nodes, W.nodes, dtype=W.weights.dtype)
    for i in range(W.nodes):
        for entry in range(int(W.starts[i]), int(W.starts[i + 1])):
            matrix[i, W.columns[entry]] = W.weights[entry]
    return matrix


def literal_affinity(Z: torch.Tensor, k: int, power: float) -> torch.Tensor:
    """Eq. 12 with sorted lists."""
    n, D = len(Z), (Z @ Z.T).tolist()
    nearest = [sorted((j for j in range(n) if j != i), key=lambda j, i=i: -D[i][j])[:k] for i in range(n)]
    W = torch.zeros(n, n, dtype=torch.float64)
    for i, j in itertools.product(range(n), range(n)):
        if j in nearest[i] and i in nearest[j]:
            W[i, j] = max(D[i][j], 0.0) ** power
    return W


@given(n=st.integers(2, 24), dim=st.integers(2, 8), seed=many, power=st.sampled_from([1.0, 3.0]), data=st.data())
def test_affinity_equals_the_literal_definition(n, dim, seed, power, data):
    Z = slow.unit_rows(n, dim, seed, torch.float64)
    k = data.draw(st.integers(1, n - 1))
    torch.testing.assert_close(dense(mutual_neighbours(Z, k, power)), literal_affinity(Z, k, power), rtol=1e-9, atol=1e-12)


@given(n=st.integers(2, 24), seed=many, kind=st.sampled_from(["union", "mutual"]), data=st.data())
def test_given_neighbours_make_the_graph_of_both_or_of_either(n, seed, kind, data):
    Z = slow.unit_rows(n, 5, seed, torch.float64)
    k = data.draw(st.integers(1, n - 1))
    D = (Z @ Z.T).fill_diagonal_(-2)
    cosines, nearest = D.topk(k)
    near = torch.zeros(n, n, dtype=torch.bool).scatter_(1, nearest, True)
    want = D.clamp(min=0) ** 2 * ((near & near.T) if kind == "mutual" else (near | near.T))
    found = dense(neighbour_graph(cosines, nearest, 2.0, kind))
    torch.testing.assert_close(found, want, rtol=1e-9, atol=1e-12)
    assert torch.equal(found, found.T)


@pytest.mark.parametrize("rows_at_once", [1, 7, 40, 41, 1000])
def test_chunks_change_nothing(monkeypatch, rows_at_once):
    Z = slow.unit_rows(41, 6, seed=0, dtype=torch.float64)
    monkeypatch.setattr(graph, "CHUNK_BYTES", rows_at_once * 41 * 8 + 5)
    torch.testing.assert_close(dense(mutual_neighbours(Z, 5)), literal_affinity(Z, 5, 1.0))


@pytest.mark.parametrize("rows", [torch.ones(9, 1), slow.unit_rows(4, 3, seed=1).repeat(5, 1), slow.unit_rows(300, 8, seed=2)])
def test_affinity_and_transition_are_symmetric_to_the_last_bit_whatever_the_ties(monkeypatch, rows):
    monkeypatch.setattr(graph, "CHUNK_BYTES", 7 * 4 * len(rows))  # products of other shapes round differently
    W = mutual_neighbours(rows, 3)
    S = normalised(W)
    for matrix in (dense(W), dense(S)):
        assert torch.equal(matrix, matrix.T)
    assert (dense(W).diagonal() == 0).all()
    assert (dense(W).count_nonzero(dim=1) <= 3).all()


@given(n=st.integers(2, 20), dim=st.integers(1, 8), seed=many)
def test_with_all_neighbours_the_transition_is_that_of_a_batch(n, dim, seed):
    Z = slow.unit_rows(n, dim, seed, torch.float64)
    torch.testing.assert_close(dense(normalised(mutual_neighbours(Z, n - 1))), symmetric_transition(Z @ Z.T))


def test_affinities_too_small_to_divide_by_are_no_edges():
    Z = torch.tensor([[1.0, 0.0], [1e-10, 1.0]])
    assert torch.equal(dense(normalised(mutual_neighbours(Z, 1, power=4.0))), torch.eye(2))
    torch.testing.assert_close(dense(normalised(mutual_neighbours(Z, 1, power=3.7))), torch.eye(2).flip(0))  # 1e-37 is still one


@given(n=st.integers(2, 30), dim=st.integers(1, 6), seed=many, omega=st.sampled_from(OMEGAS), data=st.data())
def test_the_solution_is_where_the_walk_converges(n, dim, seed, omega, data):
    Z = slow.unit_rows(n, dim, seed, torch.float64)
    S = normalised(mutual_neighbours(Z, data.draw(st.integers(1, n - 1))))
    torch.testing.assert_close(solve_walk(S, Z, omega, tolerance=1e-13), slow.walk(Z, dense(S), omega), rtol=0, atol=1e-10)


@pytest.mark.parametrize("omega", OMEGAS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-6), (torch.float64, 1e-14)])
def test_the_residual_is_what_was_asked_for(omega, dtype, tolerance):
    Z = slow.unit_rows(200, 16, seed=3, dtype=dtype)
    S = normalised(mutual_neighbours(Z, 10))
    found = solve_walk(S, Z, omega, tolerance).double()
    exact = (1 - omega) * Z.double()
    left = exact - (found - omega * dense(S).double() @ found)
    rounding = torch.finfo(dtype).eps / (1 - omega)
    assert (left.norm(dim=0) <= (1.01 * tolerance + 2 * rounding) * exact.norm(dim=0)).all()


@pytest.mark.parametrize(("omega", "most"), [(0.0, 1), (0.3, 8), (0.5, 12), (0.99, 121)])
def test_the_iterations_are_those_of_the_theory(monkeypatch, omega, most):
    Z, products, multiply = slow.unit_rows(300, 4, seed=4), [], Graph.__matmul__
    S = normalised(mutual_neighbours(Z, 8))
    monkeypatch.setattr(Graph, "__matmul__", lambda graph, x: products.append(1) or multiply(graph, x))
    solve_walk(S, Z, omega)
    assert 0 < len(products) <= most


def test_columns_do_not_disturb_each_other():
    Z = slow.unit_rows(60, 5, seed=5, dtype=torch.float64)
    S = normalised(mutual_neighbours(Z, 6))
    vector = torch.linalg.eigh(dense(S)).eigenvectors[:, :1]  # done after one step
    start = torch.cat((torch.zeros(60, 1), vector, 1e6 * Z, torch.ones(60, 1)), dim=1).double()
    together = solve_walk(S, start, 0.9)
    alone = torch.cat([solve_walk(S, column[:, None], 0.9) for column in start.T], dim=1)
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=1e-12)
    assert (together[:, 0] == 0).all()


def test_half_precision_is_refined_in_float32_and_autocast_is_kept_out():
    Z = torch.eye(4)[[0, 0, 1, 1, 2, 3]] * 0.5 + 0.5 * torch.eye(4)[[1, 2, 2, 3, 3, 0]]
    Z = torch.nn.functional.normalize(Z, dim=1).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        W = mutual_neighbours(Z, 5)
        found = solve_walk(normalised(W), Z, 0.5)
    assert found.dtype == torch.float32
    torch.testing.assert_close(dense(W).double(), literal_affinity(Z.double(), 5, 1.0), rtol=0, atol=1e-6)
    torch.testing.assert_close(found, diffuse(Z.float(), symmetric_transition(Z.float() @ Z.float().T), 0.5), rtol=0, atol=1e-5)


Z = slow.unit_rows(6, 3, seed=6)
S = normalised(mutual_neighbours(Z, 2))
NO_TRANSITION = Graph(S.starts, S.columns, 5 * S.weights)
BAD = [
    (lambda: mutual_neighbours(Z, 6), "neighbours=6 must lie in 1..5 for 6 rows; ask for fewer, or give more rows"),
    (lambda: mutual_neighbours(Z, 0), "neighbours=0 must lie in 1..5"),
    (lambda: neighbour_graph(Z[:, :1], torch.zeros(6, 1, dtype=torch.long), 1.0, "ring"), "kind=ring must be mutual or union; try union"),
    (lambda: mutual_neighbours(Z, 2, power=0.0), "power=0.0 must be a positive finite number"),
    (lambda: mutual_neighbours(Z[0], 2), "rows.shape=(3,) must be (batch, dim)"),
    (lambda: solve_walk(S, Z, 1.0), "omega=1.0 must lie in [0, 1)"),
    (lambda: solve_walk(S, Z, 1 - 1e-6), "omega=0.999999 is too near 1 for torch.float32"),
    (lambda: solve_walk(S, Z[:5], 0.5), "start.shape=(5, 3) for 6 nodes must be (nodes, m); pass one row a node"),
    (lambda: solve_walk(S, Z[:, 0], 0.5), "start.shape=(6,) for 6 nodes must be"),
    (lambda: solve_walk(S, Z, 0.5, 1e-9), "tolerance=1e-09 must lie in [4.8e-07, 1) for torch.float32; try 1e-6, or use float64"),
    (lambda: solve_walk(S, Z, 0.5, 2.0), "tolerance=2.0 must lie in"),
    (lambda: solve_walk(S, Z * float("nan"), 0.5), "transition=residual nan after 24 steps must reach 1e-06; pass normalised"),
    (lambda: solve_walk(NO_TRANSITION, Z, 0.9), "transition=residual nan after "),
]
test_bad_input_is_refused_in_one_clear_line = refused(BAD)
