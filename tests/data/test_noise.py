import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from obdsd.data.noise import flip_labels


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.1, 0.4, 1.0]))
def test_noise_flips_exactly_its_share_and_never_to_the_true_label(seed, ratio):
    clean = np.repeat(np.arange(7), 11)
    noisy = flip_labels(clean, ratio, seed)
    assert (noisy != clean).sum() == round(ratio * 77)
    assert set(noisy) <= set(range(7))
    assert (flip_labels(clean, ratio, seed) == noisy).all()
    assert (clean == np.repeat(np.arange(7), 11)).all()


def test_noise_is_uniform_over_the_other_classes():
    clean = np.zeros(60_000, dtype=np.int64)
    clean[:10] = np.arange(10) % 4
    counts = np.bincount(flip_labels(clean, 1.0, seed=0)[10:], minlength=4)
    assert counts[0] == 0
    assert (abs(counts[1:] - 20_000) < 5 * (20_000 * 2 / 3) ** 0.5).all()  # five standard deviations


OUTSIDE = r"noise ratio=.* must lie in \[0, 1\]"


@pytest.mark.parametrize(("ratio", "message"), [(-0.1, OUTSIDE), (1.1, OUTSIDE), (float("nan"), OUTSIDE), (0.5, "=0.5 needs 2 classes")])
def test_impossible_noise_is_refused(ratio, message):
    with pytest.raises(ValueError, match=message):
        flip_labels(np.zeros(4, dtype=np.int64), ratio)
