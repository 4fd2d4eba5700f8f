"""The numbers of a training: against a plain loop written here, from the same seed, in chunks, and with every loss and optimiser."""

import math

import pytest
import torch

from obdsd import BatchDiffusion, PreviousEpochTeacher, SelfDistillation, objectives
from obdsd.data import open_data
from obdsd.data.batches import ClassBatches
from obdsd.evaluation.embedding import embed
from obdsd.evaluation.geometry import density
from obdsd.models import Embedder
from obdsd.training import train
from obdsd.training.build import optimizer_of
from tests.training.reading import assert_equal, few_steps, trainer_of, weights


def test_a_training_is_the_papers_algorithm(options, features):
    """The same weights, bit for bit, as the ten lines of the README with the same batches."""
    chosen = options(weight=40.0, omega=0.7, epochs=4, weight_decay=0.01)
    train(chosen, show=False)

    part = open_data(features)["train"]
    model = Embedder("features", features=12, dim=6, head="two-layer", seed=0)
    teacher = PreviousEpochTeacher(model)
    distill = SelfDistillation(40.0, targets=BatchDiffusion(0.7))
    metric_loss = objectives.multi_similarity()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=0.01, fused=True)
    batches = ClassBatches(part.labels, 16, 2, seed=0)
    for epoch in range(4):
        for batch in batches.epoch(epoch):
            rows, labels = zip(*(part[draw.item][:2] for draw in batch), strict=True)
            z = model(torch.stack(rows))
            loss = metric_loss(z, torch.tensor(labels)) + distill(z, teacher(torch.stack(rows)), progress=epoch / 4)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        teacher.update(model)
    assert_equal(weights(chosen.out), model.state_dict())


@pytest.mark.parametrize("name", ["ms+obd-sd", "r-margin", "proxy-anchor+psd", "soft-triple"])
def test_the_same_seed_gives_the_same_steps_and_another_others(options, name):
    (first, parts), (again, same), (other, _) = (few_steps(options(name, seed=seed)) for seed in (1, 1, 2))
    assert parts == same
    assert_equal(first.system.state_dict(), again.system.state_dict())
    assert not torch.equal(first.model.head[2].weight, other.model.head[2].weight)


@pytest.mark.parametrize("loss", ["multi-similarity", "margin", "r-margin", "proxy-anchor", "pml(ContrastiveLoss)", "pml(ProxyNCALoss)"])
def test_any_loss_draws_classes_together(options, features, loss):
    trainer, _ = few_steps(options("ms", loss=loss, head="linear", lr=1e-2), count=25)
    part = open_data(features)["train"]
    before = density(embed(Embedder("features", features=12, dim=6, seed=0), part), part.labels)
    assert trainer.scoring.geometry()["density"] < 0.95 * before.ratio


WAYS = [{"optimizer": "sgd", "clip": 0.1}, {"optimizer": "adamw", "schedule": "cosine", "warmup_epochs": 1}, {"precision": "bf16"}]
WAYS += [{"schedule": "steps", "lr_steps": (1,), "head_lr": 0.01}, {"replacement": True, "per_class": 4, "lr": 0.02}]


@pytest.mark.parametrize("changes", WAYS, ids=lambda changes: next(iter(changes)))
def test_every_way_of_training_learns(options, changes):
    record = train(options(**{"epochs": 8, "weight": 1.0, **changes}), show=False)
    assert record.metrics[-1]["loss"]["base"] < record.metrics[0]["loss"]["base"]


def test_chunks_in_mixed_precision(options):
    """The rows of both passes are those of bf16, and the engine's wrapper does not stand in the way."""
    changes = ({"precision": "bf16"}, {"precision": "bf16", "micro_batch": 6}, {})
    whole, chunks, full = (few_steps(options(**each), count=6)[1][-1]["base"] for each in changes)
    assert chunks == pytest.approx(whole, rel=1e-2)
    assert whole != full  # bf16 is not ignored


def test_learning_rates_of_head_and_objective(options):
    groups = trainer_of(options("margin", head_lr=0.5, objective_lr=0.25)).optimizer.param_groups
    assert [(group["lr"], group["weight_decay"]) for group in groups] == [(0.5, 4e-4), (0.25, 0.0)]


def test_clipping_bounds_the_step(options):
    moved = {}
    for clip in (0.0, 1e-3):
        plain = options("ms", optimizer="sgd", momentum=0.0, lr=1.0, weight_decay=0.0, clip=clip)
        before = trainer_of(plain).model.state_dict()
        after = few_steps(plain)[0].model.state_dict()
        moved[clip] = float(sum((after[name] - before[name]).square().sum() for name in before) ** 0.5)
    assert moved[1e-3] <= 1e-3 * 3 * 1.001 < moved[0.0]


def test_half_precision_and_clipping_leave_the_fused_step(options):
    """Lightning refuses to clip where the optimiser unscales its own gradients."""
    system = trainer_of(options("ms")).system
    for precision, clip, fused in (("32", 0.0, True), ("32", 1.0, True), ("16", 0.0, True), ("16", 1.0, False)):
        assert optimizer_of(options("ms", precision=precision, clip=clip), system).defaults["fused"] == fused


def test_what_a_loss_draws_depends_on_the_place_alone(options):
    """Not on what was drawn before, and not on the process: all of them compute the one loss."""
    drawn = options("ms", loss="pml(TripletMarginLoss, miner=DistanceWeightedMiner)")
    losses = set()
    for before, rank, step in ((1, 0, 0), (2, 0, 0), (1, 1, 0), (1, 0, 1)):
        trainer = trainer_of(drawn)
        trainer.ranks.rank, trainer.place.step = rank, step
        torch.manual_seed(before)
        losses.add((step, float(trainer.step(*next(trainer.batches.epoch(0)))["base"])))
    assert len(losses) == 2
    assert len({value for _, value in losses}) == 2  # another step draws other triplets


def test_huge_weights_leave_finite_lines(options):
    """A float32 sum over the steps would overflow."""
    record = train(options("ms+psd-constant", weight=1e38), show=False)
    assert all(math.isfinite(line["loss"]["distillation"]) for line in record.metrics)
