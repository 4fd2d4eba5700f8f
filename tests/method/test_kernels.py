"""Kernel targets: against walks that are iterated, dense closed forms, and what rows without a walk hold."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from obdsd import Balanced, FrozenTeacher, GlobalDiffusion, SelfDistillation, TeacherBatch
from obdsd.method import kernels
from obdsd.method.graph import nearest_others, neighbour_graph, normalised
from obdsd.method.kernels import GlobalKernel, Kernel
from obdsd.method.local_walks import most_visited
from obdsd.method.matching import KL
from obdsd.method.teachers import TableTeacher
from tests.oracles import slow
from tests.refusing import refused

DOUBLE = torch.float64


def union(D, k):
    """1 between rows of which one is among the other's k nearest, with loops."""
    n = len(D)
    near = torch.zeros(n, n, dtype=D.dtype)
    for i in range(n):
        for j in sorted((j for j in range(n) if j != i), key=lambda j: -float(D[i, j]))[:k]:
            near[i, j] = near[j, i] = 1
    return near


def literal(Z, omega, neighbours, power, sharpness, labels=None, temperature=1.0):
    """Walks that are iterated from every item; then each row on its own."""
    n, D = len(Z), Z @ Z.T
    W = D.clamp(min=0) ** power * (1 if neighbours is None else union(D, neighbours))
    K = slow.walk(torch.eye(n, dtype=Z.dtype), slow.symmetric_transition(W), omega)
    P = torch.zeros(n, n, dtype=Z.dtype)
    for i in range(n):
        held = [j for j in range(n) if j != i and (labels is None or labels[j] == labels[i])] or [j for j in range(n) if j != i]
        weights = [float(K[i, j]) for j in held]
        if max(weights) < 1e-13:
            values = torch.softmax(torch.stack([D[i, j] for j in held]) / temperature, dim=0)
        else:
            raised = [(weight / max(weights)) ** sharpness for weight in weights]
            values = torch.tensor([value / sum(raised) for value in raised], dtype=Z.dtype)
        P[i, held] = values
    return P


sizes = {"batch": st.integers(2, 12), "dim": st.integers(1, 6), "seed": st.integers(0, 10**6)}


@given(
    **sizes,
    omega=st.sampled_from([0.3, 0.9]),
    neighbours=st.sampled_from([None, 1, 3, 50]),
    power=st.sampled_from([1.0, 3.0]),
    sharpness=st.sampled_from([0.5, 1.0, 2.0]),
    mates=st.booleans(),
    temperature=st.sampled_from([0.1, 1.0]),
)
def test_a_row_is_how_often_its_walk_visits_the_others(batch, dim, seed, omega, neighbours, power, sharpness, mates, temperature):
    Z = slow.unit_rows(batch, dim, seed, DOUBLE)
    labels = torch.randint(0, 4, (batch,), generator=torch.Generator().manual_seed(seed)) if mates else None
    if dim == 1 and neighbours is not None:
        return  # rows that are equal have no nearest
    found = Kernel(omega, neighbours, power, sharpness, mates)(TeacherBatch(Z, labels=labels), temperature)
    torch.testing.assert_close(found, literal(Z, omega, neighbours, power, sharpness, labels, temperature), rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(found.sum(dim=1), torch.ones(batch, dtype=DOUBLE))
    assert (found.diagonal() == 0).all()


def test_by_hand():
    """Two pairs that are far apart: a walk never leaves its pair, so that a row is its partner; a lonely item has the softmax."""
    Z = nn.functional.normalize(torch.tensor([[1, 0.2, 0], [1, -0.2, 0], [-1, 0, 0.2], [-1, 0, -0.2], [0, 0, 1.0]]), dim=1)
    P = Kernel(omega=0.9, power=20.0)(Z, 0.5)
    torch.testing.assert_close(P[:2], torch.eye(5)[[1, 0]])
    Z[4] = -Z[:4].sum(dim=0) + torch.tensor([0, -1.0, 0])  # no positive cosine
    Z[4] /= Z[4].norm()
    Z[:2, 1] = Z[:2, 1].abs()
    alone = Kernel(omega=0.9, neighbours=1)(nn.functional.normalize(torch.tensor([[1.0, 0, 0], [0.9, 0.1, 0], [-1, -0.5, 0]]), dim=1), 0.5)
    cosines = nn.functional.normalize(torch.tensor([[1.0, 0, 0], [0.9, 0.1, 0], [-1, -0.5, 0]]), dim=1)
    cosines = cosines @ cosines.T
    torch.testing.assert_close(alone[2, :2], torch.softmax(cosines[2, :2] / 0.5, dim=0))
    torch.testing.assert_close(alone[:2], torch.eye(3)[[1, 0]])


@given(seed=st.integers(0, 10**6))
def test_the_order_of_the_batch_does_not_matter(seed):
    Z = slow.unit_rows(9, 4, seed, DOUBLE)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(seed))
    P = Kernel(0.9, 3)(Z)
    torch.testing.assert_close(Kernel(0.9, 3)(Z[order]), P[order][:, order])


def test_at_omega_near_zero_a_row_is_its_edges():
    """The first step of the walk is all that counts: K = S up to a factor."""
    Z = slow.unit_rows(8, 3, 5, DOUBLE)
    W = (Z @ Z.T).clamp(min=0) ** 5
    S = slow.symmetric_transition(W)
    S.fill_diagonal_(0)
    torch.testing.assert_close(Kernel(1e-7)(Z), S / S.sum(dim=1, keepdim=True), rtol=1e-5, atol=1e-7)


def test_the_student_is_matched_without_the_diagonal_unless_asked():
    """`KL()` follows the targets; their neighbours may also be balanced."""
    x, t = slow.unit_rows(7, 4, 1, DOUBLE), slow.unit_rows(7, 5, 2, DOUBLE)
    for targets in (Kernel(), Balanced(Kernel())):
        usual, others, whole = (
            SelfDistillation(1.0, 0.1, targets, "constant", matching)(x, t, 0.0) for matching in (KL(), KL(False), KL(True))
        )
        assert usual == others != whole
    lonely = torch.tensor([[1.0, 0.0], [0.98, 0.2], [-0.8, 0.6]])  # nobody's walk visits the third
    P = Balanced(Kernel(neighbours=1))(nn.functional.normalize(lonely, dim=1), 0.01)
    assert torch.isfinite(P).all()


# ---- On the graph of all.


def clustered(n, dim, seed):
    centres = slow.unit_rows(n // 5, dim, seed, DOUBLE).repeat(5, 1)
    return nn.functional.normalize(centres + 0.8 * slow.unit_rows(n, dim, seed + 1, DOUBLE), dim=1)


def fitted(Z, **settings):
    kernel = GlobalKernel(**settings)
    kernel.fit(Z)
    return kernel


@pytest.mark.parametrize(("omega", "power", "sharpness", "mates"), [(0.9, 5.0, 1.0, False), (0.5, 1.0, 2.0, True)])
def test_a_walk_that_may_visit_all_is_the_dense_closed_form(monkeypatch, omega, power, sharpness, mates):
    """In whatever chunks it is made. A batch is its block, and an item that is there twice visits its twin as itself."""
    Z = clustered(60, 6, seed=0)
    S = normalised(neighbour_graph(*nearest_others(Z, 6), power, "union")) @ torch.eye(60, dtype=DOUBLE)
    K = (1 - omega) * torch.linalg.inv(torch.eye(60, dtype=DOUBLE) - omega * S)
    torch.testing.assert_close((S > 0).to(DOUBLE), union(Z @ Z.T, 6) * (Z @ Z.T > 0))
    indices = torch.tensor([3, 59, 0, 15, 27, 3, 40])
    labels = indices % 12 if mates else None
    monkeypatch.setattr(kernels, "CHUNK_NODES", 7 * 61)
    kernel = fitted(Z, omega=omega, neighbours=6, power=power, sharpness=sharpness, classmates=mates, reach=60)
    word = TeacherBatch(Z[indices], indices=indices, labels=labels)
    block = K[indices][:, indices]
    mine = ~torch.eye(7, dtype=torch.bool) & ((labels[:, None] == labels) if mates else True)
    raised = torch.where(mine, block, 0) ** sharpness
    expected = raised / raised.sum(dim=1, keepdim=True)
    empty = ~mine.any(dim=1)
    found = kernel(word, 0.5)
    torch.testing.assert_close(found[~empty], expected[~empty], rtol=0, atol=2e-4)  # walks are solved to 1e-5
    torch.testing.assert_close(found.sum(dim=1), torch.ones(7, dtype=DOUBLE))


def test_on_the_graph_of_its_own_batch_it_is_the_batch_kernel():
    Z = clustered(30, 6, seed=2)
    everyone = TeacherBatch(Z, indices=torch.arange(30))
    kernel = fitted(Z, omega=0.8, neighbours=4, reach=40)
    torch.testing.assert_close(kernel(everyone), Kernel(0.8, 4)(Z), rtol=0, atol=2e-4)


def test_the_further_a_walk_may_reach_the_nearer_it_is_to_the_exact_one():
    Z, batch = clustered(500, 24, seed=3), torch.arange(0, 500, 5)
    walks = {reach: fitted(Z, omega=0.5, neighbours=5, reach=reach) for reach in (20, 60, 200, 500)}
    for reach, kernel in walks.items():
        assert kernel.starts.diff().max() <= reach
    exact = walks[500](walks[500].batch(batch))
    apart = [float((kernel(kernel.batch(batch)) - exact).abs().sum(dim=1).mean() / 2) for kernel in walks.values()]
    assert apart == sorted(apart, reverse=True)
    assert 0.02 < apart[0]
    assert apart[2] < 0.01


@given(seed=st.integers(0, 10**6), omega=st.sampled_from([0.3, 0.9]), reach=st.integers(2, 20))
def test_the_most_visited_are_those_of_three_steps(seed, omega, reach):
    Z = slow.unit_rows(20, 4, seed, DOUBLE)
    S = normalised(neighbour_graph(*nearest_others(Z, 3), 2.0, "union"))
    dense, eye = S @ torch.eye(20, dtype=DOUBLE), torch.eye(20, dtype=DOUBLE)
    visits = (1 - omega) * eye
    for _ in range(3):
        visits = omega * visits @ dense + (1 - omega) * eye
    starts = torch.tensor([7, 0, 19])
    found = most_visited(S, starts, omega, reach)
    for start, nodes in zip(starts.tolist(), found.tolist(), strict=True):
        assert nodes[0] == start
        there = [node for node in nodes if node >= 0]
        assert len({*there}) == len(there)
        if reach == 20:
            assert len(there) == 20
            continue
        reached = {node for node in range(20) if visits[start, node] > 0}
        assert len(there) == min(reach, len(reached | {start}))
        least = min(float(visits[start, node]) for node in there)
        assert all(visits[start, node] <= least + 1e-12 for node in range(20) if node not in there)


def test_a_row_without_any_visit_in_the_batch_is_the_teachers_softmax():
    Z = clustered(40, 6, seed=4)
    kernel = fitted(Z, neighbours=2, reach=2)
    indices = torch.tensor([0, 1, 2, 3])  # of four clusters
    K = kernel._block(indices).fill_diagonal_(0)
    empty = K.sum(dim=1) == 0
    assert empty.any()
    D = (Z[indices] @ Z[indices].T / 0.3).fill_diagonal_(-torch.inf)
    torch.testing.assert_close(kernel(kernel.batch(indices), 0.3)[empty], torch.softmax(D, dim=1)[empty])


def test_a_table_with_gaps_is_walked_over_what_it_knows():
    """Items without a row are no part of the graph; a batch says that they are not known."""
    Z = clustered(40, 6, seed=5)
    seen = torch.arange(40) % 4 != 1
    teacher = TableTeacher(torch.where(seen[:, None], Z, 0), seen)
    for targets in (GlobalKernel(neighbours=4, reach=40), GlobalDiffusion(0.5, 4, tolerance=1e-13)):
        targets.check(40, nn.Identity(), teacher)
        targets.begin_epoch(teacher, embed=lambda model: None)
        indices = torch.arange(12)
        word = targets.ask(teacher, Z[indices], indices)
        assert torch.equal(word.known, seen[:12])
        alone = type(targets)(0.5, 4, tolerance=1e-13) if isinstance(targets, GlobalDiffusion) else GlobalKernel(neighbours=4, reach=40)
        alone.fit(Z[seen])
        expected = alone(alone.batch(torch.arange(int(seen[:12].sum()))))
        torch.testing.assert_close(targets(word.only_known()), expected, rtol=0, atol=2e-4)
    whole = FrozenTeacher.from_embeddings(Z)
    kernel = GlobalKernel(neighbours=4)
    kernel.begin_epoch(whole, embed=lambda model: None)
    assert kernel.ask(whole, Z[:3], torch.arange(3)).known is None


def test_a_state_dict_brings_its_shapes_along(tmp_path):
    Z = clustered(50, 6, seed=10).float()
    kernel = GlobalKernel(neighbours=5)
    kernel.fit(Z, torch.arange(50) != 7)
    torch.save(kernel.state_dict(), tmp_path / "state.pt")
    fresh = GlobalKernel(neighbours=5)
    fresh.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    word = fresh.batch(torch.arange(20))
    assert word.known.tolist() == [index != 7 for index in range(20)]
    assert torch.equal(fresh(word.only_known()), kernel(word.only_known()))


Z = slow.unit_rows(6, 3, seed=13)
BAD = [
    (lambda: Kernel(1.0), "omega=1.0 must lie in [0, 1)"),
    (lambda: Kernel(neighbours=0), "neighbours=0 must be 1 or more; try 10"),
    (lambda: Kernel(neighbours=1.5), "neighbours=1.5 is a float; pass a whole number"),
    (lambda: Kernel(power=0.0), "power=0.0 must be a positive finite number"),
    (lambda: Kernel(sharpness=-1.0), "sharpness=-1.0 must be a positive finite number"),
    (lambda: Kernel(classmates=True)(Z), "labels=None leaves class-mates unknown; pass TeacherBatch(embeddings, labels=labels)"),
    (lambda: Kernel()(2 * Z), "teacher=rows off by 1 must be of unit length within 0.001"),
    (lambda: Kernel(0.99999).check(6, nn.Identity(), FrozenTeacher.from_embeddings(Z)), "omega=0.99999 is too near 1"),
    (lambda: GlobalKernel(reach=1), "reach=1 must be 2 or more; try 300"),
    (lambda: GlobalKernel(reach="9"), "reach='9' is a text; pass a whole number, without quotes"),
    (lambda: GlobalKernel(omega=-0.1), "omega=-0.1 must lie in [0, 1)"),
    (lambda: GlobalKernel().fit(Z), "neighbours=10 must lie in 1..5 for 6 rows"),
    (lambda: GlobalKernel()(Z), "GlobalKernel(omega=0.9, neighbours=10) has walked nowhere yet; call fit(rows) with the embeddings"),
    (lambda: GlobalKernel(0.99999, 2).check(6, nn.Identity(), FrozenTeacher.from_embeddings(Z)), "omega=0.99999 is too near 1"),
]
test_bad_input_is_refused_in_one_clear_line = refused(BAD)
