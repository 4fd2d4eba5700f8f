"""Losses and miners of pytorch-metric-learning by their names."""

import pytest
import torch
from pytorch_metric_learning import losses, miners

from obdsd.catalogue import LOSSES
from tests.oracles import slow
from tests.refusing import refused

Z, LABELS = slow.unit_rows(12, 6, seed=0), torch.arange(6).repeat(2)
SIZES = {"num_classes": 6, "dim": 6, "seed": 3}


@pytest.mark.parametrize(
    ("written", "loss", "miner"),
    [
        ("pml(ContrastiveLoss)", losses.ContrastiveLoss(), None),
        ("pml(TripletMarginLoss(margin=0.3), miner=BatchHardMiner)", losses.TripletMarginLoss(margin=0.3), miners.BatchHardMiner()),
        ("pml(TripletMarginLoss, TripletMarginMiner(margin=0.5))", losses.TripletMarginLoss(), miners.TripletMarginMiner(margin=0.5)),
    ],
)
def test_a_name_stands_for_the_object(written, loss, miner):
    expected = loss(Z, LABELS, None if miner is None else miner(Z, LABELS))
    torch.testing.assert_close(LOSSES.build(written, **SIZES)(Z, LABELS), expected)


def test_sizes_are_filled_in_and_the_seed_draws_the_weights():
    before = torch.get_rng_state()
    first, same, other = (LOSSES.build("pml(ArcFaceLoss)", **{**SIZES, "seed": seed}).loss.W for seed in (3, 3, 4))
    assert first.shape == (6, 6)
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)


BAD = [
    ("pml", r"loss=pml needs name; write pml\(name=…\)"),
    ("pml(TripletMargin)", r"TripletMargin is not in pytorch-metric-learning's losses; did you mean TripletMarginLoss\?"),
    ("pml(TripletMarginLoss, miner=BatchHard)", r"BatchHard is not in pytorch-metric-learning's miners; did you mean BatchHardMiner\?"),
    ("pml(TripletMarginLoss(margn=1))", r"TripletMarginLoss\(margn=1\) cannot be made \(.*margn.*\); see its arguments there"),
    ("pml(VICRegLoss)", r"^VICRegLoss of pytorch-metric-learning: labels .* not supported"),
]
test_what_cannot_be_made_or_used_is_one_line = refused(BAD, lambda written: LOSSES.build(written, **SIZES)(Z, LABELS), regex=True)
