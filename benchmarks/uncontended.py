"""One process commits and nobody else does: what a commit costs, and what of it is ours.

Blocks of commits of all cases take turns, so that whatever else the machine does hits all of
them; a ratio is taken within one round of blocks.  A block is as long as the interval at which
tapstore collects old contents, so each has that once.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from benchmarks.bare import Bare
from benchmarks.cases import ALONE
from benchmarks.places import Place
from benchmarks.stats import Spread, spread
from benchmarks.ways import WORKERS, Way

BLOCK = 32


class Timing(msgspec.Struct, kw_only=True):
    """One case in one place."""

    place: str
    name: str
    floor: str | None
    block_seconds: list[float]
    """Per commit, mean of each block."""

    calls: list[str] = []
    """The system calls, if this is nothing else."""

    number_of_calls: int = 0

    @property
    def seconds(self) -> Spread:
        return spread(self.block_seconds)


def ratios(timing: Timing, floor: Timing) -> Spread:
    """How many times as long as the other it takes, block by block."""
    pairs = zip(timing.block_seconds, floor.block_seconds, strict=True)
    return spread([ours / theirs for ours, theirs in pairs])


def measure(place: Place, *, rounds: int, say: Callable[[str], None]) -> list[Timing]:
    """Measure all cases in one place."""
    ways: list[Way] = []
    timings = []
    for case in ALONE:
        directory = place.new_directory()
        way = case.make(fsync=place.fsync)
        way.create(directory)
        way.open(directory)
        ways.append(way)
        timing = Timing(place=place.name, name=case.name, floor=case.floor, block_seconds=[])
        if isinstance(way, Bare):
            timing.calls, timing.number_of_calls = way.lines, way.calls
        timings.append(timing)
    for number in range(rounds):
        say(f"{place.name}: alone, round {number + 1} of {rounds}")
        order = list(range(len(ways)))
        for index in order[number % len(order) :] + order[: number % len(order)]:
            timings[index].block_seconds.append(_block(ways[index], number))
    return timings


def _block(way: Way, number: int) -> float:
    way.commit(WORKERS[0], f"first-{number}-0")  # caches are another case's
    started = time.perf_counter()
    for commit in range(BLOCK):
        way.commit(WORKERS[0], f"{number}-{commit}")
    return (time.perf_counter() - started) / BLOCK
