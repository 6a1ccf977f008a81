"""All that one run of the benchmarks found, as it is kept in `results.json`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from benchmarks.cases import ORIGINALS, OURS
from benchmarks.coldstart import Start, ratio
from benchmarks.contended import Run, pooled
from benchmarks.handoffs import CYCLE, Depth, Rate
from benchmarks.machine import Machine
from benchmarks.queues import OURS as OUR_QUEUE
from benchmarks.remote import EDIT, PHASE, Far
from benchmarks.remote import ratios as far_ratios
from benchmarks.uncontended import Timing, ratios

FLOOR_TIMES = 2.0
THROUGHPUT_TIMES = 3.0
LONGEST_WAIT_SHARE = 1 / 3
COLD_START_TIMES = 4.0
FAR_TIMES = 1.1
FAR_MS = 20

CYCLES_PER_SECOND = 1_500
DEPTH_TIMES = 3.0

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
    rates: list[Rate] = []
    depths: list[Depth] = []


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
    yield from _handoff_goals(results)
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


def _handoff_goals(results: Results) -> Iterator[Goal]:
    for rate in results.rates:
        if (rate.place, rate.queue, rate.name) == ("tmpfs", OUR_QUEUE, CYCLE):
            cycles = 1 / rate.seconds.median
            yield Goal(
                "hand-offs: send, next, done, one process",
                "tmpfs",
                f"at least {CYCLES_PER_SECOND:,} a second",
                f"{cycles:,.0f}",
                cycles >= CYCLES_PER_SECOND,
            )
    ours = [depth for depth in results.depths if depth.queue == OUR_QUEUE]
    for place in dict.fromkeys(depth.place for depth in ours):
        first, *_, last = [depth for depth in ours if depth.place == place]
        if first.requests is not None and last.requests is not None:
            times, unit = last.requests / first.requests, "the requests"
        else:
            times, unit = last.seconds.median / first.seconds.median, "the time"
        yield Goal(
            f"`next` with {last.waiting:,} waiting and as many completed",
            place,
            f"at most {DEPTH_TIMES:g}× {unit} of {first.waiting:,}",
            f"{times:.2f}×",
            times <= DEPTH_TIMES,
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
