"""One process commits and nobody else does: what a commit costs, and what of it is ours.

Blocks of commits of all cases take turns, so that whatever else the machine does hits all of
them; a ratio is taken within one round of blocks.  A block is as long as the interval at which
tapstore removes old contents, so each has that once.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from benchmarks.bare import INTERVAL, Bare
from benchmarks.cases import ALONE
from benchmarks.places import Place
from benchmarks.stats import Spread, spread
from benchmarks.ways import WORKERS, Way

BLOCK = INTERVAL


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


def measure(
    place: Place, *, sittings: int, rounds: int, say: Callable[[str], None]
) -> list[Timing]:
    """Measure all cases in one place, in new directories for each sitting."""
    timings = [
        Timing(place=place.name, name=case.name, floor=case.floor, block_seconds=[])
        for case in ALONE
    ]
    for sitting in range(sittings):
        say(f"{place.name}: alone, sitting {sitting + 1} of {sittings}")
        ways = _opened(place)
        for timing, way in zip(timings, ways, strict=True):
            if isinstance(way, Bare):
                timing.calls, timing.number_of_calls = way.lines, way.calls
        order = list(range(len(ways)))
        for number in range(rounds):
            for index in order[number % len(order) :] + order[: number % len(order)]:
                timings[index].block_seconds.append(_block(ways[index], number))
    return timings


def _opened(place: Place) -> list[Way]:
    # What is held against each other lies side by side: some parts of a disk are slower.
    beside = {case.name: place.new_directory() for case in ALONE if case.floor is None}
    ways: list[Way] = []
    for case in ALONE:
        directory = beside[case.floor or case.name] / f"{len(ways)}"
        directory.mkdir()
        way = case.make(fsync=place.fsync)
        way.create(directory)
        way.open(directory)
        ways.append(way)
    return ways


def _block(way: Way, number: int) -> float:
    way.commit(WORKERS[0], f"first-{number}-0")  # caches are another case's
    started = time.perf_counter()
    for commit in range(BLOCK):
        way.commit(WORKERS[0], f"{number}-{commit}")
    return (time.perf_counter() - started) / BLOCK
