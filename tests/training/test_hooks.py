"""What a system may ask of a training: batches of its own, the place of a step, rows of some items, another crop of each image."""

from unittest.mock import patch

import pytest
import torch

from obdsd.catalogue import SYSTEMS
from obdsd.data.batches import Batches
from obdsd.errors import InputError, Terminated
from obdsd.method.teachers import TeacherBatch
from obdsd.objectives.system import System
from obdsd.training import Trainer, train
from tests.training.reading import assert_same_end, few_steps, trainer_of


class OneHalf(Batches):
    """One batch of the items of a half after the other; which comes first is settled where an epoch begins."""

    def __init__(self, usual, half):
        super().__init__(usual.batch_size, usual.per_class, usual.seed, usual.rank, usual.world_size)
        self.number, self.half = 2, half

    def items_of(self, epoch):
        for batch in range(self.number):
            first = (int(self.half) + batch) % 2 * 36
            yield list(range(first, first + self.batch_size))


class Halves(System):
    """Learns from one half of the items after the other, and begins with the half whose first items are alike."""

    def __init__(self, model, make_loss, teacher, distill):
        super().__init__(model, make_loss(model.dim), teacher, distill)
        self.register_buffer("begun_with", torch.tensor(0))
        self.steps = []

    def batches(self, usual):
        return OneHalf(usual, self.begun_with)

    def begin_epoch(self, progress, embed, resumed=False):
        super().begin_epoch(progress, embed, resumed)
        if not resumed:
            rows = embed(self.model, [0, 1, 36, 37])
            torch.testing.assert_close(rows, embed(self.model)[[0, 1, 36, 37]])
            self.begun_with.copy_(int(rows[2] @ rows[3] > rows[0] @ rows[1]))

    def begin_step(self, step, indices):
        self.steps.append((step, indices))


class TwoViews(System):
    """Asks a copy of the model, as it is now, what it makes of another crop."""

    another_view = True
    teaches = True

    def __init__(self, model, make_loss, teacher, distill):
        super().__init__(model, make_loss(model.dim), teacher, distill)

    def asks(self, progress):
        return True

    @torch.no_grad()
    def ask(self, inputs, indices):
        return TeacherBatch(self.model(inputs), indices=indices)

    def losses(self, rows, labels, taught, progress):
        base = self.objective(rows, labels)
        return base, (rows - taught.embeddings).square().sum(dim=1).mean()


@pytest.fixture(autouse=True)
def own_systems():
    with patch.dict(SYSTEMS._homes, {"halves": Halves, "two-views": TwoViews}):
        yield


def test_a_system_brings_its_own_batches_and_knows_each_step(options):
    trainer, _ = few_steps(options("ms", system="halves"), count=2)
    (first, one), (second, other) = trainer.system.steps
    assert (first, second) == (0, 1)
    half = int(trainer.system.begun_with)
    assert one.tolist() == list(range(36 * half, 36 * half + 16))
    assert other.tolist() == list(range(36 * (1 - half), 36 * (1 - half) + 16))
    assert len(trainer.batches) == 2


def test_its_batches_are_the_same_where_a_training_goes_on(options, broken_off, finished):
    whole = finished("ms", system="halves")
    broken = broken_off(Trainer, "step", 4, Terminated, "ms", system="halves")
    train(broken, show=False)
    assert_same_end(whole.folder, broken.out)


def test_another_view_is_another_crop_of_the_same_image(image_options):
    """The same image and place give the same two crops; as the model is asked for both, only the crops make them differ."""
    trainer = trainer_of(image_options("ms", system="two-views"))
    inputs, labels, indices, shown = next(trainer.batches.epoch(0))
    again = next(trainer.batches.epoch(0))[3]
    assert torch.equal(shown, again)
    assert inputs.shape == shown.shape
    assert not any(torch.equal(one, other) for one, other in zip(inputs, shown, strict=True))
    trainer.model.eval()
    with torch.no_grad():
        expected = float((trainer.model(inputs) - trainer.model(shown)).square().sum(dim=1).mean())
    assert float(trainer.step(inputs, labels, indices, shown)["distillation"]) == pytest.approx(expected, rel=1e-4)


def test_rows_have_no_other_view(options):
    with pytest.raises(InputError, match=r"system=two-views, .*: compares two crops of each image, and rows .* have none; give images and"):
        trainer_of(options("ms", system="two-views"))
