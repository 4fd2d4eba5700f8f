"""Parts of the study's own: they are what they say, and a run with them goes on after an interruption as if there had been none."""

import pytest
import torch
from torch import nn

from obdsd.data import open_data
from obdsd.method.distillation import SelfDistillation
from obdsd.method.targets import BatchDiffusion, PairwiseTargets
from obdsd.method.teachers import PreviousEpochTeacher, TeacherBatch
from obdsd.models import Embedder
from obdsd.training import Trainer, train
from obdsd.training.scoring import Scoring
from study import parts, records, testing, variants
from study.tests.made_up import interrupt, small

LABELS = torch.arange(12) % 3
KIN = LABELS[:, None] == LABELS[None, :]
Z = nn.functional.normalize(torch.randn(12, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64), dim=1)


@pytest.mark.parametrize("within", [True, False])
def test_a_walk_by_labels_goes_where_it_may(within):
    """Against the walk taken step by step on the graph without the other edges."""
    walk = parts.LabelledWalk(0.9, within)
    W = (Z @ Z.mT).clamp(min=0).fill_diagonal_(0) * (KIN == within)
    alone = (W.sum(dim=1) == 0).double()
    S = W / (W.sum(dim=1) + alone).outer(W.sum(dim=1) + alone).sqrt() + alone.diag()
    A = Z @ Z.mT
    for _ in range(400):
        A = 0.9 * S @ A + 0.1 * Z @ Z.mT
    torch.testing.assert_close(walk(walk.complete(TeacherBatch(Z), nn.Identity(), LABELS), 0.5), torch.softmax(A / 0.5, dim=1))


def test_the_sparse_walk_with_all_neighbours_at_power_one_is_the_walk():
    torch.testing.assert_close(parts.SparseWalk(0.7, power=1.0, neighbours=12)(TeacherBatch(Z)), BatchDiffusion(0.7)(Z))
    assert not torch.allclose(parts.SparseWalk(0.7)(TeacherBatch(Z)), BatchDiffusion(0.7)(Z))


def test_all_rows_have_the_perplexity_that_was_asked_for():
    P = parts.EvenEntropy(4.0)(TeacherBatch(Z))
    torch.testing.assert_close((-P * P.log()).sum(dim=1).exp(), torch.full((12,), 4.0).double(), rtol=1e-4, atol=0)


def test_without_the_diagonal_the_distributions_are_over_the_others():
    """The mean over rows of the KL between softmaxes of the eleven other cosines."""
    student, kl = Z.roll(1, dims=1), torch.zeros(()).double()
    for i in range(12):
        others = torch.arange(12) != i
        p, q = (torch.softmax((rows @ rows[i])[others] / 0.5, dim=0) for rows in (Z, student))
        kl += (p * (p / q).log()).sum() / 12
    found = parts.WithoutDiagonal(10.0, 0.5, PairwiseTargets())(student, TeacherBatch(Z), 0.3)
    torch.testing.assert_close(found, 0.5**2 * 0.3 * 10.0 * kl)


def epochs_of(system, epochs, reading):
    """What the distillation is in each epoch, and whether the teacher is the model after it."""
    for epoch in range(epochs):
        system.begin_epoch(epoch / epochs, lambda model: Z)
        with torch.no_grad():
            system.model.weight.add_(1)
        system.end_epoch(reading)
        yield system.distill, torch.equal(system.teacher.model.weight, system.model.weight)


def system_of(build, *settings):
    model = nn.Linear(5, 5)
    model.dim = 5
    return build(model, lambda dim: nn.Identity(), PreviousEpochTeacher(model), SelfDistillation(10.0, 1.0, BatchDiffusion(0.3)), *settings)


def test_what_changes_from_epoch_to_epoch():
    seen = epochs_of(system_of(parts.omega_schedule, 0.8, 0.0), 4, {})
    assert [distill.targets.omega for distill, _ in seen] == pytest.approx([0.8, 0.6, 0.4, 0.2])
    seen = [*epochs_of(system_of(parts.temperature_schedule, 0.01, 1.0), 4, {})]
    assert [distill.temperature for distill, _ in seen] == pytest.approx([10**-2, 10**-1.5, 10**-1, 10**-0.5])
    assert all(renewed for _, renewed in seen)
    assert [renewed for _, renewed in epochs_of(system_of(parts.OldTeacher, 2), 4, {})] == [False, True, False, True]
    keeper = system_of(parts.ShareKeeper, 0.5)
    assert [distill.weight for distill, _ in epochs_of(keeper, 3, {"gradient_share": 1 / 3})] == pytest.approx([10, 20, 40])
    assert [distill.weight for distill, _ in epochs_of(keeper, 3, {"gradient_share": 0.999})] == pytest.approx([80, 20, 5])  # a quarter
    assert [distill.weight for distill, _ in epochs_of(keeper, 2, {})] == pytest.approx([1.25, 1.25])  # nothing was read


@pytest.mark.parametrize("system", ["share-keeper(0.5)", "omega-schedule(start=0.9, end=0)", "old-teacher(3)"])
def test_an_interrupted_run_comes_to_the_same_weights(system, rows, tmp_path, monkeypatch):
    """In the midst of the second epoch, and while the third is evaluated."""

    def weights(name, **more):
        options = small(rows, "ms+obd-sd", ramp="constant", system=system, lr=0.01, checkpoint_steps=1, evaluate_every=1, val_fold="0/3")
        train(options.replace(out=str(tmp_path / name), **more), show=False)
        return (tmp_path / name / "model" / "model.safetensors").read_bytes()

    def interrupted(owner, method, number):
        calls, whole = iter(range(number)), getattr(owner, method)
        monkeypatch.setattr(owner, method, lambda *args: whole(*args) if next(calls, None) is not None else interrupt())
        with pytest.raises(KeyboardInterrupt):
            weights("broken", resume=True)
        monkeypatch.undo()

    interrupted(Trainer, "step", 6)
    interrupted(Scoring, "geometry", 1)
    assert weights("broken", resume=True) == weights("whole")


def test_heads_begin_with_a_part_of_the_projection(rows):
    def head(name):
        begun = testing.begun(small(rows, "ms", head_init="projection", system=f"beginning({name!r})")).model.head
        assert not begun.bias.any()
        return begun.weight.detach().double()

    drawn = Embedder("features", features=20, dim=4, head="linear", seed=0).head.weight.detach().double()
    P, unit, lengths = head("projection"), torch.eye(4).double(), torch.linalg.vector_norm(drawn, dim=1)
    orthonormal, inside = head("random, orthonormal"), head("random inside the main directions")
    turned = head("random inside the main directions, orthonormal")
    for found, expected in [
        (P @ P.T, unit),
        (head("random"), drawn),
        (head("random, a tenth as long"), drawn / 10),
        (head("random, as long as the projection"), drawn / lengths[:, None]),
        (head("projection, as long as random"), P * lengths[:, None]),
        (orthonormal @ orthonormal.T, unit),
        (drawn @ orthonormal.T @ orthonormal, drawn),  # the same directions
        (inside @ P.T @ P, inside),
        (torch.linalg.vector_norm(inside, dim=1), lengths),
        (turned.T @ turned, P.T @ P),  # the projection's own cosines
    ]:
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
    assert not torch.allclose(turned, P)


def test_every_variant_is_another_training_and_builds(rows, monkeypatch):
    planned = {}
    monkeypatch.setattr(variants, "features", lambda: rows)
    monkeypatch.setattr(variants, "run_all", lambda plan, jobs: planned.update(plan))
    variants.run_variants()
    assert len(planned) == len({str(options) for options in planned.values()}) == 4 * len(variants.VARIANTS) - 2
    collection = open_data(rows)
    for options in {name.split("/")[2]: options for name, options in planned.items()}.values():
        Trainer(options.replace(batch_size=8, device="cpu", val_fold=None, score="test"), collection)


def test_other_processes_know_the_parts(places, rows):
    plan = {"r/a": small(rows, "ms+obd-sd", targets="sparse-walk"), "r/b": small(rows, system="no-diagonal")}
    records.run_all(plan, jobs=2)
    kept = records.records("r")
    assert [kept[name]["options"][part] for name, part in (("a", "targets"), ("b", "system"))] == ["sparse-walk(omega=0.3)", "no-diagonal"]
