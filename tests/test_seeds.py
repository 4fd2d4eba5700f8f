"""A seed is a function of its place, and neighbours share nothing."""

import itertools

import numpy as np
import pytest

from obdsd.seeds import seed_of


def test_seeds_are_the_same_everywhere_and_for_ever():
    """Runs of other machines and versions are resumed: these numbers may not change."""
    assert seed_of(0) == 4246866556266386882  # printf 0 | b2sum -l 64, the eight bytes backwards, halved
    assert seed_of(0, 1, 2) == 217875049918638303  # of 0:1:2


def test_places_have_seeds_of_their_own():
    places = [*itertools.product(range(30), repeat=2), *itertools.product(range(10), repeat=3), *((i,) for i in range(100))]
    seeds = {place: seed_of(*place) for place in places}
    assert len(set(seeds.values())) == len(places)
    assert all(0 <= seed < 2**63 for seed in seeds.values())  # that torch and numpy take


def test_a_place_is_no_sum_or_joined_text_of_its_numbers():
    assert len({seed_of(1, 23), seed_of(12, 3), seed_of(123), seed_of(3, 21), seed_of(1, 2, 3), seed_of(-1, 23)}) == 6


@pytest.mark.parametrize("step", [(1, 0), (0, 1)])
def test_streams_of_neighbours_are_unrelated(step):
    """Correlation of 2,000 numbers each: below 5 of its standard deviations."""
    first, second = (np.random.default_rng(seed_of(*place)).standard_normal(2000) for place in ((5, 5), (5 + step[0], 5 + step[1])))
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / np.sqrt(2000)
