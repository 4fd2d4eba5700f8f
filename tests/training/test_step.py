"""What a step must get right whatever device and precision it runs with."""

import math

import pytest
import torch

from obdsd.errors import InputError
from obdsd.training import train
from obdsd.training.build import optimizer_of
from tests.training.reading import trainer_of


def test_half_precision_and_clipping_leave_the_fused_step(options):
    """Lightning refuses to clip where the optimiser unscales its own gradients."""
    system = trainer_of(options("ms")).system
    fused = {
        (precision, clip): optimizer_of(options("ms", precision=precision, clip=clip), system).defaults["fused"]
        for precision in ("32", "16")
        for clip in (0.0, 1.0)
    }
    assert fused == {("32", 0.0): True, ("32", 1.0): True, ("16", 0.0): True, ("16", 1.0): False}


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


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (
            "pml(TripletMarginLoss, miner=EmbeddingsAlreadyPackagedAsTriplets)",
            "epoch 0, step 0: TripletMarginLoss of .*: AssertionError; stopped",
        ),
        ("pml(VICRegLoss)", "epoch 0, step 0: .* not supported for this loss function; stopped before the update.*failure.json$"),
    ],
)
def test_a_loss_of_the_library_that_cannot_be_called_so_is_one_line(options, loss, message):
    with pytest.raises(InputError, match=message) as caught:
        train(options("ms", loss=loss), show=False)
    assert "\n" not in str(caught.value)


def test_huge_weights_leave_finite_lines(options):
    """A float32 sum over the steps would overflow."""
    record = train(options("ms+psd-constant", weight=1e38), show=False)
    assert all(math.isfinite(line["loss"]["distillation"]) for line in record.metrics)
