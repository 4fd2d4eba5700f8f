import torch
from hypothesis import given
from hypothesis import strategies as st

from obdsd import ProxyDiffusion, SelfDistillation, TeacherBatch
from tests.oracles import slow
from tests.refusing import refused

DOUBLE = torch.float64
batches = {"batch": st.integers(2, 14), "proxies": st.integers(0, 8), "dim": st.integers(1, 12), "seed": st.integers(0, 10**6)}
omegas = st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.9, 0.99])


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
    (lambda: ProxyDiffusion(1.0), "omega=1.0 must lie in [0, 1)"),
    (lambda: ProxyDiffusion(0.3)(Z), "proxies=None leaves no proxies to walk over; pass TeacherBatch"),
    (lambda: ProxyDiffusion(0.3)(TeacherBatch(Z, proxies=3 * P)), "proxies=rows off by 2 must be of unit length within 0.001"),
    (lambda: TeacherBatch(Z, proxies=P[:, :2]), "proxies.shape=(2, 2) must be (proxies, 3) as the embeddings'; pass one row a proxy"),
    (lambda: ProxyDiffusion(0.3)(TeacherBatch(Z, torch.ones(4).bool(), proxies=P)), "teacher.known marks rows"),
]
test_bad_input_is_refused_in_one_clear_line = refused(BAD)
