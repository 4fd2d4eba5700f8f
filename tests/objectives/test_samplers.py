"""Each sampler against the slow literal law of its definition.

The statistical tests compare 20,000 seeded draws with the law by a χ² test at the level 1e-4: a right sampler would be refused
for one seed in ten thousand, and the seeds are fixed.
"""

from collections import Counter

import pytest
import scipy.stats
import torch

from obdsd.objectives import TripletSampler, samplers
from tests.oracles import slow

DRAWS = 20_000
KINDS = ["random", "semihard", "softhard", "distance", "regularised"]
LABELS = torch.tensor([0, 1, 0, 2, 1, 0, 2, 3])  # three, two, two and one of a class; the last can be a negative only


def assert_follows(counts: dict, expected: dict, groups: int = 1) -> None:
    """χ² of the observed counts, cells with an expectation below 5 pooled; each of the `groups` has a fixed total."""
    assert set(counts) <= set(expected)
    small = [cell for cell, e in expected.items() if e < 5]
    observed = [counts.get(cell, 0) for cell in expected if cell not in small]
    wanted = [e for e in expected.values() if e >= 5]
    if sum(expected[cell] for cell in small) > 0:
        observed.append(sum(counts.get(cell, 0) for cell in small))
        wanted.append(sum(expected[cell] for cell in small))
    assert sum(observed) == pytest.approx(sum(wanted))
    if len(wanted) > 1:
        scale = sum(observed) / sum(wanted)  # 1 but for rounding, which scipy refuses
        assert scipy.stats.chisquare(observed, [scale * e for e in wanted], ddof=groups - 1).pvalue > 1e-4


def draws(kind: str, rows: torch.Tensor, labels: torch.Tensor, calls: int) -> Counter:
    sampler = TripletSampler(kind, seed=1)
    counts: Counter = Counter()
    for _ in range(calls):
        anchors, positives, negatives = sampler(rows, labels)
        counts.update(zip(anchors.tolist(), positives.tolist(), negatives.tolist(), strict=True))
    return counts


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, 1])
def test_triplets_follow_the_literal_law(kind, seed):
    rows = slow.unit_rows(len(LABELS), 4, seed, torch.float64)
    distances = torch.cdist(rows, rows)
    assert distances.max() > 1.4  # no upper cutoff: far negatives are in the law too
    law = slow.sampling_law(kind, distances.tolist(), LABELS.tolist(), dim=4)
    anchors = 7 if kind != "random" else 8  # one triplet for each anchor that has a positive; `random` draws b of them
    calls = DRAWS // anchors
    scale = calls * (anchors if kind == "random" else 1)
    counts = draws(kind, rows, LABELS, calls)
    assert sum(counts.values()) == calls * anchors
    groups = 1 if kind == "random" else anchors
    assert_follows(counts, {triplet: scale * probability for triplet, probability in law.items()}, groups)


@pytest.mark.parametrize("kind", ["semihard", "softhard"])
def test_where_nothing_is_hard_any_will_do(kind):
    """Two tight, far classes: no negative inside the band, no negative nearer than a positive."""
    angles = torch.tensor([0.0, 0.01, 3.0, 3.01])
    rows, labels = torch.stack([angles.cos(), angles.sin()], dim=1).double(), torch.tensor([0, 0, 1, 1])
    law = slow.sampling_law(kind, torch.cdist(rows, rows).tolist(), labels.tolist(), dim=2)
    assert len(law) == 8
    assert_follows(draws(kind, rows, labels, 2000), {triplet: 2000 * p for triplet, p in law.items()}, groups=4)


def test_half_precision_rows_are_sampled_in_float32():
    rows = slow.unit_rows(8, 4, seed=4).half()
    assert [len(part) for part in TripletSampler("distance")(rows, LABELS)] == [7, 7, 7]


@pytest.mark.parametrize("case", ["case0", "case1"])
def test_distance_probabilities_of_the_oracle(reference, case):
    rows, labels = reference[f"{case}/student"], reference[f"{case}/labels"]
    log_weights = samplers.log_inverse_density(torch.cdist(rows, rows), dim=rows.shape[1])
    probabilities = log_weights.masked_fill(labels[:, None] == labels, float("-inf")).softmax(dim=1)
    expected = reference[f"{case}/distance_negative_probabilities"]
    torch.testing.assert_close(probabilities, expected, rtol=1e-4, atol=1e-9)


def test_far_and_opposite_negatives_keep_their_weight():
    d = torch.tensor([0.1, 0.5, 1.0, 1.4, 1.41, 1.9, 2.0], dtype=torch.float64)
    w = samplers.log_inverse_density(d, dim=128)
    assert w.isfinite().all()
    assert w[0] == w[1]  # clamped below at 0.5
    far = 1.9
    by_formula = (2 - 128) * torch.tensor(far).double().log() - (128 - 3) / 2 * torch.tensor(1 - far**2 / 4).double().log()
    torch.testing.assert_close(w[5], by_formula)
    assert w[6] > w[5] > w[4]


@pytest.mark.parametrize("kind", KINDS)
def test_a_draw_is_a_function_of_seed_and_step(kind):
    rows = slow.unit_rows(40, 4, seed=2)
    labels = torch.arange(10).repeat(4)

    def first(sampler, n=3):
        return [torch.stack(sampler(rows, labels)) for _ in range(n)]

    one, same, other = first(TripletSampler(kind, 5)), first(TripletSampler(kind, 5)), first(TripletSampler(kind, 6))
    assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
    assert not torch.equal(one[0], one[1])
    assert not torch.equal(one[0], other[0])
    torch.manual_seed(123)  # the global state plays no part
    resumed = TripletSampler(kind, 5)
    half_way = TripletSampler(kind, 5)
    first(half_way, 2)
    resumed.load_state_dict(half_way.state_dict())
    assert torch.equal(first(resumed, 1)[0], one[2])
    half_way.eval()  # looking does not advance the training
    assert torch.equal(first(half_way, 2)[1], one[2])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("labels", [[0, 0, 0, 0], [0, 1, 2, 3]], ids=["no negatives", "no positives"])
def test_no_valid_triplet_gives_none(kind, labels):
    assert [len(part) for part in TripletSampler(kind)(slow.unit_rows(4, 3, seed=3), torch.tensor(labels))] == [0, 0, 0]
