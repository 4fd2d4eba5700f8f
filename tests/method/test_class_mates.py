"""Targets of class-mates, by loops."""

import math

import pytest
import torch

from obdsd import SelfDistillation, TeacherBatch
from obdsd.method.class_mates import ClassMates
from tests.oracles import slow
from tests.refusing import refused

T, LABELS = slow.unit_rows(9, 5, seed=1, dtype=torch.float64), torch.tensor([0, 0, 0, 1, 1, 2, 2, 3, 1])


def literal(z, labels, temperature):
    n, P = len(z), torch.zeros(len(z), len(z), dtype=torch.float64)
    for i in range(n):
        mates = [m for m in range(n) if m != i and labels[m] == labels[i]]
        for m in mates:
            weights = {j: math.exp(float(z[m] @ z[j]) / temperature) for j in range(n) if j not in (i, m)}
            for j, weight in weights.items():
                P[i, j] += weight / sum(weights.values()) / len(mates)
    return P


@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_targets_are_the_mates_rows_without_the_two(temperature):
    P = ClassMates()(TeacherBatch(T, labels=LABELS), temperature)
    torch.testing.assert_close(P, literal(T, LABELS, temperature), rtol=1e-10, atol=1e-12)
    assert (P[7] == 0).all()  # alone in its class


def test_an_item_does_not_teach_its_own_similarities():
    """Of two of a class each learns what the other is near to, whatever it is near to itself."""
    z = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6], [-0.6, 0.8]])
    P = ClassMates()(TeacherBatch(z, labels=torch.tensor([0, 0, 1, 2])), 0.1)
    assert int(P[0].argmax()) == 3  # which is nearest to row 1, not to row 0
    assert int(P[1].argmax()) == 2


def test_two_rows_teach_nothing_and_the_order_does_not_matter():
    assert (ClassMates()(TeacherBatch(T[:2], labels=LABELS[:2])) == 0).all()
    order = torch.randperm(9, generator=torch.Generator().manual_seed(0))
    P = ClassMates()(TeacherBatch(T, labels=LABELS))
    torch.testing.assert_close(ClassMates()(TeacherBatch(T[order], labels=LABELS[order])), P[order][:, order])


def test_a_student_learns_from_the_labels_list():
    """-Σ_j T_ij log softmax_{j≠i}(S_i/τ)_j, and only of rows that the teacher knows."""
    known, student = torch.arange(9) != 4, slow.unit_rows(9, 3, seed=2, dtype=torch.float64)
    batch = ClassMates().complete(TeacherBatch(T, known), torch.nn.Identity(), LABELS)
    loss = SelfDistillation(1.0, 1.0, ClassMates(), "constant")(student, batch, 0.0)
    rest, total = known.nonzero().squeeze(1).tolist(), 0.0
    target = literal(T[rest], LABELS[rest], 1.0)
    for row, i in enumerate(rest):
        scores = {j: float(student[i] @ student[j]) for j in rest if j != i}
        log_sum = math.log(sum(map(math.exp, scores.values())))
        total -= sum(float(target[row, rest.index(j)]) * (score - log_sum) for j, score in scores.items())
    assert float(loss) == pytest.approx(total / 8)


BAD = [
    (lambda: ClassMates()(T), "labels=None leaves no class-mates to learn from; pass TeacherBatch(embeddings, labels=labels)"),
    (lambda: ClassMates()(TeacherBatch(T)), "labels=None leaves no class-mates to learn from"),
]
test_bad_input_is_refused_in_one_clear_line = refused(BAD)
