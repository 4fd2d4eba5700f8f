import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from obdsd import (
    AffineScores,
    Balanced,
    BatchDiffusion,
    MeanMix,
    PairwiseTargets,
    ProxyDiffusion,
    SelfDistillation,
    TeacherBatch,
    UniformMix,
    diffuse,
    symmetric_transition,
)
from obdsd.method.targets import balance
from tests.oracles import slow
from tests.refusing import refused

ALL = [
    PairwiseTargets(),
    PairwiseTargets(scale=0.7),
    BatchDiffusion(0.3),
    BatchDiffusion(0.999),
    BatchDiffusion(0.3, "softmax"),
    BatchDiffusion(0.99, "softmax", 0.005),
    MeanMix(0.3),
    UniformMix(0.3),
]
every_target = pytest.mark.parametrize("targets", ALL, ids=str)


def kl(p, q):
    """Mean over rows of KL(p ‖ q)."""
    return torch.xlogy(p, p / q).sum(dim=1).mean()


@every_target
@given(
    batch=st.integers(2, 24),
    dim=st.integers(1, 12),
    seed=st.integers(0, 10**6),
    temperature=st.sampled_from([0.05, 1.0, 4.0]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_rows_are_distributions(targets, batch, dim, seed, temperature, dtype):
    P = targets(slow.unit_rows(batch, dim, seed, dtype), temperature)
    assert P.shape == (batch, batch)
    assert P.dtype == dtype
    assert (P >= 0).all()
    tolerance = 1e-12 if dtype == torch.float64 else 1e-4  # the softmax walk at ω = 0.99 amplifies rounding a hundredfold
    torch.testing.assert_close(P.sum(dim=1), torch.ones(batch, dtype=dtype), rtol=0, atol=tolerance)


@every_target
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_rows_under_autocast_are_refined_in_float32(targets, dtype):
    # Four entries of ±1/2 in eight: unit rows that half precision holds exactly, so that nothing but the arithmetic can differ.
    generator = torch.Generator().manual_seed(4)
    places = torch.rand(30, 8, generator=generator).argsort(dim=1)[:, :4]
    signs = torch.randint(0, 2, (30, 4), generator=generator) - 0.5
    rows = torch.zeros(30, 8).scatter_(1, places, signs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        P = targets(rows.to(dtype), temperature=0.1)
    assert P.dtype == torch.float32
    torch.testing.assert_close(P, targets(rows, temperature=0.1), rtol=0, atol=1e-6)


@pytest.mark.parametrize("shape", [(40, 8), (9, 8), (8, 8), (8, 40)])
def test_low_rank_form_equals_the_full_one(shape):
    Z = slow.unit_rows(*shape, seed=5, dtype=torch.float64)
    D = Z @ Z.T
    full = torch.softmax(diffuse(D, symmetric_transition(D), 0.9) / 0.1, dim=1)
    torch.testing.assert_close(BatchDiffusion(0.9)(Z, temperature=0.1), full, rtol=0, atol=1e-12)


@pytest.mark.parametrize("temperature", [1.0, 0.1])
def test_forms_are_what_their_names_say(temperature):
    Z = slow.unit_rows(12, 5, seed=6, dtype=torch.float64)
    D = Z @ Z.T
    P = torch.softmax(D / temperature, dim=1)
    by_walking_d = torch.softmax(slow.walk(D, slow.symmetric_transition(D), 0.7) / temperature, dim=1)
    by_walking_p = slow.walk(P, slow.softmax_transition(D, 0.2), 0.7)
    torch.testing.assert_close(PairwiseTargets(0.7)(Z, temperature), torch.softmax(0.7 * D / temperature, dim=1))
    torch.testing.assert_close(BatchDiffusion(0.7)(Z, temperature), by_walking_d)
    torch.testing.assert_close(BatchDiffusion(0.7, "softmax", 0.2)(Z, temperature), by_walking_p)


def test_controls_by_hand():
    Z = slow.unit_rows(5, 3, seed=8, dtype=torch.float64)
    P = PairwiseTargets()(Z)
    mean = sum(P[i] for i in range(5)) / 5
    torch.testing.assert_close(MeanMix(0.4)(Z), torch.stack([0.6 * P[i] + 0.4 * mean for i in range(5)]))
    torch.testing.assert_close(UniformMix(0.4)(Z), 0.6 * P + 0.4 / 5)


@pytest.mark.parametrize("case", ["case0", "case1"])
@pytest.mark.parametrize("omega", [0.3, 0.99])
def test_the_softmax_walk_at_temperature_one_is_nearly_a_mix_with_the_mean(reference, case, omega):
    """A fact to know: at τ_d = 1 the graph hardly matters; at τ_d = 0.005 (SOP) it does."""
    Z = reference[f"{case}/teacher"].double()
    control = MeanMix(omega)(Z)
    assert kl(BatchDiffusion(omega, "softmax", 1.0)(Z), control) < 1e-6
    assert kl(BatchDiffusion(omega, "softmax", 0.005)(Z), control) > 1e-4


@pytest.mark.parametrize("case", ["case0", "case1"])
def test_the_symmetric_walk_at_small_omega_is_nearly_a_flatter_teacher(reference, case):
    Z = reference[f"{case}/teacher"].double()
    walked, flatter, plain = BatchDiffusion(0.1)(Z), PairwiseTargets(scale=0.9)(Z), PairwiseTargets()(Z)
    assert kl(walked, flatter) < 0.2 * kl(walked, plain)


@every_target
@given(seed=st.integers(0, 10**6), temperature=st.sampled_from([0.2, 1.0]))
def test_balanced_targets_are_the_targets_scaled_until_rows_and_columns_sum_to_one(targets, seed, temperature):
    """Scaling rows and columns changes no cross ratio, and with both sums given there is one such matrix (Sinkhorn)."""
    Z = slow.unit_rows(9, 5, seed, torch.float64)
    P, few = targets(Z, temperature), Balanced(targets)(Z, temperature)
    Q, one = P, torch.ones(9, dtype=torch.float64)
    for _ in range(50):  # a thousand rounds
        Q = balance(Q)
    torch.testing.assert_close(Q.sum(dim=0), one)
    torch.testing.assert_close(Q.sum(dim=1), one)
    assert torch.equal(few, balance(P))
    torch.testing.assert_close(few.sum(dim=1), one)
    assert (few.sum(dim=0) - 1).abs().max() <= (P.sum(dim=0) - 1).abs().max() + 1e-9

    def ratios(of):
        return of[1:, 1:] * of[:1, :1] / (of[1:, :1] * of[:1, 1:])

    torch.testing.assert_close(ratios(few), ratios(P))


# ---- The walk over batch and proxies.

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


def test_affine_scores_by_hand():
    """Cosines 0.6, 0 and 0.8 of the others; negative ones and the row itself count for nothing."""
    z = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [-1.0, 0.0]])
    expected = [[0, 0.6, 0, 0], [0.6, 0, 0.8, 0], [0, 0.8, 0, 0], [0, 0, 0, 0]]
    torch.testing.assert_close(AffineScores()(z, temperature=0.3), torch.tensor(expected))  # the student's scores alone have it
    expected = [[0, 1.4, 0.2, 0], [1.4, 0, 1.8, 0], [0.2, 1.8, 0, 0.2], [0, 0, 0.2, 0]]
    torch.testing.assert_close(AffineScores(scale=2.0, shift=0.2)(z), torch.tensor(expected))
