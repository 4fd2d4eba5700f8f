"""Bad input: each refusal names the field, the rule, the value and the remedy."""

import os
import subprocess
import sys
from collections import deque
from unittest.mock import Mock, call

import pytest
import torch
from torch import nn

import obdsd
from obdsd import BatchDiffusion, EMATeacher, FrozenTeacher, MemoryTeacher, PreviousEpochTeacher, SelfDistillation, TeacherBatch
from obdsd.method import checks
from tests.oracles import slow
from tests.refusing import refused

Z = slow.unit_rows(4, 3, seed=0)
D = Z @ Z.T
NAN, INF = float("nan"), float("inf")
ONE_INFINITE = torch.tensor([[0.0, INF, 0.0, 0.0], *[[0.0] * 4] * 3])
LOOP = torch.tensor([[0.0, 2.0, 0.0, 0.0], [2.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])  # eigenvalues 2, 0, -2
distill = SelfDistillation(1.0, ramp="constant")
no_matrix = SelfDistillation(1.0, ramp="constant", targets=lambda teacher, temperature: torch.ones(4))


def taught(targets: torch.Tensor) -> torch.Tensor:
    """What targets of somebody's own would teach."""
    return SelfDistillation(1.0, ramp="constant", targets=lambda teacher, temperature: targets)(Z, Z, 1.0)


def spoilt(value: float) -> torch.Tensor:
    rows = Z.clone()
    rows[2, 1] = value
    return rows


class Hoarder(nn.Module):
    """Keeps its last output, as models with hooks do."""

    def __init__(self) -> None:
        super().__init__()
        self.last = torch.ones(2, requires_grad=True) * 2


BAD = [
    (lambda: obdsd.diffuse(D, D, 1.0), "omega=1.0 must lie in [0, 1); try 0.3"),
    (lambda: obdsd.MeanMix(NAN), "omega=nan must lie in [0, 1)"),
    (lambda: obdsd.UniformMix(-1.0), "omega=-1.0 must lie in [0, 1)"),
    (lambda: obdsd.softmax_transition(D, 0.0), "temperature=0.0 must be a positive finite number, from 1e-18 to 1e18; try 1.0"),
    (lambda: SelfDistillation(1.0, temperature=-1.0), "temperature=-1.0 must be a positive"),
    (lambda: obdsd.PairwiseTargets()(Z, 0.0), "temperature=0.0 must be a positive"),
    (lambda: obdsd.PairwiseTargets(scale=0.0), "scale=0.0 must be a positive"),
    (lambda: obdsd.AffineScores(scale=-1.0), "scale=-1.0 must be a positive"),
    (lambda: obdsd.AffineScores(shift="1"), "shift='1' is a text; pass a number, without quotes"),
    (lambda: obdsd.AffineScores(scale=2.0, shift=-2.0), "shift=-2.0 leaves no finite score above 0 with scale=2.0; try 0"),
    (lambda: obdsd.AffineScores(shift=INF), "shift=inf leaves no finite score above 0"),
    (lambda: BatchDiffusion(0.3, "softmax", 0.0), "walk_temperature=0.0 must be a positive"),
    (lambda: BatchDiffusion(0.3, walk_temperature=0.1), "walk_temperature=0.1 acts in the softmax form only; add form=softmax"),
    (lambda: BatchDiffusion(0.3, "symetric"), "form='symetric' is unknown; use 'symmetric' or 'softmax'"),
    (lambda: SelfDistillation(-1.0), "weight=-1.0 must be 0 or more and finite; use 0 to switch it off"),
    (lambda: SelfDistillation(INF), "weight=inf must be 0 or more and finite"),
    (lambda: SelfDistillation(1.0, ramp="lin"), "ramp='lin' is unknown; use 'linear' or 'constant'"),
    (lambda: distill(Z, Z, 1.01), "progress=1.01 must lie in [0, 1]; pass epoch / epochs"),
    (lambda: distill.active(-0.1), "progress=-0.1 must lie in [0, 1]"),
    (lambda: obdsd.symmetric_transition(Z), "similarity.shape=(4, 3) must be (batch, batch); pass Z @ Z.T"),
    (lambda: obdsd.softmax_transition(Z), "similarity.shape=(4, 3) must be (batch, batch)"),
    (lambda: obdsd.symmetric_transition(D.long()), "similarity.dtype=torch.int64 must be floating point; pass similarity.float()"),
    (lambda: obdsd.diffuse(Z[:2], D, 0.3), "state.shape=(2, 3) against transition.shape=(4, 4) must be (batch, m)"),
    (lambda: obdsd.diffuse(D[0], D, 0.3), "state.shape=(4,) against transition.shape=(4, 4) must be (batch, m)"),
    (lambda: obdsd.diffuse(D, Z, 0.3), "transition.shape=(4, 3) must be (batch, batch)"),
    (lambda: distill(Z, Z[:3], 1.0), "student=4 rows against 3 of the teacher must be the same batch"),
    (lambda: distill(Z[0], Z, 1.0), "student.shape=(3,) must be (batch, dim)"),
    (lambda: distill(Z[:1], Z[:1], 1.0), "student.shape=(1, 3) must have 2 rows or more; use a larger batch"),
    (lambda: obdsd.PairwiseTargets()(Z[:1]), "teacher.shape=(1, 3) must have 2 rows or more"),
    (lambda: distill(Z, None, 1.0), "teacher=None at progress=1.0 has nothing to teach; skip it only where active(progress) is False"),
    (lambda: distill(spoilt(NAN), Z, 1.0), "student=nan has NaN or infinite entries; check the model"),
    (lambda: distill(Z, spoilt(INF), 1.0), "teacher=inf has NaN or infinite entries; check the model"),
    (lambda: distill(1.01 * Z, Z, 1.0), "student=rows off by 0.01 must be of unit length within 0.001; pass torch.nn.functional.normalize"),
    (lambda: BatchDiffusion(0.3)(Z * 3), "teacher=rows off by 2 must be of unit length within 0.001"),
    (lambda: distill((1.05 * Z).half(), Z, 1.0), "must be of unit length within 0.02"),
    (lambda: TeacherBatch(Z, known=torch.ones(3).bool()), "known=3 rows must match the embeddings'"),
    (lambda: TeacherBatch(Z, indices=torch.arange(5)), "indices=5 rows must match the embeddings'"),
    (lambda: EMATeacher(nn.Linear(2, 2), 1.0), "decay=1.0 must lie in [0, 1); try 0.999"),
    (lambda: PreviousEpochTeacher(nn.Linear(2, 2)).update(nn.Linear(2, 3)), "student=Linear must have the teacher's architecture"),
    (lambda: MemoryTeacher(0, 3), "num_samples, dim=(0, 3) must be 1 or more"),
    (lambda: BatchDiffusion(1 - 1e-6)(Z), "omega=0.999999 is too near 1 for torch.float32; stay below 0.999940 or use float64"),
    (lambda: SelfDistillation(1.0, BatchDiffusion(0.3)), "temperature=BatchDiffusion(omega=0.3, form='symmetric', walk_temperature=1.0)"),
    (lambda: SelfDistillation(1.0, targets=BatchDiffusion), "must be targets, not their class or something else; try BatchDiffusion("),
    (lambda: SelfDistillation("1"), "weight='1' is a text; pass a number, without quotes"),
    (lambda: SelfDistillation(1.0, "1"), "temperature='1' is a text; pass a number, without quotes"),
    (lambda: SelfDistillation(None), "weight=None is a NoneType; pass a number"),
    (lambda: distill.active("0.5"), "progress='0.5' is a text; pass a number, without quotes"),
    (lambda: BatchDiffusion("0.3"), "omega='0.3' is a text; pass a number, without quotes"),
    (lambda: BatchDiffusion(0.3, "softmax", "1"), "walk_temperature='1' is a text; pass a number, without quotes"),
    (lambda: obdsd.PairwiseTargets("0.7"), "scale='0.7' is a text; pass a number, without quotes"),
    (lambda: obdsd.diffuse(D, D, "0.3"), "omega='0.3' is a text; pass a number, without quotes"),
    (lambda: EMATeacher(nn.Linear(2, 2), "0.9"), "decay='0.9' is a text; pass a number, without quotes"),
    (lambda: MemoryTeacher("4", 3), "num_samples='4' is a text; pass a whole number, without quotes"),
    (lambda: MemoryTeacher(4, 3.0), "dim=3.0 is a float; pass a whole number"),
    (lambda: taught(torch.full((4, 4), 0.3)), "targets=rows that sum to 1.2..1.2 must sum to 1 within 0.001; return one distribution over"),
    (lambda: taught(D - D.mean(dim=1, keepdim=True) + 0.25), "must not be negative; return one distribution over the batch a row"),
    (lambda: taught(torch.eye(4) * NAN), "targets=nan have NaN or infinite entries; return one distribution over the batch a row"),
    (lambda: taught(torch.eye(4) * INF), "have NaN or infinite entries"),
    (lambda: taught((1.1 * torch.eye(4)).half()), "targets=rows that sum to 1.1..1.1 must sum to 1 within 0.02"),
    (lambda: distill(Z, MemoryTeacher(4, 3), 1.0), "teacher=MemoryTeacher must be a batch of embeddings; pass teacher(inputs)"),
    (lambda: no_matrix(Z, Z, 1.0), "targets=shape (4,) must give (4, 4); return one distribution over the batch a row"),
    (lambda: obdsd.PairwiseTargets()(TeacherBatch(Z, torch.ones(4).bool())), "and targets need all; pass teacher.only_known()"),
    (lambda: TeacherBatch(Z, known=torch.tensor([1, 0, 1, 1])), "known.dtype=torch.int64 must be torch.bool; pass known.bool()"),
    (lambda: TeacherBatch((Z, Z)), "embeddings=tuple must be a (batch, dim) tensor; let the model give one row a sample"),
    (lambda: EMATeacher(nn.Linear(2, 2).bfloat16(), 0.9), "model=half precision would round the average away; keep it in float32"),
    (lambda: PreviousEpochTeacher(Hoarder()), "model=Hoarder cannot be copied (Only Tensors"),
    (lambda: MemoryTeacher(4, 3).observe(torch.arange(4), 2 * Z), "embeddings=rows off by 1 must be of unit length"),
    (lambda: MemoryTeacher(4, 3)(Z, [0, 1]), "indices=list cannot be looked up; call teacher(inputs, indices)"),
    (lambda: MemoryTeacher(4, 3)(Z, torch.tensor([0, 4])), "indices=0..4 must lie in 0..3; size the teacher by the training set"),
    (lambda: MemoryTeacher(4, 3).observe(torch.tensor([0]), Z), "embeddings.shape=(4, 3) must be (1, 3); one row an index"),
    (lambda: FrozenTeacher.from_embeddings(2 * Z), "embeddings=rows off by 1 must be of unit length"),
    (lambda: obdsd.diffuse(D, LOOP, 0.5, symmetric=True), "transition=no transition matrix must have eigenvalues from -1 to 1 and no NaN"),
    (lambda: obdsd.diffuse(D, 2 * LOOP, 0.5, symmetric=True), "must have eigenvalues from -1 to 1 and no NaN to be solved as symmetric"),
    (lambda: obdsd.diffuse(D, NAN * LOOP, 0.5, symmetric=True), "must have eigenvalues from -1 to 1 and no NaN to be solved as symmetric"),
    (
        lambda: obdsd.diffuse(D, obdsd.softmax_transition(D, 0.1), 0.5, symmetric=True),
        "from its transpose must be symmetric; leave symmetric",
    ),
    (lambda: obdsd.diffuse(D, LOOP, 0.5), "the walk's end=-inf..inf must be finite: I - omega * transition is singular"),
    (lambda: obdsd.diffuse(D, LOOP, 0.5, symmetric=False), "the walk's end=-inf..inf must be finite"),
    (lambda: obdsd.diffuse(NAN * D, D / 9, 0.5), "the walk's end=nan..nan must be finite"),
    *(
        (
            lambda how=how: obdsd.diffuse(torch.eye(4), D / 9 + ONE_INFINITE, 0.5, symmetric=how),
            "something in it or in the state is not finite",
        )
        for how in (None, False)
    ),
    (lambda: obdsd.softmax_transition(D, 1e-40), "temperature=1e-40 must be a positive finite number, from 1e-18 to 1e18"),
    (lambda: BatchDiffusion(0.3, "softmax", 1e-40), "walk_temperature=1e-40 must be a positive finite number, from 1e-18 to 1e18"),
    (lambda: SelfDistillation(1.0, temperature=1e300), "temperature=1e+300 must be a positive finite number, from 1e-18 to 1e18"),
    (lambda: distill(Z.tolist(), Z, 1.0), "student=list must be a (batch, dim) tensor; pass torch.as_tensor(student)"),
    (lambda: obdsd.symmetric_transition(D.tolist()), "similarity=list must be a (batch, dim) tensor"),
    (
        lambda: MemoryTeacher(4, 3)(Z, torch.ones(4)),
        "indices=torch.float32 must be a tensor of whole numbers; pass torch.as_tensor(indices)",
    ),
    (
        lambda: distill(Z.to("meta"), Z.to("meta"), 1.0),
        "student: its values cannot be looked at, as under vmap or on the device meta; call it",
    ),
    (lambda: torch.vmap(lambda z: distill(z, Z, 1.0))(Z[None]), "student: its values cannot be looked at, as under vmap"),
    (lambda: torch.vmap(obdsd.symmetric_transition)(D[None]), "similarity: its values cannot be looked at, as under vmap"),
    (lambda: torch.vmap(lambda z: obdsd.diffuse(z, D, 0.5))(Z[None]), "state: its values cannot be looked at, as under vmap"),
    (lambda: torch.vmap(lambda s: obdsd.diffuse(D, s, 0.5))(D[None]), "transition: its values cannot be looked at, as under vmap"),
    (lambda: torch.vmap(torch.func.grad(lambda z: distill(z, Z, 1.0)))(Z[None]), "student: its values cannot be looked at, as under vmap"),
]
test_bad_input_is_refused_in_one_clear_line = refused(BAD)


@pytest.mark.parametrize(
    ("dtype", "scale"), [(torch.float32, 1.0005), (torch.float64, 1.0005), (torch.float16, 1.01), (torch.bfloat16, 1.01)]
)
def test_rows_within_the_tolerance_pass(dtype, scale):
    assert distill((scale * Z).to(dtype), Z, 1.0).isfinite()


def test_a_late_verdict_is_judged_when_it_arrives_and_never_waited_for(monkeypatch):
    """What an accelerator does: the verdict of one call arrives while later calls go on."""
    copies = [Mock(**{"query.return_value": arrived}) for arrived in (False, True, False)]  # out of order: the first is on its way
    judge = Mock(side_effect=[None, ValueError("bad"), None])
    late = [(copy, torch.tensor([0.0, number]), judge) for copy, number in zip(copies, (0.5, 2.0, 0.25), strict=True)]
    monkeypatch.setattr(checks, "_LATE", deque(late))
    checks.judge_late(wait=False)
    assert judge.mock_calls == []
    copies[0].query.return_value = True
    with pytest.raises(ValueError, match="bad"):
        checks.judge_late(wait=False)
    checks.judge_late(wait=False)  # reported once
    assert judge.mock_calls == [call(0.0, 0.5), call(0.0, 2.0)]
    assert not copies[2].synchronize.called
    checks.judge_late(wait=True)  # an epoch's end can wait
    assert judge.mock_calls[2:] == [call(0.0, 0.25)]
    assert copies[2].synchronize.called


@pytest.mark.parametrize(("transition", "message"), [(LOOP, "no transition matrix"), (D.tril(), "from its transpose"), (NAN * D, "no NaN")])
def test_elsewhere_the_verdict_on_a_walk_comes_late_but_comes(monkeypatch, transition, message):
    """An accelerator is told from the CPU by `is_cpu` alone; what it has found is the same."""
    late = deque()
    monkeypatch.setattr(checks, "_LATE", late)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(torch.Tensor, "is_cpu", False)
        elsewhere.setattr(torch, "Event", Mock(**{"return_value.query.return_value": False}))  # on its way until somebody waits
        obdsd.diffuse(D, transition, 0.5, symmetric=True)
    assert len(late) == 1
    with pytest.raises(ValueError, match=message):
        checks.judge_late(wait=True)


def test_a_verdict_that_nobody_waited_for_is_told_at_the_end_of_the_program():
    code = """
import torch
from obdsd.method import checks
class Arrived:
    def synchronize(self): pass
checks._LATE.append((Arrived(), torch.tensor([float("nan"), 1.0]), lambda low, high: checks.check_temperature(low)))
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    assert "temperature=nan must be a positive finite number" in ended.stderr


def test_whole_numbers_of_any_type_are_indices():
    teacher = MemoryTeacher(4, 3)
    for kind in (torch.int8, torch.int16, torch.int32, torch.int64):
        teacher.observe(torch.tensor([2, 0, 1, 3], dtype=kind), Z)
        torch.testing.assert_close(teacher(None, torch.tensor([0, 2], dtype=kind)).embeddings, Z[[1, 0]])
