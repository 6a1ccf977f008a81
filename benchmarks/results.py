"""All that one run of the benchmarks found, as it is kept in `results.json`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from benchmarks.cases import ORIGINALS, OURS
from benchmarks.coldstart import Start, ratio
from benchmarks.contended import Run, pooled
from benchmarks.machine import Machine
from benchmarks.remote import EDIT, PHASE, Far
from benchmarks.remote import ratios as far_ratios
from benchmarks.uncontended import Timing, ratios

FLOOR_TIMES = 2.0
THROUGHPUT_TIMES = 3.0
LONGEST_WAIT_SHARE = 1 / 3
COLD_START_TIMES = 4.0
FAR_TIMES = 1.1
FAR_MS = 20

SHORTEST_WINDOW_SECONDS = 2.0
"""No wait that is measured is much longer than the run: those of short ones say nothing."""


class Results(msgspec.Struct, kw_only=True):
    """Empty where something was not asked for."""

    machine: Machine
    quick: bool
    places: dict[str, str] = {}
    """Kind of file system, by place."""

    alone: list[Timing] = []
    runs: list[Run] = []
    starts: list[Start] = []
    far: list[Far] = []


class Goal(NamedTuple):
    """What was aimed at in one place, and what came out."""

    what: str
    where: str
    aim: str
    measured: str
    met: bool


def goals(results: Results) -> Iterator[Goal]:
    """Each goal, wherever it was measured."""
    yield from _floor_goals(results.alone)
    yield from _contention_goals(pooled(results.runs))
    for one in results.far:
        if one.name in (PHASE, EDIT) and one.round_trip_ms == FAR_MS:
            against = far_ratios(results.far, one)
            assert against is not None
            yield Goal(
                f"{one.name}, {FAR_MS} ms away",
                one.server,
                f"at most {FAR_TIMES:g}× boto3's GET and PUT",
                f"{against.median:.2f}×",
                against.median <= FAR_TIMES,
            )
    if results.starts:
        times = ratio(results.starts).median
        yield Goal(
            "`tapstore status`, cold start",
            "disk",
            f"at most {COLD_START_TIMES:g}× `import yaml`",
            f"{times:.1f}×",
            times <= COLD_START_TIMES,
        )


def _floor_goals(alone: list[Timing]) -> Iterator[Goal]:
    timings = {(timing.place, timing.name): timing for timing in alone}
    for timing in alone:
        if timing.floor is not None:
            times = ratios(timing, timings[timing.place, timing.floor]).median
            yield Goal(
                timing.name,
                timing.place,
                f"at most {FLOOR_TIMES:g}× its system calls",
                f"{times:.2f}×",
                times <= FLOOR_TIMES,
            )


def _contention_goals(runs: list[Run]) -> Iterator[Goal]:
    by_key = {(run.place, run.processes, run.way): run for run in runs}
    for place, processes in dict.fromkeys((run.place, run.processes) for run in runs):
        originals = [by_key[place, processes, way] for way in ORIGINALS]
        fastest = max(run.rate for run in originals)
        shortest = min(run.longest for run in originals)
        for way in OURS:
            run = by_key[place, processes, way]
            where = f"{place}, {processes} processes"
            times, share = run.rate / fastest, run.longest / shortest
            yield Goal(
                f"throughput: {way}",
                where,
                f"at least {THROUGHPUT_TIMES:g}× the original way",
                f"{times:.1f}×",
                times >= THROUGHPUT_TIMES,
            )
            if run.window_seconds < SHORTEST_WINDOW_SECONDS:
                continue
            yield Goal(
                f"longest wait: {way}",
                where,
                f"at most {LONGEST_WAIT_SHARE:.2f}× the original way",
                f"{share:.2f}×",
                share <= LONGEST_WAIT_SHARE,
            )
    if runs:
        lost = sum(run.lost for run in runs)
        yield Goal("commits lost", "everywhere", "0", str(lost), lost == 0)
