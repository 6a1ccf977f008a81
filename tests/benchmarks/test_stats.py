"""The numbers that runs are summed up in."""

import pytest

from benchmarks.contended import Run, pooled
from benchmarks.stats import jain, quantile, spread
from benchmarks.uncontended import Timing, ratios


@pytest.mark.parametrize(
    ("shares", "index"),
    [([5, 5, 5, 5], 1), ([4, 0, 0, 0], 0.25), ([1, 1, 0, 0], 0.5), ([0, 0], 0)],
)
def test_the_fairness_index_tells_equal_from_hoarded(shares, index):
    assert jain(shares) == index


def test_quantiles_lie_between_the_values():
    values = [1.0, 2.0, 3.0, 4.0]
    assert [quantile(values, share) for share in (0, 0.5, 1)] == [1, 2.5, 4]


def test_a_spread_is_median_and_quartiles():
    assert spread([5, 1, 3, 2, 4]) == (2, 3, 4)


def test_a_ratio_is_taken_within_a_round():
    ours = Timing(place="p", name="a", floor="b", block_seconds=[2, 20, 6])
    theirs = Timing(place="p", name="b", floor=None, block_seconds=[1, 10, 2])
    assert ratios(ours, theirs).median == 2


def run(**fields):
    plain = {
        "place": "p", "way": "w", "processes": 2, "seconds": 1, "window_seconds": 1,
        "commits": [1, 2], "attempts": 4, "waits": [0.1, 0.2, 0.3], "cpu_seconds": 1, "lost": 0,
    }  # fmt: skip
    return Run(**(plain | fields))


def test_rounds_are_pooled_as_if_they_had_been_one():
    (both,) = pooled([run(), run(commits=[3, 0], waits=[0.05, 0.4, 0.5], lost=1)])
    assert (both.rate, both.commits, both.longest, both.lost) == (3, [4, 2], 0.5, 1)


def test_other_places_are_not_pooled():
    assert len(pooled([run(), run(place="q"), run(processes=3)])) == 3
