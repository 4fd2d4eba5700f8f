"""Divide and conquer in a training: which slice learns from what and when, clusters in a checkpoint, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
import torch

from obdsd.errors import InputError
from obdsd.evaluation.clustering import kmeans
from obdsd.training import Trainer, train
from obdsd.training.checkpoints import read_state
from tests.training.reading import assert_same_end, few_steps, trainer_of

TWO = {"slices": 2, "head": "linear"}
SOON = {"system": "divide-and-conquer(every=1, whole_from=0.5, all_from=0.75)", "epochs": 4}


def at(trainer, epoch):
    trainer.place.epoch = epoch
    trainer.begin_epoch()
    return next(trainer.batches.epoch(epoch))


def pulled(trainer):
    """Which slices' weights got a gradient beyond rounding."""
    pulls = trainer.model.head.weight.grad.unflatten(0, (2, -1)).abs().sum(dim=(1, 2))
    return (pulls > 1e-6 * pulls.max()).tolist()


@pytest.mark.parametrize("clustered", ["embeddings", "features"])
def test_a_slice_learns_from_its_cluster_alone(options, clustered):
    trainer = trainer_of(options("div-conq", **TWO, weight_decay=0.0, system=f"divide-and-conquer(clustered={clustered})"))
    features = torch.from_numpy(trainer.collection["train"].matrix())
    rows = trainer.model(features) if clustered == "embeddings" else torch.nn.functional.normalize(features, dim=1)
    trainer.begin_epoch()
    clusters = trainer.system.cluster_of
    assert clusters.tolist() == kmeans(rows.detach().numpy(), 2).tolist()
    learned = []
    for batch in trainer.batches.epoch(0):
        (own,) = clusters[batch[2]].unique().tolist()
        learned.append(own)
        z = trainer.model(batch[0]).detach().unflatten(1, (2, -1))[:, own]
        expected = trainer.system.objective.of_slice[own](torch.nn.functional.normalize(z, dim=1), batch[1])
        assert float(trainer.step(*batch)["base"]) == pytest.approx(float(expected), rel=1e-4)
        assert pulled(trainer) == [own == 0, own == 1]
    assert learned == [0, 1, 0, 1]


def test_slices_then_the_whole_on_one_cluster_then_the_whole_on_all(options):
    trainer = trainer_of(options("div-conq", **TWO, **SOON))
    found = []
    for epoch in range(4):
        batch = at(trainer, epoch)
        clusters = len(trainer.system.cluster_of[batch[2]].unique())
        trainer.step(*batch)
        found.append((clusters, trainer.system.objective.active is None, pulled(trainer)))
    first, second, third, fourth = found
    assert first[:2] == second[:2] == (1, False)
    assert sum(first[2]) == sum(second[2]) == 1
    assert third == (1, True, [True, True])
    assert fourth == (2, True, [True, True])


def test_the_set_is_divided_anew_every_few_epochs_and_not_in_between(options, monkeypatch):
    divided = []
    trainer = trainer_of(options("div-conq", **TWO, system="divide-and-conquer(every=3)", epochs=40))
    monkeypatch.setattr(type(trainer.system), "_divide", lambda self, embed: divided.append(int(self.epoch)))
    trainer.system.cluster_of.copy_(torch.arange(72) % 2)
    for epoch in range(40):
        trainer.place.epoch = epoch
        trainer.begin_epoch()
    assert divided == [*range(0, 38, 3)]  # not in the last two, which learn from all
    trainer.place.step = 1
    trainer.begin_epoch()
    assert int(trainer.system.epoch) == 40


def test_clusters_keep_their_slice_where_the_set_is_divided_anew(options):
    trainer = trainer_of(options("div-conq", **TWO, system="divide-and-conquer(every=1)"))
    trainer.begin_epoch()
    first = trainer.system.cluster_of.clone()
    trainer.system.cluster_of.copy_(1 - first)  # as if they had been numbered the other way round
    trainer.begin_epoch()
    assert trainer.system.cluster_of.tolist() == (1 - first).tolist()


@pytest.mark.parametrize("step", [3, 6, 15])
def test_a_run_that_stopped_inside_an_epoch_goes_on_to_the_same_bits(finished, broken_off, step):
    broken = broken_off(Trainer, "step", step, KeyboardInterrupt, "div-conq", **TWO, **SOON, checkpoint_steps=1)
    state = read_state(Path(broken.out) / "checkpoints" / "last.pt")["system"]
    assert int(state["epoch"]) == -(-(step - 1) // 4)
    assert {*state["cluster_of"].tolist()} == {0, 1}
    train(broken, show=False)
    whole = finished("div-conq", **TWO, **SOON)
    assert_same_end(whole.folder, broken.out)
    assert whole.model().architecture.slices == 2


@pytest.mark.parametrize("loss", ["div-conq", "proxy-anchor"])
def test_chunks_of_a_batch_give_the_same_gradient(options, loss):
    how = {**TWO, "system": "divide-and-conquer"}
    whole, chunked = (trainer_of(options(loss, **how, micro_batch=size)) for size in (0, 3))
    for trainer in (whole, chunked):
        trainer.step(*at(trainer, 0))
    own, others = whole.system.objective.active, 0
    for (name, one), other in zip(whole.system.named_parameters(), chunked.system.parameters(), strict=True):
        if one.grad is None:
            others += 1
            assert name.startswith("objective.")
            assert f"of_slice.{own}" not in name
            assert other.grad is None
        else:
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-5 * float(one.grad.abs().max()))
    assert others == (0 if loss == "div-conq" else 2)  # the proxies of the whole and of the other slice


def test_a_few_steps_lower_the_loss_beside_a_teacher_too(options):
    for name, changes in (("div-conq", {}), ("ms+psd", {"system": "divide-and-conquer", "weight": 1.0})):
        _, parts = few_steps(options(name, **TWO, **changes, lr=0.01), count=40)
        assert sum(part["base"] for part in parts[-4:]) < sum(part["base"] for part in parts[:4])
        assert (parts[-1]["distillation"] > 0) == ("psd" in name)


def test_images_are_divided_by_what_the_network_makes_of_them(image_options):
    trainer, parts = few_steps(image_options("div-conq", slices=2, batchnorm="frozen"), count=2, epoch=0)
    model = trainer_of(image_options("div-conq", slices=2, batchnorm="frozen"))
    rows = model._embedded(model.model)
    assert trainer.system.cluster_of.tolist() == kmeans(rows.numpy(), 2).tolist()
    assert all(np.isfinite(part["base"]) for part in parts)


BAD = [
    ({"slices": 1}, "system=divide-and-conquer: slices=1 leaves nothing to divide; add slices=8, or another number of 2 or more"),
    ({"system": "divide-and-conquer(every=0)"}, "every=0 must be 1 or more; try 2"),
    (
        {"system": "divide-and-conquer(whole_from=0.9, all_from=0.5)"},
        "(0.9, 0.5) must not be less than whole_from, and both lie in [0, 1]",
    ),
    ({"system": "divide-and-conquer(all_from=1.5)"}, "whole_from, all_from=(0.95, 1.5) must not be less than whole_from, and both lie in"),
    ({"system": "divide-and-conquer(clustered=rows)"}, "clustered=rows must be one of embeddings, features"),
    ({"slices": 96, "dim": 96}, "slices=96 are more than the 72 training items; use fewer"),
    ({"slices": 4, "dim": 6}, "slices=4 must divide dim=6"),
    ({"supervision": "none", "loss": "none", "teacher": "features", "per_class": 1}, "learns from labels; leave supervision=none out"),
]


@pytest.mark.usefixtures("as_shipped")
@pytest.mark.parametrize(("changes", "message"), BAD)
def test_what_cannot_be_is_one_line(options, changes, message):
    with pytest.raises(InputError) as refusal:
        train(options("div-conq", **{**TWO, **changes}), show=False)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_clusters_too_small_for_batches_are_one_line(options):
    with pytest.raises(InputError, match="no cluster of the training set has two classes of two items each; use fewer slices"):
        train(options("div-conq", slices=36, dim=72, head="linear", head_init="random"), show=False)
