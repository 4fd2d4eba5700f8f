import itertools

import numpy as np
import pytest
from scipy import stats

from obdsd.experiments.statistics import Interval, class_interval, t_interval


def test_the_t_interval_is_scipys():
    values = np.random.default_rng(0).standard_normal(7)
    truth = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    found = t_interval(values)
    assert (found.mean, found.low, found.high) == pytest.approx((values.mean(), truth.low, truth.high))


def test_one_seed_has_no_interval():
    found = t_interval(np.array([0.4]))
    assert found.mean == 0.4
    assert np.isnan([found.low, found.high]).all()
    assert not found.tells_apart


def test_the_bootstrap_over_classes_is_that_of_all_resamples():
    """Three classes: all 27 resamples are equally likely, so their exact quantiles are known."""
    differences, queries = np.array([0.1, -0.2, 0.4]), np.array([10, 20, 30])
    means = [np.average(differences[list(draw)], weights=queries[list(draw)]) for draw in itertools.product(range(3), repeat=3)]
    found = class_interval(differences, queries)
    assert found.mean == pytest.approx(np.average(differences, weights=queries))
    assert (found.low, found.high) == pytest.approx((min(means), max(means)))
    inner = class_interval(differences, queries, coverage=0.6)
    assert (inner.low, inner.high) == pytest.approx(np.quantile(means, [0.2, 0.8], method="inverted_cdf"))
    assert found == class_interval(differences, queries)


@pytest.mark.parametrize(("interval", "apart"), [((1, 0.5, 2), True), ((-1, -2, -0.5), True), ((1, -0.5, 2), False)])
def test_an_interval_without_zero_tells_apart(interval, apart):
    assert Interval(*interval).tells_apart is apart
