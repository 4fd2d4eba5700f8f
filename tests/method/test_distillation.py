import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from obdsd import AffineScores, Balanced, BatchDiffusion, MeanMix, PairwiseTargets, SelfDistillation, TeacherBatch, objectives
from tests.oracles import slow

RELEASED = {  # setting: λ, ω, τ_d, progress
    "cub": (1000, 0.3, 1.0, 37 / 150),
    "cars": (75, 0.99, 1.0, 120 / 150),
    "sop": (100, 0.5, 0.005, 60 / 100),
}
cases = pytest.mark.parametrize("case", ["case0", "case1"])
settings = pytest.mark.parametrize("setting", list(RELEASED))


def plain(targets=PairwiseTargets(), temperature=1.0):
    """The bare KL."""
    return SelfDistillation(1.0, temperature, targets, ramp="constant")


def literal_kl(target, student, temperature):
    """Eq. 1 with loops."""
    D = student @ student.T
    total = 0.0
    for i in range(len(D)):
        log_q = D[i] / temperature - torch.logsumexp(D[i] / temperature, dim=0)
        for j in range(len(D)):
            if target[i, j] > 0:
                total += target[i, j] * (target[i, j].log() - log_q[j])
    return total / len(D)


@cases
@settings
def test_released_totals_and_gradients(reference, case, setting):
    weight, omega, walk_temperature, progress = RELEASED[setting]
    distill = SelfDistillation(weight, targets=BatchDiffusion(omega, "softmax", walk_temperature))
    student = reference[f"{case}/student"].clone().requires_grad_()
    total = objectives.multi_similarity()(student, reference[f"{case}/labels"])
    total = total + distill(student, reference[f"{case}/teacher"], progress)
    total.backward()
    expected = reference[f"{case}/obdsd_released_{setting}_grad"]
    torch.testing.assert_close(total.detach(), reference[f"{case}/obdsd_released_{setting}_total"], rtol=1e-4, atol=0)
    torch.testing.assert_close(student.grad, expected, rtol=1e-4, atol=1e-5 * expected.abs().max().item())


@cases
def test_psd_of_the_paper(reference, case):
    student, teacher = reference[f"{case}/student"].double(), reference[f"{case}/teacher"].double()
    torch.testing.assert_close(plain()(student, teacher, 0.0), reference[f"{case}/psd_kl"], rtol=1e-8, atol=0)


@cases
@settings
def test_obdsd_of_the_paper(reference, case, setting):
    student, teacher = reference[f"{case}/student"].double(), reference[f"{case}/teacher"].double()
    kl = plain(BatchDiffusion(RELEASED[setting][1]))(student, teacher, 0.0)
    torch.testing.assert_close(kl, reference[f"{case}/obdsd_paper_{setting}_kl"], rtol=1e-8, atol=0)


@given(
    batch=st.integers(2, 8),
    seed=st.integers(0, 10**6),
    temperature=st.sampled_from([0.1, 1.0, 3.0]),
    progress=st.floats(0, 1),
    ramp=st.sampled_from(["linear", "constant"]),
    targets=st.sampled_from([PairwiseTargets(), BatchDiffusion(0.5), Balanced(MeanMix(0.5))]),
)
def test_the_term_is_temperature_squared_times_ramp_times_weight_times_kl(batch, seed, temperature, progress, ramp, targets):
    student, teacher = slow.unit_rows(batch, 4, seed, torch.float64), slow.unit_rows(batch, 9, seed + 1, torch.float64)
    term = SelfDistillation(7.0, temperature, targets, ramp)(student, teacher, progress)
    factor = temperature**2 * 7.0 * (progress if ramp == "linear" else 1.0)
    torch.testing.assert_close(term, factor * literal_kl(targets(teacher, temperature), student, temperature))


def literal_listwise(labels, student, temperature):
    """-Σ_j f(t_ij) log softmax(s_i)_j over the others, with loops (born-again rankers)."""
    total = 0.0
    for i in range(len(student)):
        others = [j for j in range(len(student)) if j != i]
        scores = torch.stack([student[i] @ student[j] / temperature for j in others])
        for j, log_q in zip(others, scores - torch.logsumexp(scores, dim=0), strict=True):
            total -= labels[i, j] * log_q
    return total / len(student)


@given(batch=st.integers(2, 8), seed=st.integers(0, 10**6), temperature=st.sampled_from([0.1, 1.0]), shift=st.sampled_from([-0.5, 2.0]))
def test_scores_that_do_not_sum_to_one_are_labels_of_a_list(batch, seed, temperature, shift):
    """The gradient is that of the KL to their shares, each row weighed by their sum."""
    student, teacher = slow.unit_rows(batch, 4, seed, torch.float64), slow.unit_rows(batch, 9, seed + 1, torch.float64)
    targets = AffineScores(scale=1.5, shift=shift)
    term = SelfDistillation(7.0, temperature, targets, "constant")(student.requires_grad_(), teacher, 0.0)
    labels = targets(teacher)
    torch.testing.assert_close(term, 7.0 * temperature**2 * literal_listwise(labels, student, temperature))
    (gradient,) = torch.autograd.grad(term, student)
    itself = torch.eye(batch, dtype=torch.bool)
    log_q = (student @ student.T / temperature).masked_fill(itself, -torch.inf).log_softmax(dim=1).masked_fill(itself, 0)
    weights, shares = labels.sum(dim=1), torch.nn.functional.normalize(labels, p=1, dim=1)
    weighed = (weights * (torch.special.xlogy(shares, shares) - shares * log_q).sum(dim=1)).mean()
    (expected,) = torch.autograd.grad(7.0 * temperature**2 * weighed, student)
    torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize("targets", [PairwiseTargets(), BatchDiffusion(0.5), BatchDiffusion(0.5, "softmax")], ids=str)
def test_no_gradient_reaches_the_teacher(targets):
    student = slow.unit_rows(6, 3, seed=1).requires_grad_()
    teacher = slow.unit_rows(6, 3, seed=2).requires_grad_()
    plain(targets)(student, teacher, 1.0).backward()
    assert student.grad.abs().max() > 0
    assert teacher.grad is None


@pytest.mark.parametrize("temperature", [0.2, 1.0])
def test_proposition_1_corrected(temperature):
    """∂L_i/∂v_i = 1/(τ‖v_i‖) Σ_j (z_j - (z_i·z_j) z_i)(P_ij - S_ij) for row i's own loss through v_i alone."""
    generator = torch.Generator().manual_seed(5)
    v = torch.randn(7, 4, generator=generator, dtype=torch.float64) * 3
    z = torch.nn.functional.normalize(v, dim=1)
    S = PairwiseTargets()(slow.unit_rows(7, 4, seed=6, dtype=torch.float64), temperature)
    P = torch.softmax(z @ z.T / temperature, dim=1)
    for i in range(7):
        v_i = v[i].clone().requires_grad_()
        z_i = v_i / v_i.norm()
        others = torch.cat([z[:i], z_i[None], z[i + 1 :]])
        log_q = torch.log_softmax(others @ z_i / temperature, dim=0)
        (S[i] * (S[i].log() - log_q)).sum().backward()
        attention = z - (z @ z[i])[:, None] * z[i]
        expected = ((P[i] - S[i])[:, None] * attention).sum(dim=0) / (temperature * v[i].norm())
        torch.testing.assert_close(v_i.grad, expected)


def test_the_batch_loss_has_further_terms_through_the_other_rows():
    v = slow.unit_rows(7, 4, seed=7, dtype=torch.float64).requires_grad_()
    teacher = slow.unit_rows(7, 4, seed=8, dtype=torch.float64)
    z = torch.nn.functional.normalize(v, dim=1)
    plain()(z, teacher, 1.0).backward()
    z = z.detach()
    difference = torch.softmax(z @ z.T, dim=1) - PairwiseTargets()(teacher)  # P - S
    # Row i's loss moves v_i by (P-S)_ij and every other row j's loss moves it by (P-S)_ji.
    both_ways = difference + difference.T
    attention = torch.stack([both_ways[i] @ (z - (z @ z[i])[:, None] * z[i]) for i in range(7)]) / 7
    torch.testing.assert_close(v.grad, attention)


@given(st.floats(0.0, 3.1), st.floats(0.2, 3.0))
def test_equations_9_and_10(angle, taught_angle):
    """Of a pair at cosine c the gradient is √(1-c²) times how far student and teacher differ: easy pairs get little, hard ones much."""

    def pair(angle):
        return torch.tensor([[1.0, 0.0], [math.cos(angle), math.sin(angle)]], dtype=torch.float64)

    v, teacher = pair(angle).requires_grad_(), pair(taught_angle)
    plain()(torch.nn.functional.normalize(v, dim=1), teacher, 1.0).backward()
    P, S = (torch.softmax(x @ x.T, dim=1) for x in (pair(angle), teacher))
    difference = (P[0, 1] - S[0, 1]).abs()  # of both rows, each with the weight 1/2 of the mean
    torch.testing.assert_close(v.grad[0].norm(), difference * math.sqrt(1 - math.cos(angle) ** 2), rtol=1e-6, atol=1e-9)


class Unwanted:
    def __call__(self, teacher, temperature=1.0):
        raise AssertionError("targets were asked for")


@pytest.mark.parametrize(("weight", "progress"), [(0.0, 0.5), (5.0, 0.0)])
def test_an_inactive_term_is_a_differentiable_zero_without_any_work(weight, progress):
    distill = SelfDistillation(weight, targets=Unwanted())
    assert not distill.active(progress)
    assert SelfDistillation(5.0, ramp="constant").active(progress)
    student = torch.full((4, 3), float("nan"), requires_grad=True)
    loss = distill(student, None, progress)
    loss.backward()
    assert loss == 0
    assert torch.equal(student.grad, torch.zeros(4, 3))


@pytest.mark.parametrize("targets", [PairwiseTargets(), BatchDiffusion(0.5), MeanMix(0.5)], ids=str)
def test_unknown_rows_leave_both_sides_before_any_target(targets):
    student = slow.unit_rows(6, 3, seed=9).requires_grad_()
    teacher = slow.unit_rows(6, 3, seed=10)
    known = torch.tensor([True, False, True, True, False, True])
    teacher[~known] = 0  # what a memory holds before a sample was seen: not even a unit row
    loss = plain(targets)(student, TeacherBatch(teacher, known), 1.0)
    (gradient,) = torch.autograd.grad(loss, student)
    alone = student.detach()[known].requires_grad_()
    expected = plain(targets)(alone, teacher[known], 1.0)
    (expected_gradient,) = torch.autograd.grad(expected, alone)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(gradient[known], expected_gradient)
    assert (gradient[~known] == 0).all()


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_known_rows_teach_nothing(count):
    student = slow.unit_rows(4, 3, seed=11).requires_grad_()
    known = torch.arange(4) < count
    loss = plain(Unwanted())(student, TeacherBatch(torch.zeros(4, 3), known), 1.0)
    loss.backward()
    assert loss == 0
    assert (student.grad == 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_under_autocast(dtype):
    student, teacher = slow.unit_rows(16, 8, seed=15).to(dtype), slow.unit_rows(16, 8, seed=16).to(dtype)
    student.requires_grad_()
    distill = plain(BatchDiffusion(0.9))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = distill(student, teacher, 1.0)
    loss.backward()
    exact = distill(*(torch.nn.functional.normalize(x.detach().double(), dim=1) for x in (student, teacher)), 1.0)
    assert loss.dtype == torch.float32
    assert student.grad.isfinite().all()
    torch.testing.assert_close(loss.double(), exact, rtol=2e-2, atol=0)
