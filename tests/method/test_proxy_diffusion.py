import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from obdsd import BatchDiffusion, PairwiseTargets, ProxyDiffusion, SelfDistillation, TeacherBatch, symmetric_transition
from tests.oracles import slow

DOUBLE = torch.float64
batches = {"batch": st.integers(2, 14), "proxies": st.integers(0, 8), "dim": st.integers(1, 12), "seed": st.integers(0, 10**6)}
omegas = st.sampled_from([0.1, 0.3, 0.5, 0.9, 0.99])


def words(batch: int, proxies: int, dim: int, seed: int, dtype: torch.dtype = DOUBLE) -> TeacherBatch:
    return TeacherBatch(slow.unit_rows(batch, dim, seed, dtype), proxies=slow.unit_rows(proxies, dim, seed + 1, dtype))


@given(**batches, omega=omegas, temperature=st.sampled_from([0.1, 1.0]))
def test_the_targets_are_where_the_joint_walk_converges(batch, proxies, dim, seed, omega, temperature):
    word = words(batch, proxies, dim, seed)
    U = torch.cat((word.embeddings, word.proxies))
    D = U @ U.T
    A = slow.walk(D, slow.symmetric_transition(D), omega)[:batch, :batch]
    torch.testing.assert_close(ProxyDiffusion(omega)(word, temperature), torch.softmax(A / temperature, dim=1), rtol=0, atol=1e-9)


@given(**batches, omega=omegas)
def test_eliminating_the_proxies_leaves_an_effective_graph_of_the_batch(batch, proxies, dim, seed, omega):
    """A_BB = (1-ω)(I-ωS')⁻¹D' with S' = S_BB + ωS_BP N S_PB, D' = D_BB + ωS_BP N D_PB, N = (I-ωS_PP)⁻¹."""
    word = words(batch, proxies + 1, dim, seed)
    U = torch.cat((word.embeddings, word.proxies))
    D = U @ U.T
    S = slow.symmetric_transition(D)
    B, P = slice(0, batch), slice(batch, None)
    through = omega * S[B, P] @ torch.linalg.inv(torch.eye(proxies + 1, dtype=DOUBLE) - omega * S[P, P])
    effective, start = S[B, B] + through @ S[P, B], D[B, B] + through @ D[P, B]
    A = (1 - omega) * torch.linalg.solve(torch.eye(batch, dtype=DOUBLE) - omega * effective, start)
    torch.testing.assert_close(ProxyDiffusion(omega)(word), torch.softmax(A, dim=1), rtol=0, atol=1e-10)


@given(batch=st.integers(2, 14), dim=st.integers(1, 12), seed=st.integers(0, 10**6), omega=omegas)
def test_without_proxies_it_is_batch_diffusion(batch, dim, seed, omega):
    word = words(batch, 0, dim, seed)
    torch.testing.assert_close(ProxyDiffusion(omega)(word), BatchDiffusion(omega)(word.embeddings), rtol=0, atol=1e-11)


@pytest.mark.parametrize("opposite", [False, True])
def test_proxies_without_a_positive_cosine_change_nothing(opposite):
    Z = torch.cat((slow.unit_rows(7, 4, seed=0, dtype=DOUBLE).abs(), torch.zeros(7, 3, dtype=DOUBLE)), dim=1)
    if opposite:  # negative cosines with every sample, positive ones among the proxies
        proxies = torch.cat((-slow.unit_rows(5, 4, seed=1, dtype=DOUBLE).abs(), torch.zeros(5, 3, dtype=DOUBLE)), dim=1)
    else:
        proxies = torch.cat((torch.zeros(5, 4, dtype=DOUBLE), slow.unit_rows(5, 3, seed=2, dtype=DOUBLE)), dim=1)
    found = ProxyDiffusion(0.9)(TeacherBatch(Z, proxies=proxies))
    torch.testing.assert_close(found, BatchDiffusion(0.9)(Z), rtol=0, atol=1e-14)


def test_without_walking_it_is_pairwise():
    word = words(6, 3, 5, seed=3)
    torch.testing.assert_close(ProxyDiffusion(0.0)(word), PairwiseTargets()(word.embeddings))
    torch.testing.assert_close(ProxyDiffusion(1e-9)(word), PairwiseTargets()(word.embeddings), rtol=0, atol=1e-8)


def test_a_shared_proxy_draws_strangers_together():
    Z = torch.eye(4, dtype=DOUBLE)[:3]  # no edge at all without proxies
    between = torch.tensor([[0.6, 0.8, 0.0, 0.0]], dtype=DOUBLE)
    P, alone = ProxyDiffusion(0.5)(TeacherBatch(Z, proxies=between)), BatchDiffusion(0.5)(Z)
    torch.testing.assert_close(alone, PairwiseTargets()(Z))
    assert P[0, 1] > alone[0, 1]
    assert P[1, 0] > alone[1, 0]
    torch.testing.assert_close(P[2], alone[2])  # the third has no part in it


@given(**batches, omega=omegas, random=st.randoms(use_true_random=False))
def test_permutations(batch, proxies, dim, seed, omega, random):
    word = words(batch, proxies, dim, seed)
    order, proxy_order = list(range(batch)), list(range(proxies))
    random.shuffle(order)
    random.shuffle(proxy_order)
    expected = ProxyDiffusion(omega)(word)[order][:, order]
    found = ProxyDiffusion(omega)(TeacherBatch(word.embeddings[order], proxies=word.proxies[proxy_order]))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


@given(**batches, omega=omegas, temperature=st.sampled_from([0.05, 1.0]), dtype=st.sampled_from([torch.float32, DOUBLE]))
def test_rows_are_distributions(batch, proxies, dim, seed, omega, temperature, dtype):
    P = ProxyDiffusion(omega)(words(batch, proxies, dim, seed, dtype), temperature)
    assert P.dtype == dtype
    assert (P >= 0).all()
    torch.testing.assert_close(P.sum(dim=1), torch.ones(batch, dtype=dtype))


@given(omega=st.sampled_from([0.1, 0.5, 0.9]), seed=st.integers(0, 10**6))
def test_what_the_joint_walk_minimises(omega, seed):
    """For every column a of A and d of D = UUᵀ: aᵀ(I-S)a + ((1-ω)/ω)‖a-d‖², over the samples and the proxies."""
    word = words(6, 3, 5, seed)
    U = torch.cat((word.embeddings, word.proxies))
    D = U @ U.T
    S = symmetric_transition(D)
    A = slow.walk(D, S, omega)

    def energy(X):
        return (X * (X - S @ X)).sum() + (1 - omega) / omega * (X - D).square().sum()

    gradient = torch.autograd.functional.jacobian(energy, A)
    torch.testing.assert_close(gradient, torch.zeros_like(A), rtol=0, atol=1e-10)
    torch.testing.assert_close(ProxyDiffusion(omega)(word), torch.softmax(A[:6, :6], dim=1), rtol=0, atol=1e-10)


def test_half_rows_with_proxies_in_full():
    Z = torch.eye(8)[torch.arange(5)].bfloat16()
    proxies = slow.unit_rows(3, 8, seed=4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = ProxyDiffusion(0.5)(TeacherBatch(Z, proxies=proxies))
    torch.testing.assert_close(found, ProxyDiffusion(0.5)(TeacherBatch(Z.float(), proxies=proxies)))


def test_distillation_passes_no_gradient_to_proxies_and_keeps_them_beside_unknown_rows():
    student = slow.unit_rows(5, 4, seed=5, dtype=DOUBLE).requires_grad_()
    word = words(5, 3, 4, seed=6)
    proxies = word.proxies.clone().requires_grad_()
    known = torch.tensor([True, True, False, True, True])
    distill = SelfDistillation(1.0, targets=ProxyDiffusion(0.5), ramp="constant")
    loss = distill(student, TeacherBatch(word.embeddings, known, proxies=proxies), 1.0)
    loss.backward()
    assert proxies.grad is None
    assert student.grad.abs().max() > 0
    torch.testing.assert_close(loss, distill(student[known], TeacherBatch(word.embeddings[known], proxies=word.proxies), 1.0))


word = words(4, 2, 3, seed=7)
Z, P = word.embeddings, word.proxies
BAD = [
    (lambda: ProxyDiffusion(1.0), r"omega=1.0 must lie in \[0, 1\)"),
    (lambda: ProxyDiffusion(0.3)(Z), "proxies=None leaves no proxies to walk over; pass TeacherBatch"),
    (lambda: ProxyDiffusion(0.3)(TeacherBatch(Z)), "proxies=None leaves no proxies to walk over"),
    (lambda: ProxyDiffusion(0.3)(TeacherBatch(Z, proxies=3 * P)), "proxies=rows off by 2 must be of unit length within 0.001"),
    (lambda: ProxyDiffusion(0.3)(TeacherBatch(Z, proxies=P * float("nan"))), "proxies=nan has NaN or infinite entries"),
    (lambda: ProxyDiffusion(0.3)(word, 0.0), "temperature=0.0 must be a positive"),
    (lambda: TeacherBatch(Z, proxies=P[:, :2]), r"proxies.shape=\(2, 2\) must be \(proxies, 3\) as the embeddings'; pass one row a proxy"),
    (lambda: TeacherBatch(Z, proxies=P[0]), r"proxies.shape=\(3,\) must be \(proxies, 3\)"),
    (lambda: ProxyDiffusion(0.3)(TeacherBatch(Z, torch.ones(4).bool(), proxies=P)), "teacher.known marks rows"),
]


@pytest.mark.usefixtures("as_shipped")
@pytest.mark.parametrize(("call", "message"), BAD, ids=[message[:50] for _, message in BAD])
def test_bad_input_is_refused_in_one_clear_line(call, message):
    with pytest.raises(ValueError, match=message) as refusal:
        call()
    assert "\n" not in str(refusal.value)
