import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms.functional import pil_to_tensor

from obdsd.data.batches import ClassBatches, Draw, InstanceBatches, RoundBatches
from tests.data.trees import picture
from tests.refusing import refused

LABELS = np.repeat(np.arange(10), [2, 3, 4, 5, 6, 7, 8, 9, 30, 1])  # 75 items, uneven, the last class a singleton


def indices(batches, epoch=0, first=0):
    return [[draw.item for draw in batch] for batch in batches.epoch(epoch, first)]


@given(st.integers(0, 10**6), st.integers(0, 50), st.sampled_from([(8, 2), (9, 3), (12, 4), (16, 2)]))
def test_a_batch_is_p_classes_of_k_different_images(seed, epoch, shape):
    size, k = shape
    batches = indices(ClassBatches(LABELS, size, k, seed), epoch)
    assert len(batches) == 75 // size
    for batch in batches:
        rows = np.array(batch).reshape(-1, k)
        assert all(len({LABELS[i] for i in row}) == 1 for row in rows)
        assert len({LABELS[row[0]] for row in rows}) == size // k  # no class twice
        for row in rows:
            assert len(set(row.tolist())) == min(k, (LABELS == LABELS[row[0]]).sum())
        assert 74 not in batch  # the singleton takes no part


@given(st.integers(0, 10**6), st.integers(0, 50))
def test_an_epoch_is_a_function_of_seed_and_epoch(seed, epoch):
    one, same = ClassBatches(LABELS, 8, 2, seed), ClassBatches(LABELS, 8, 2, seed)
    indices(one, epoch + 1)  # what was drawn before does not matter
    assert indices(one, epoch) == indices(same, epoch)
    assert indices(one, epoch) != indices(one, epoch + 1)
    assert indices(one, epoch, first=5) == indices(one, epoch)[5:]  # resuming is skipping
    one.set_epoch(epoch, first=5)
    assert [[draw.item for draw in batch] for batch in one] == indices(one, epoch)[5:]
    assert len(one) == 75 // 8 - 5


@given(st.lists(st.integers(-3, 9), min_size=30, max_size=60).map(np.array))
def test_the_members_of_each_class_are_its_items_in_their_order(labels):
    """The draws follow from them: the one definition that looks through all items for every class."""
    of_each = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    members = ClassBatches(labels, 4, 2, replacement=True).members
    assert [(each.dtype, each.tolist()) for each in members] == [(each.dtype, each.tolist()) for each in of_each if len(each) > 1]


def test_over_many_epochs_every_image_is_used_and_none_is_preferred_in_its_class():
    batches = ClassBatches(LABELS, 8, 2, seed=3)
    counts = np.zeros(75)
    for epoch in range(400):
        for batch in indices(batches, epoch):
            np.add.at(counts, batch, 1)
    assert counts[74] == 0
    assert (counts[:74] > 0).all()
    for label in range(9):
        of_class = counts[LABELS == label]
        assert of_class.std() < 0.12 * of_class.mean()
    per_class = [counts[LABELS == label].sum() for label in range(9)]
    assert max(per_class) < 1.1 * min(per_class)  # classes are drawn alike, whatever their size


@pytest.mark.parametrize("world", [2, 4])
def test_ranks_get_disjoint_slices_of_the_same_batch(world):
    whole = list(ClassBatches(LABELS, 8, 2, seed=1).epoch(2))
    ranks = [list(ClassBatches(LABELS, 8, 2, seed=1, rank=rank, world_size=world).epoch(2)) for rank in range(world)]
    for i, batch in enumerate(whole):
        assert [draw for rank in ranks for draw in rank[i]] == batch
        assert [draw.position for draw in batch] == list(range(8))


def test_what_replacement_changes_on_cub():
    """100 classes of 58 images, 56 × 2: with replacement a batch has about 43 classes, and one pair in 58 is an image with itself."""
    labels = np.repeat(np.arange(100), 58)
    classes, selves = {}, {}
    for replacement in (False, True):
        epochs = range(20 if replacement else 2)  # without it, every batch is alike
        pairs = np.array([indices(ClassBatches(labels, replacement=replacement), epoch) for epoch in epochs]).reshape(-1, 56, 2)
        classes[replacement] = np.mean([len(set(labels[batch[:, 0]])) for batch in pairs])
        selves[replacement] = (pairs[:, :, 0] == pairs[:, :, 1]).mean()
    assert (classes[False], selves[False]) == (56, 0)
    assert classes[True] == pytest.approx(100 * (1 - 0.99**56), abs=0.5)
    assert selves[True] == pytest.approx(1 / 58, rel=0.1)


BAD = [
    ({"batch_size": 110, "per_class": 4}, "batch_size=110 must be a multiple of per_class=4, for 2 classes or more; try 108 or 112"),
    ({"batch_size": 8, "per_class": 1}, "per_class=1 must be 2 or more"),
    ({"batch_size": 4, "per_class": 4}, "batch_size=4 must be a multiple of per_class=4, for 2 classes or more; try 8 or 12"),
    ({"batch_size": 40}, "batch_size=40 needs 20 classes × 2, but 9 classes have 2 images or more; try 18"),
    ({"batch_size": 76, "replacement": True}, "batch_size=76 is more than the 75 training items; try 74"),
    ({"batch_size": 8, "world_size": 3}, "batch_size=8 must be a multiple of the 3 processes"),
    ({"items": 9, "batch_size": 8, "per_class": 0}, "per_class=0 must be 1 or more, a view of each item at least; try 1"),
    ({"items": 3, "batch_size": 8}, "batch_size=8 needs 4 items, there are 3; try 6"),
]


test_impossible_batches_are_refused = refused(
    BAD, lambda options: InstanceBatches(**options) if "items" in options else ClassBatches(LABELS, **options)
)


@given(st.integers(0, 10**6), st.integers(0, 50))
def test_batches_without_labels_hold_views_of_each_item_once_an_epoch(seed, epoch):
    batches = indices(InstanceBatches(11, batch_size=6, per_class=2, seed=seed), epoch)
    assert [len(batch) for batch in batches] == [6, 6, 6]
    firsts = [item for batch in batches for item in batch[::2]]
    assert firsts == [item for batch in batches for item in batch[1::2]]
    assert len(set(firsts)) == 9
    assert set(firsts) <= set(range(11))


def test_one_view_of_each_item_will_do():
    batches = indices(InstanceBatches(11, batch_size=5, per_class=1, seed=4), epoch=2)
    assert [len({*batch}) for batch in batches] == [5, 5]
    assert len({item for batch in batches for item in batch}) == 10


@given(st.integers(0, 10**6), st.integers(0, 50))
def test_in_rounds_every_class_has_its_turn_in_one_order(seed, epoch):
    """The largest class has 30: with 4 a round, 2 are over, more than ⌊0.3 · 4⌋, so 8 rounds."""
    batches = indices(RoundBatches(LABELS, batch_size=12, per_class=4, seed=seed), epoch)
    assert [len(batch) for batch in batches] == [12] * (9 * 8 * 4 // 12)
    given = np.array(batches).reshape(8, 9, 4)  # rounds, classes, their images
    assert (LABELS[given] == LABELS[given[0, :, 0]][None, :, None]).all()  # each round has the same order
    assert len({*LABELS[given[0, :, 0]].tolist()}) == 9
    for label in range(9):
        times = np.bincount(given[LABELS[given] == label], minlength=75)[LABELS == label]
        assert times.sum() == 32
        assert times.min() >= 1  # none is left out where there is room
    whole = RoundBatches(LABELS, 12, 4, seed)
    assert indices(whole, epoch) == batches
    assert indices(whole, epoch, first=5) == batches[5:]
    assert indices(whole, epoch) != indices(whole, epoch + 1)


@pytest.mark.parametrize(("largest", "rounds"), [(3, 1), (16, 1), (19, 1), (20, 2), (59, 4), (60, 4), (64, 4), (67, 4), (68, 5)])
def test_the_length_of_all_classes_is_that_of_the_largest_rounded(largest, rounds):
    """With 16 a round, up to 3 images over are cut off: fewer than ⌊0.3 · 16⌋ = 4."""
    labels = np.repeat(np.arange(9), [2] * 8 + [largest])
    assert RoundBatches(labels, 32, 16).rounds == rounds
    drawn = [item for batch in indices(RoundBatches(labels, 144, 16)) for item in batch if labels[item] == 8]
    assert len({*drawn}) == min(largest, 16 * rounds)


def test_rounds_are_shared_by_processes_and_leave_single_images_out():
    whole = list(RoundBatches(LABELS, 12, 4, seed=1).epoch(2))
    ranks = [list(RoundBatches(LABELS, 12, 4, seed=1, rank=rank, world_size=2).epoch(2)) for rank in (0, 1)]
    assert [one + other for one, other in zip(*ranks, strict=True)] == whole
    assert all(draw.item != 74 for batch in whole for draw in batch)
    orders = [{tuple(LABELS[each[::4]].tolist()) for each in indices(RoundBatches(LABELS, 36, 4, seed=1), epoch)} for epoch in (0, 1)]
    assert [len(each) for each in orders] == [1, 1]
    assert orders[0] != orders[1]  # another epoch, another order


BAD = [
    ({"batch_size": 400, "per_class": 4}, "batch_size=400 is more than the 288 items that 9 classes give in 8 rounds of 4; try 288"),
    ({"batch_size": 10, "per_class": 4}, "batch_size=10 must be a multiple of per_class=4"),
    ({"batch_size": 8, "per_class": 1}, "per_class=1 must be 2 or more"),
]
test_impossible_rounds_are_refused = refused(BAD, lambda options: RoundBatches(LABELS, **options))


@pytest.mark.parametrize("workers", [0, 2])
def test_any_data_set_takes_them_as_its_batch_sampler(tmp_path, workers):
    """Torchvision's folder of images, by its own labels."""
    touched = {}
    for number, name in enumerate(f"{c}/{i}.png" for c in "abc" for i in range(4)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        picture(number, size=(8, 8)).save(tmp_path / name)
        touched[number] = np.asarray(picture(number, size=(8, 8)))
    images = ImageFolder(tmp_path, transform=pil_to_tensor)
    batches = ClassBatches(images.targets, batch_size=4, per_class=2, seed=3)
    for epoch in range(2):
        batches.set_epoch(epoch)
        loaded = list(DataLoader(images, batch_sampler=batches, num_workers=workers))
        drawn = indices(batches, epoch)
        assert [labels.tolist() for _, labels in loaded] == [[images.targets[i] for i in batch] for batch in drawn]
        for (pixels, _), batch in zip(loaded, drawn, strict=True):
            np.testing.assert_array_equal(pixels.permute(0, 2, 3, 1), [touched[i] for i in batch])


def test_a_draw_keeps_its_randomness_on_the_way_to_another_process():
    draw = pickle.loads(pickle.dumps(Draw(7, 1, 2, 3)))
    assert (draw, draw.item, draw.epoch, draw.batch, draw.position) == (7, 7, 1, 2, 3)
