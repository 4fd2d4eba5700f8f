"""MIC in a training: its batches, its clusters, a step of each kind by hand, in chunks, after a stop, on images, and what is refused."""

from itertools import permutations

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from obdsd import objectives
from obdsd.data.batches import ClassBatches
from obdsd.errors import InputError
from obdsd.evaluation.clustering import kmeans
from obdsd.models import Embedder
from obdsd.objectives.mic import MIC, TwoKinds, _early, renumbered, without_class_means
from obdsd.training import Trainer, train
from tests.oracles import systems_apart
from tests.training.reading import assert_same_end, lines, trainer_of

SMALL = {"system": "mic(clusters=5)"}
LABELS = np.repeat(np.arange(6), 10)


def two_kinds(clusters=5, share=0.8, stray=0.2, within=False, **changes):
    plan = TwoKinds(ClassBatches(LABELS, **{"batch_size": 12, "per_class": 4, "seed": 3, **changes}), share, stray, within)
    plan.settle(np.random.default_rng(0).integers(0, clusters, len(LABELS)))
    return plan


def items(plan, epoch):
    return [[draw.item for draw in batch] for batch in plan.epoch(epoch)]


@pytest.mark.parametrize(("share", "kinds"), [(0.8, "001010101"), (0.5, "0010010"), (1, "0101010101"), (0, "00000")])
def test_batches_of_clusters_come_evenly_after_those_of_classes(share, kinds):
    """Five batches of classes an epoch; of 0.8 · 5 batches of clusters none comes after the first."""
    found = two_kinds(share=share).kinds
    assert found == [kind == "1" for kind in kinds]
    usual = [batch for batch, of_clusters in zip(items(two_kinds(share=share), 2), found, strict=True) if not of_clusters]
    assert usual == items(ClassBatches(LABELS, 12, 4, 3), 2)


def test_an_epoch_is_as_long_as_usual_if_both_kinds_are_to_be_within_it():
    plan = two_kinds(within=True)
    assert plan.kinds == two_kinds().kinds[:5]
    assert len(items(plan, 1)) == plan.number == 5
    assert items(plan, 1) == items(two_kinds(), 1)[:5]


def test_a_batch_of_clusters_is_a_function_of_the_place():
    plan, again = two_kinds(), two_kinds()
    batch = plan.kinds.index(True)
    drawn, asked = plan.drawn(4, batch)
    assert items(plan, 4)[batch] == drawn.tolist()
    assert items(again, 4)[batch:] == [[draw.item for draw in each] for each in again.epoch(4, first=batch)]
    assert items(plan, 4) == items(again, 4) != items(plan, 5)
    assert asked.reshape(3, 4).std(axis=1).max() == 0
    ranks = [two_kinds(rank=rank, world_size=2) for rank in (0, 1)]
    assert [one + other for one, other in zip(*(items(rank, 4) for rank in ranks), strict=True)] == items(plan, 4)


def test_a_cluster_comes_again_after_two_others_and_one_item_in_five_strays():
    plan, strays, times = two_kinds(batch_size=24), 0, np.zeros(5)
    of_item = np.random.default_rng(0).integers(0, 5, 60)  # as `two_kinds` settles them
    for epoch in range(200):
        drawn, asked = plan.drawn(epoch, 1)
        order = asked[::4].tolist()
        assert all(order[i] not in order[max(0, i - 2) : i] for i in range(6))
        times += np.bincount(order, minlength=5)
        strays += (of_item[drawn] != asked).sum()
        near = two_kinds(batch_size=24, stray=0.0).drawn(epoch, 1)[0].reshape(-1, 4)
        assert all(len({*four}) == 4 for four in near.tolist())  # every cluster has four items and more
    assert strays / 4800 == pytest.approx(0.2 * 4 / 5, abs=0.02)  # one in five strays falls into its own cluster
    assert times / times.sum() == pytest.approx(np.full(5, 0.2), abs=0.01)


def test_a_cluster_without_items_is_left_out_and_one_item_is_repeated():
    plan = two_kinds(stray=0.0)
    plan.settle(np.where(np.arange(60) == 7, 9, np.arange(60) % 3))
    seen = {int(item): cluster for epoch in range(20) for item, cluster in zip(*plan.drawn(epoch, 1), strict=True)}
    assert {*seen.values()} == {0, 1, 2, 9}
    assert seen[7] == 9
    with pytest.raises(InputError, match=r"^clusters=2 that hold items must be 3 or more; the features may all be the same$"):
        plan.settle(np.arange(60) % 2)


def test_clusters_keep_their_numbers_if_asked():
    """Against the best of all permutations."""
    before, found = (np.random.default_rng(seed).integers(0, 4, 50) for seed in (0, 1))
    kept = (renumbered(found, before, 4) == before).sum()
    assert kept == max((np.array(order)[found] == before).sum() for order in permutations(range(4)))
    assert (renumbered((before + 1) % 4, before, 4) == before).all()


def begun(options, **changes):
    """A trainer where its first epoch begins."""
    trainer = trainer_of(options("mic", **{**SMALL, **changes}))
    trainer.begin(lambda: None)
    trainer.begin_epoch()
    return trainer


def test_the_first_clusters_are_of_the_rows_less_their_class_means(options):
    trainer = begun(options)
    part = trainer.collection["train"]
    rows = normalize(torch.from_numpy(part.matrix()), dim=1).numpy()
    expected = kmeans(np.stack([row - rows[part.labels == label].mean(axis=0) for row, label in zip(rows, part.labels, strict=True)]), 5)
    assert trainer.system.assigned.tolist() == expected.tolist()
    np.testing.assert_allclose(without_class_means(rows, part.labels)[part.labels == 3].mean(axis=0), 0, atol=1e-6)


def test_later_clusters_are_of_the_second_heads_rows_and_found_every_fourth_epoch(options):
    trainer, found = begun(options, system="mic(clusters=5, every=2)"), []
    system = trainer.system
    for epoch in range(1, 4):
        system.end_epoch({})
        system.shared.weight.data.normal_(generator=torch.Generator().manual_seed(epoch))
        trainer.place.epoch = epoch
        trainer.begin_epoch()
        found.append(system.assigned.tolist())
    assert found[1] != found[0]
    assert found[2] == found[1]  # a new head, but clusters are found after every second epoch
    inputs = torch.from_numpy(trainer.collection["train"].matrix())
    system.shared.weight.data.normal_(generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        rows = system.rows(inputs)[:, 6:]
    torch.testing.assert_close(rows, normalize(system.shared(inputs), dim=1))
    assert found[1] == kmeans(rows.numpy(), 5, seed=2).tolist()


def test_a_step_of_each_kind_by_hand(options):
    trainer = begun(options)
    system, batches = trainer.system, list(trainer.batches.epoch(0))
    assert system.plan.kinds[:3] == [False, False, True]
    for step in (1, 2):
        inputs, labels, indices = batches[step]
        trainer.place.step = step
        with torch.no_grad():
            own, shared = trainer.model(inputs), normalize(system.shared(inputs), dim=1)
            weights = [*system.adversary.regressor.parameters()]
            expected = 2500 * systems_apart.decorrelation(*(x.double() for x in (shared, own, *weights)))
            of = objectives.margin(12) if step == 1 else objectives.margin(5)
            drawn, asked = (None, labels) if step == 1 else map(torch.from_numpy, system.plan.drawn(0, 2))
            expected = expected + of(own if step == 1 else shared, asked)
        assert step == 1 or indices.tolist() == drawn.tolist()
        before = {name: value.clone() for name, value in system.named_parameters()}
        parts = trainer.step(inputs, labels, indices)
        assert float(parts["base"]) == pytest.approx(float(expected), rel=1e-4)
        assert float(parts["distillation"]) == 0
        moved = {name for name, value in system.named_parameters() if not torch.equal(value, before[name])}
        betas = {"objective.loss.beta": step == 1, "of_clusters.loss.beta": step == 2}
        assert {name: name in moved for name in betas} == betas
        assert {"shared.weight", "adversary.regressor.0.weight", "adversary.regressor.2.weight"} <= moved  # in both
        assert any(name.startswith("model.head") for name in moved)


def test_what_is_trained_beside_the_model_and_how(options):
    groups = trainer_of(options("mic", **SMALL, lr=0.01)).optimizer.param_groups
    found = [(len(group["params"]), group["lr"], group["weight_decay"]) for group in groups]
    assert found == [(4, 0.01, 4e-4), (2, 0.01, 4e-4), (4, 0.01, 1e-6), (1, 5e-4, 0.0), (1, 5e-4, 0.0)]


def test_a_teacher_is_heard_in_batches_of_classes(options):
    trainer = begun(options, teacher="memory", ramp="constant")
    heard = []
    for step, batch in enumerate(trainer.batches.epoch(0)):
        trainer.place.step = step
        heard.append(float(trainer.step(*batch)["distillation"]) > 0)
    assert not any(one and kind for one, kind in zip(heard, trainer.system.plan.kinds, strict=True))
    trainer.begin_epoch()
    trainer.place.step = 0
    assert float(trainer.step(*next(trainer.batches.epoch(0)))["distillation"]) > 0  # now it remembers


@pytest.mark.parametrize("step", [0, 2])
def test_chunks_of_a_batch_give_the_same_gradient(options, step):
    whole, chunked = (begun(options, micro_batch=size) for size in (0, 3))
    batch = list(whole.batches.epoch(0))[step]
    for trainer in (whole, chunked):
        trainer.batches.sampler.set_epoch(0)
        trainer.place.step = step
        trainer.step(*batch)
    for one, other in zip(whole.system.parameters(), chunked.system.parameters(), strict=True):
        if one.grad is not None:
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-5 * float(one.grad.abs().max()))


@pytest.mark.parametrize("number", [3, 8, 15])  # an epoch is 4 + 3 steps: before a batch of clusters, at an epoch's first, in the third
def test_a_run_that_stopped_goes_on_to_the_same_bits(finished, broken_off, number):
    how = {"system": "mic(clusters=5, every=2, matched=true)", "epochs": 3}
    broken = broken_off(Trainer, "step", number, KeyboardInterrupt, "mic", **how, checkpoint_steps=1)
    train(broken, show=False)
    whole = finished("mic", **how)
    assert_same_end(whole.folder, broken.out)
    assert len(whole.metrics) == 3
    assert whole.model().state_dict().keys() == finished("ms").model().state_dict().keys()  # the second head is thrown away


def test_some_epochs_lower_the_loss(options):
    """Without the decorrelation, which two sides pull at."""
    record = train(options("mic", system="mic(clusters=5, every=100, decorrelation=0.0)", epochs=40, lr=0.01), show=False)
    losses = [line["loss"]["base"] for line in lines(record.folder)]
    assert np.mean(losses[-5:]) < 0.9 * np.mean(losses[:5])


def test_on_images_the_first_clusters_are_of_a_resnets_first_stage(image_options, tmp_path):
    model = Embedder("resnet18", pretrained="none", dim=6, size=64).eval()
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        rows, b = _early(model)(images), model.backbone
        places = b.layer1(b.maxpool(b.act1(b.bn1(b.conv1(images)))))  # 16 × 16: fewer than a window of 18
        large = _early(model)(torch.nn.functional.interpolate(images, 224))
    torch.testing.assert_close(rows, normalize(places.mean(dim=(2, 3)), dim=1))
    assert large.shape == (2, 64 * 4 * 4)  # 56 places: windows begin at 0, 12, 24, 36
    record = train(image_options("mic", system="mic(clusters=4)", out=str(tmp_path / "images")), show=False)
    assert np.isfinite([line["loss"]["base"] for line in record.metrics]).all()
    assert isinstance(trainer_of(image_options("mic", system="mic(clusters=4)")).system, MIC)


BAD = [
    ("clusters=3", "clusters=3 must be more than 3; try 30"),
    ("clusters=73", "clusters=73 are more than the 72 training items; ask for fewer"),
    ("share=1.5", "share=1.5 must lie in [0, 1]; try the published value"),
    ("stray=-0.1", "stray=-0.1 must lie in [0, 1]; try the published value"),
    ("decorrelation=-1", "decorrelation=-1.0 must be 0 or more and finite; try 2500"),
    ("every=0", "every=0 must be 1 or more; try 4"),
]


@pytest.mark.parametrize(("setting", "message"), BAD)
def test_what_cannot_be_is_one_line(options, setting, message):
    with pytest.raises(InputError) as refusal:
        trainer_of(options("mic", system=f"mic({setting})"))
    assert str(refusal.value).startswith(f"system=mic({setting.partition('=')[0]}=")
    assert str(refusal.value).endswith(message)


def test_items_without_classes_have_nothing_in_common(image_options):
    with pytest.raises(InputError, match=r"looks for what classes share, and here each item is a class of its own; use supervision=labels"):
        trainer_of(image_options("mic", supervision="none", **SMALL))
