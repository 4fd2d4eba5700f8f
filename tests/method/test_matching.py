"""Ways to match a student with its teacher: against published code's numbers, literal loops, invariants and numerical gradients."""

from dataclasses import replace
from math import exp, log
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from obdsd import BatchDiffusion, MeanMix, PairwiseTargets, SelfDistillation, TeacherBatch
from obdsd.method import relations
from obdsd.method.class_guidance import PLG, class_guidance
from obdsd.method.matching import KL
from obdsd.method.regression import Regression
from obdsd.method.relations import PKT, RCL, RKD, probabilistic, relational_angle, relational_distance, relaxed_contrastive
from tests.oracles import slow
from tests.refusing import refused

DOUBLE = torch.float64
with np.load(Path(__file__).parents[1] / "oracles" / "matching.npz") as file:
    PUBLISHED = {name: torch.from_numpy(file[name]) for name in file.files}


def published(system):
    """Numbers of a system by their names."""
    return {name.partition("/")[2]: value for name, value in PUBLISHED.items() if name.startswith(f"{system}/")}


def rkd(x, t):
    return relational_distance(x, t) + 2 * relational_angle(x, t)


OF_ROWS = [  # system, the function, and the names of its value and of its gradient
    *((system, None, "value", "grad_student") for system in ("RCL", "RCL_unit", "RCL_sigma_delta")),
    ("RKD", relational_distance, "distance", "grad_distance"),
    ("RKD", relational_angle, "angle", "grad_angle"),
    ("RKD", rkd, "total", "grad_total"),
    ("PKT", probabilistic, "value", "grad_student"),
]


@pytest.mark.parametrize(("system", "function", "value", "gradient"), OF_ROWS, ids=[f"{system} {value}" for system, _, value, _ in OF_ROWS])
def test_values_and_gradients_are_those_of_the_published_code(system, function, value, gradient):
    """Of rows as they are: nothing is normalised outside. `RCL_unit` has unit rows of the student, as all of ours are."""
    numbers = published(system)
    x, t = numbers["student"].clone().requires_grad_(), numbers["teacher"]
    if function is None:
        found = relaxed_contrastive(x, t, float(numbers["sigma"]), float(numbers["delta"]))
    else:
        found = function(x, t)
    found.backward()
    torch.testing.assert_close(found.detach(), numbers[value], rtol=1e-7, atol=1e-10)
    torch.testing.assert_close(x.grad, numbers[gradient], rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("direction", ["backward", "forward"])
def test_language_guidance_is_that_of_the_published_code(direction):
    """As a matching of unit rows, with a teacher whose rows are those of the classes: similarities by the mean over five ranks of names."""
    numbers = published("PLG")
    named = torch.nn.functional.normalize(numbers["language_embeddings"], dim=2)
    similarity = torch.einsum("aki,bki->ab", named, named) / 5
    torch.testing.assert_close(similarity, numbers["class_similarity"])
    classes = torch.linalg.cholesky(similarity)  # rows whose cosines these are
    z, labels = numbers["z"].clone().requires_grad_(), numbers["labels"]
    distill = SelfDistillation(1.0, ramp="constant", matching=PLG(direction))
    value = distill(z, TeacherBatch(classes[labels], labels=labels), 0.0)
    value.backward()
    torch.testing.assert_close(value.detach(), numbers[f"value_{direction}"], rtol=1e-7, atol=1e-10)
    torch.testing.assert_close(z.grad, numbers[f"grad_z_{direction}"], rtol=1e-7, atol=1e-10)


def test_every_number_of_the_published_code_is_read():
    read = {f"{system}/{name}" for system, _, *names in OF_ROWS for name in (*names, "student", "teacher")}
    read |= {f"{system}/{name}" for system, function, *_ in OF_ROWS if function is None for name in ("sigma", "delta")}
    read |= {f"PLG/{name}" for name in ("z", "labels", "language_embeddings", "class_similarity")}
    read |= {f"PLG/{name}_{direction}" for name in ("value", "grad_z") for direction in ("backward", "forward")}
    assert read == {*PUBLISHED}


# ---- Literal definitions, with loops.


def gap(a, b):
    return float((a - b).pow(2).sum().sqrt())


def literal_rcl(x, t, sigma, delta):
    n, total = len(x), 0.0
    for i in range(n):
        mean = sum(gap(x[i], x[j]) for j in range(n)) / n
        for j in range(n):
            W, R = exp(-(gap(t[i], t[j]) ** 2) / sigma), gap(x[i], x[j]) / mean
            total += 0.0 if i == j else W * R**2 + (1 - W) * max(delta - R, 0) ** 2
    return total / n


def smooth_l1(a, b):
    d = abs(a - b)
    return d * d / 2 if d < 1 else d - 0.5


def literal_rkd(x, t):
    n, distance, angle = len(x), 0.0, 0.0
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
    of_x, of_t = (sum(gap(rows[i], rows[j]) for i, j in pairs) / len(pairs) for rows in (x, t))
    for i, j in pairs:
        distance += smooth_l1(gap(x[i], x[j]) / of_x, gap(t[i], t[j]) / of_t)
        for k in range(n):
            if k not in (i, j):  # at i itself all is 0, and the angle with oneself is the same for both
                angle += smooth_l1(*(float((r[j] - r[i]) @ (r[k] - r[i])) / gap(r[j], r[i]) / gap(r[k], r[i]) for r in (x, t)))
    return distance / n**2 + 2 * angle / n**3


def literal_pkt(x, t):
    n, total = len(x), 0.0
    for i in range(n):
        p, q = ([(float(rows[i] @ rows[j]) + 1) / 2 for j in range(n)] for rows in (t, x))
        total += sum(a / sum(p) * log((a / sum(p) + 1e-7) / (b / sum(q) + 1e-7)) for a, b in zip(p, q, strict=True))
    return total / n**2


def literal_plg(x, t, labels, direction, shift, temperature):
    n, total = len(x), 0.0
    for i in range(n):
        kin = [labels[i] == labels[j] for j in range(n)]
        S = [exp((1 + shift if kin[j] else float(x[i] @ x[j])) / temperature) for j in range(n)]
        M = [exp((1 + shift if kin[j] else float(t[i] @ t[j]) + shift) / temperature) for j in range(n)]
        p, q = (S, M) if direction == "backward" else (M, S)
        total += sum(a / sum(p) * log((a / sum(p)) / (b / sum(q))) for a, b in zip(p, q, strict=True))
    return total / n


sizes = {"batch": st.integers(2, 8), "seed": st.integers(0, 10**6)}


def rows_of(batch, seed):
    return slow.unit_rows(batch, 4, seed, DOUBLE), slow.unit_rows(batch, 9, seed + 1, DOUBLE)


def alone(matching, temperature=1.0):
    """The bare matching."""
    return SelfDistillation(1.0, temperature, ramp="constant", matching=matching)


@given(**sizes, sigma=st.sampled_from([0.3, 1.0]), delta=st.sampled_from([0.5, 1.0, 1.7]))
def test_relaxed_contrastive_with_loops(batch, seed, sigma, delta):
    x, t = rows_of(batch, seed)
    torch.testing.assert_close(float(alone(RCL(sigma, delta))(x, t, 0.0)), literal_rcl(x, t, sigma, delta))


@given(**sizes)
def test_relations_and_probabilities_with_loops(batch, seed):
    x, t = rows_of(batch, seed)
    torch.testing.assert_close(float(alone(RKD())(x, t, 0.0)), literal_rkd(x, t))
    torch.testing.assert_close(float(alone(PKT())(x, t, 0.0)), literal_pkt(x, t), rtol=1e-5, atol=1e-10)  # of unit rows, 1e-7 is added


@given(
    **sizes, direction=st.sampled_from(["backward", "forward"]), shift=st.sampled_from([0.0, 1.0]), temperature=st.sampled_from([0.2, 1.0])
)
def test_guidance_by_classes_with_loops(batch, seed, direction, shift, temperature):
    """τ² is a factor, as of the KL."""
    x, t = rows_of(batch, seed)
    labels = torch.randint(0, 3, (batch,), generator=torch.Generator().manual_seed(seed))
    found = alone(PLG(direction, shift), temperature)(x, TeacherBatch(t, labels=labels), 0.0)
    expected = temperature**2 * literal_plg(x, t, labels.tolist(), direction, shift, temperature)
    torch.testing.assert_close(float(found), expected, rtol=1e-6, atol=1e-12)


@given(**sizes)
def test_regression_with_loops(batch, seed):
    (x, t), same = rows_of(batch, seed), slow.unit_rows(batch, 4, seed + 2, DOUBLE)
    expected = sum(1 - float(x[i] @ same[i]) for i in range(batch)) / batch
    torch.testing.assert_close(float(alone(Regression(4))(x, same, 0.0)), expected)
    torch.testing.assert_close(float(alone(Regression(4, form="squared"))(x, same, 0.0)), 2 * expected)
    mapped = Regression(4, 9).double().requires_grad_(False)
    M = mapped.map.weight.detach()
    torch.testing.assert_close(M.T @ M, torch.eye(4, dtype=DOUBLE), atol=1e-6, rtol=0)  # it begins without a loss of what rows are
    y = [M @ x[i] for i in range(batch)]
    by_cosine = sum(1 - float(y[i] @ t[i] / y[i].norm()) for i in range(batch)) / batch
    torch.testing.assert_close(float(alone(mapped)(x, t, 0.0)), by_cosine)
    squared = Regression(4, 9, form="squared").double().requires_grad_(False)
    torch.testing.assert_close(float(alone(squared)(x, t, 0.0)), sum(gap(y[i], t[i]) ** 2 for i in range(batch)) / batch)


TARGETS = [PairwiseTargets(), BatchDiffusion(0.5), MeanMix(0.3)]


@given(**sizes, temperature=st.sampled_from([0.05, 1.0]), targets=st.sampled_from(TARGETS))
def test_kl_of_the_others_with_loops(batch, seed, temperature, targets):
    """Both lose what they give to the row itself, and are distributions of the rest."""
    x, t = rows_of(batch, seed)
    P, total = targets(t, temperature), 0.0
    for i in range(batch):
        others = [j for j in range(batch) if j != i]
        weights = {j: exp(float(x[i] @ x[j]) / temperature) for j in others}
        for j in others:
            p, q = float(P[i, j] / sum(P[i, k] for k in others)), weights[j] / sum(weights.values())
            total += p * log(p / q) / batch
    distill = SelfDistillation(1.0, temperature, targets, "constant", KL(diagonal=False))
    torch.testing.assert_close(float(distill(x, t, 0.0)), temperature**2 * total, rtol=1e-6, atol=1e-12)


def test_pairwise_targets_of_others_are_the_softmax_of_others():
    """However sharp: at τ = 0.02 a row's softmax gives itself all but 1e-9."""
    x, t = rows_of(9, 3)
    x.requires_grad_()
    distill = SelfDistillation(1.0, 0.02, PairwiseTargets(), "constant", KL(diagonal=False))
    (found,) = torch.autograd.grad(distill(x, t, 0.0), x)
    itself = torch.eye(9, dtype=torch.bool)
    P, Q = ((rows @ rows.T / 0.02).masked_fill(itself, -torch.inf).softmax(dim=1) for rows in (t, x))
    kl = 0.02**2 * (P[~itself] * (P[~itself] / Q[~itself]).log()).sum() / 9
    (expected,) = torch.autograd.grad(kl, x)
    torch.testing.assert_close(found, expected)


class Itself(PairwiseTargets):
    def __call__(self, teacher, temperature=1.0):
        P = super().__call__(teacher, temperature)
        P[0] = torch.eye(len(P))[0]
        return P


def test_a_target_that_is_the_row_itself_teaches_nothing_about_others():
    x, t = rows_of(5, 4)
    x.requires_grad_()
    loss = SelfDistillation(1.0, 1.0, Itself(), "constant", KL(diagonal=False))(x, t, 0.0)
    usual = SelfDistillation(1.0, 1.0, PairwiseTargets(), "constant", KL(diagonal=False))(x, t, 0.0)
    assert 0 < loss < usual
    assert torch.isfinite(torch.autograd.grad(loss, x)[0]).all()


# ---- What holds for all.

MATCHINGS = [KL(), KL(diagonal=False), RCL(), RCL(0.5, 1.5), RKD(), RKD(1.0, 0.0), RKD(0.0, 1.0), PKT(), PLG(), PLG("forward")]
MATCHINGS += [Regression(4, 9).double(), Regression(4, 9, "squared").double()]
every = pytest.mark.parametrize("matching", MATCHINGS, ids=str)


def taught(seed, batch=7):
    x, t = rows_of(batch, seed)
    return x, TeacherBatch(t, labels=torch.arange(batch) // 2)


@every
def test_the_gradient_is_that_of_finite_differences(matching):
    x, teacher = taught(11)
    distill = alone(matching, 0.5)
    free = (1.3 * x).requires_grad_()
    assert torch.autograd.gradcheck(lambda v: distill(torch.nn.functional.normalize(v, dim=1), teacher, 0.0), free)
    for weight in matching.parameters() if isinstance(matching, torch.nn.Module) else ():
        ((along,),) = [torch.autograd.grad(distill(x, teacher, 0.0), [weight])]
        with torch.no_grad():
            before = float(distill(x, teacher, 0.0))
            weight[2, 1] += 1e-6
            after = float(distill(x, teacher, 0.0))
            weight[2, 1] -= 1e-6
        assert (after - before) / 1e-6 == pytest.approx(float(along[2, 1]), rel=1e-4)


@every
def test_the_order_of_the_batch_does_not_matter(matching):
    x, teacher = taught(12)
    order = torch.tensor([3, 6, 0, 2, 5, 1, 4])
    shuffled = TeacherBatch(teacher.embeddings[order], labels=teacher.labels[order])
    torch.testing.assert_close(alone(matching)(x, teacher, 0.0), alone(matching)(x[order], shuffled, 0.0))


@every
def test_what_the_teacher_does_not_know_leaves_both_sides(matching):
    x, teacher = taught(13)
    known = torch.tensor([True, True, False, True, True, False, True])
    spoilt = replace(teacher, embeddings=teacher.embeddings * known[:, None], known=known)
    some = TeacherBatch(teacher.embeddings[known], labels=teacher.labels[known])
    x.requires_grad_()
    found, expected = alone(matching)(x, spoilt, 0.0), alone(matching)(x[known], some, 0.0)
    torch.testing.assert_close(found, expected)
    assert (torch.autograd.grad(found, x)[0][~known] == 0).all()
    nobody = alone(matching)(x, replace(teacher, known=torch.arange(7) < 1), 0.0)
    assert nobody == 0
    nobody.backward()


@every
def test_no_gradient_reaches_the_teacher(matching):
    x, teacher = taught(14)
    rows = teacher.embeddings.requires_grad_()
    x.requires_grad_()
    alone(matching)(x, teacher, 0.0).backward()
    assert rows.grad is None
    assert x.grad.abs().max() > 0


@every
def test_half_rows_under_autocast_are_matched_in_full(matching):
    x, teacher = taught(15, batch=16)
    half = TeacherBatch(teacher.embeddings.bfloat16(), labels=teacher.labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = alone(matching)(x.bfloat16(), half, 0.0)
    rounded = TeacherBatch(torch.nn.functional.normalize(half.embeddings.double(), dim=1), labels=teacher.labels)
    exact = alone(matching)(torch.nn.functional.normalize(x.bfloat16().double(), dim=1), rounded, 0.0)
    assert found.dtype in (torch.float32, DOUBLE)
    torch.testing.assert_close(found.double(), exact, rtol=2e-2, atol=1e-5)


@pytest.mark.parametrize("matching", [RCL(), RKD(), PKT(), Regression(9)], ids=str)
def test_a_student_that_is_its_teacher_has_nothing_to_learn_but_relaxed_contrasts(matching):
    _, t = rows_of(6, 16)
    value = float(alone(matching)(t, t, 0.0))
    assert (value > 0.1) if isinstance(matching, RCL) else value == pytest.approx(0, abs=1e-10)


@pytest.mark.parametrize("matching", [RCL(), RKD(), PKT()], ids=str)
def test_equal_rows_have_a_finite_gradient(matching):
    """An item that is drawn twice, which the teacher may tell apart."""
    x, t = rows_of(6, 17)
    x = x[[0, 1, 2, 3, 4, 0]].float().requires_grad_()
    (gradient,) = torch.autograd.grad(alone(matching)(x, t.float(), 0.0), x)
    assert torch.isfinite(gradient).all()
    assert gradient.norm(dim=1).max() < 10


def test_many_angles_are_taken_in_chunks(monkeypatch):
    """The same value and gradient, also where two gradients are taken of one graph."""
    x, t = rows_of(8, 18)
    x.requires_grad_()
    whole = relational_angle(x, t)
    expected = torch.autograd.grad(whole, x)[0]
    calls, apart = [], relations._angles_apart
    monkeypatch.setattr(relations, "ANGLE_BYTES", 3 * relations.ANGLE_COPIES * 8 * 8 * 8)
    monkeypatch.setattr(relations, "_angles_apart", lambda *some: (calls.append(some[2:]), apart(*some))[1])
    chunked = relational_angle(x, t)
    assert calls == [(0, 3), (3, 6), (6, 9)]
    torch.testing.assert_close(chunked, whole)
    for _ in range(2):
        torch.testing.assert_close(torch.autograd.grad(chunked, x, retain_graph=True)[0], expected)


@given(temperature=st.sampled_from([0.1, 1.0, 3.0]), matching=st.sampled_from([RCL(), RKD(), PKT(), Regression(4, 9).double()]))
def test_of_those_that_use_no_temperature_it_is_no_factor(temperature, matching):
    x, t = rows_of(6, 19)
    torch.testing.assert_close(SelfDistillation(3.0, temperature, matching=matching)(x, t, 0.5), 1.5 * alone(matching)(x, t, 0.0))


def test_maps_of_one_seed_are_equal_and_draw_nothing_from_elsewhere():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, same, other = (Regression(3, 5, seed=seed).map.weight for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert Regression(5).map is None
    assert Regression(5, map=True).map.weight.shape == (5, 5)


x, t = rows_of(4, 20)
BAD = [
    (lambda: RCL(sigma=0.0), "sigma=0.0 must be a positive finite number"),
    (lambda: RCL(delta=-1.0), "delta=-1.0 must be a positive finite number"),
    (lambda: RKD(angle=-1.0), "angle=-1.0 must be 0 or more and finite; use 0 to leave it out"),
    (lambda: RKD("1"), "distance='1' is a text; pass a number"),
    (lambda: RKD(0, 0), "distance=0 and angle=0 leave nothing to match; try distance=1, angle=2"),
    (lambda: PLG("sideways"), "direction='sideways' is unknown; use 'backward' or 'forward'"),
    (lambda: PLG(shift=float("inf")), "shift=inf must be finite; try 1.0"),
    (lambda: Regression(4, form="cos"), "form='cos' is unknown; use 'cosine' or 'squared'"),
    (lambda: Regression(0), "dim, teacher_dim=(0, None) must be 1 or more; pass the lengths of the rows"),
    (lambda: Regression(4, 9, map=False), "map=False cannot compare rows of length 4 with a teacher's of 9; leave map out, and a"),
    (lambda: alone(Regression(4))(x, t, 0.0), "lengths of student's and teacher's rows=(4, 9) must be (4, 4); make the matching for them"),
    (lambda: alone(PLG())(x, t, 0.0), "labels=None leaves the classes unknown; pass TeacherBatch(embeddings, labels=labels)"),
    (lambda: alone(RKD())(2 * x, t, 0.0), "student=rows off by 1 must be of unit length within 0.001"),
    (lambda: alone(RKD())(x, 2 * t, 0.0), "teacher=rows off by 1 must be of unit length within 0.001"),
    (lambda: alone(PLG())(x, TeacherBatch(2 * t, labels=torch.arange(4)), 0.0), "teacher=rows off by 1 must be of unit length"),
    (lambda: SelfDistillation(1.0, matching=RKD), "must be a matching, not its class or something else; try KL() or RKD()"),
    (lambda: SelfDistillation(1.0, matching="rkd"), "matching=rkd must be a matching"),
]
test_bad_input_is_refused_in_one_clear_line = refused(BAD)


def test_only_cosines_between_classes_get_a_gradient():
    D = (x @ x.T).requires_grad_()
    labels = torch.tensor([0, 0, 1, 2])
    class_guidance(D, t @ t.T, labels).backward()
    assert ((D.grad == 0) == (labels[:, None] == labels)).all()
