"""What a step must get right whatever device and precision it runs with."""

import json
import math
from pathlib import Path

import pytest
import torch

from obdsd.errors import InputError
from obdsd.models import Embedder
from obdsd.objectives import multi_similarity
from obdsd.training import train
from obdsd.training.assembly import collection_of, optimizer_of
from obdsd.training.loop import Training
from obdsd.training.runs import RunFolder


def test_half_precision_and_clipping_leave_the_fused_step(options):
    """Lightning refuses to clip where the optimiser unscales its own gradients."""
    model = Embedder("features", features=4, dim=3)
    fused = {
        (precision, clip): optimizer_of(options("ms", precision=precision, clip=clip), model, multi_similarity()).defaults["fused"]
        for precision in ("32", "16")
        for clip in (0.0, 1.0)
    }
    assert fused == {("32", 0.0): True, ("32", 1.0): True, ("16", 0.0): True, ("16", 1.0): False}


def test_what_a_loss_draws_depends_on_the_place_alone(options):
    """Not on what was drawn before, and not on the process: all of them compute the one loss."""
    drawn = options("ms", loss="pml:TripletMarginLoss", miner="DistanceWeightedMiner")
    found = set()
    for before, rank, step in ((1, 0, 0), (2, 0, 0), (1, 1, 0), (1, 0, 1)):
        training = Training(drawn, collection_of(drawn), RunFolder(Path(drawn.out)))
        training.ranks.rank, training.progress.step = rank, step
        torch.manual_seed(before)
        batch = next(training.batches.epoch(0))
        found.add((step, float(training.step(*batch)["base"])))
    assert len(found) == 2
    assert len({value for _, value in found}) == 2  # another step draws other triplets


def test_a_foreign_loss_that_asserts_is_one_line(options):
    with pytest.raises(InputError, match="epoch 0, step 0: AssertionError; stopped before the update"):
        train(options("ms", loss="pml:TripletMarginLoss", miner="EmbeddingsAlreadyPackagedAsTriplets"), show=False)


def test_huge_weights_leave_finite_lines(options):
    """A float32 sum over the steps would overflow."""
    chosen = options("ms+psd-constant", weight=1e38)
    train(chosen, show=False)
    for line in (Path(chosen.out) / "metrics.jsonl").read_text().splitlines():
        assert math.isfinite(json.loads(line)["loss"]["distillation"])
