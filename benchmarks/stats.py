"""The few numbers that runs are summed up in.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Spread(NamedTuple):
    """A median and the quartles around it."""

    low: float
    median: float
    high: float


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value that a share of the values, sorted, does not exceed; interpolated."""
    if not ordered:
        raise ValueError("no values")
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def spread(values: Sequence[float]) -> Spread:
    """Median and quartiles."""
    ordered = sorted(values)
    return Spread(*(quantile(ordered, share) for share in (0.25, 0.5, 0.75)))


def jain(shares: Sequence[float]) -> float:
    """Jain's index: 1 if all got the same, 1/n if one got everything."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 0.0
