"""`python -m benchmarks`: measure, and write a report, plots and the raw numbers."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks import coldstart, contended, handoffs, machine, remote, report, uncontended
from benchmarks.cases import SHARED
from benchmarks.places import Place, places
from benchmarks.results import Results, goals

PROCESSES = (2, 8, 32)
PARTS = ("uncontended", "contended", "handoffs", "coldstart", "remote")


class Size(NamedTuple):
    """How much is measured."""

    alone_sittings: int
    alone_rounds: int
    contended_rounds: int
    contended_seconds: float
    start_rounds: int
    remote_rounds: int
    handoff_rounds: int
    handoff_depths: Sequence[int]
    """How many hand-offs lie there; half of them wait, the others are completed."""

    handoff_calls: int


QUICK = Size(
    alone_sittings=2,
    alone_rounds=2,
    contended_rounds=1,
    contended_seconds=0.4,
    start_rounds=5,
    remote_rounds=2,
    handoff_rounds=3,
    handoff_depths=(200, 2_000),
    handoff_calls=5,
)
FULL = Size(
    alone_sittings=6,
    alone_rounds=5,
    contended_rounds=2,
    contended_seconds=4,
    start_rounds=30,
    remote_rounds=8,
    handoff_rounds=12,
    handoff_depths=(200, 20_000, 200_000),
    handoff_calls=20,
)


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    size = QUICK if options.quick else FULL
    parts = PARTS if options.only is None else (options.only,)
    results = measure(size, parts, disk=out, quick=options.quick)
    write(results, out)
    for goal in goals(results):
        mark = "ok  " if goal.met else "MISS"
        print(f"{mark} {goal.what} ({goal.where}): {goal.measured}; aim: {goal.aim}")
    print(f"\n{out / 'report.md'}")


def measure(
    size: Size,
    parts: Sequence[str],
    *,
    disk: Path,
    quick: bool,
    processes: Sequence[int] = PROCESSES,
    round_trips: Sequence[int] = remote.ROUND_TRIPS_MS,
) -> Results:
    """Run these parts; the folder `disk` is where the places on disk are made."""
    results = Results(machine=machine.look(), quick=quick)
    with places(disk) as found:
        results.places = {place.name: place.filesystem for place in found}
        # First, while there is nothing but this module in memory: the workers are forked.
        if "contended" in parts:
            results.runs = _contended(found, size, processes)
        if "uncontended" in parts:
            for place in found:
                results.alone += uncontended.measure(
                    place, sittings=size.alone_sittings, rounds=size.alone_rounds, say=_say
                )
        if "handoffs" in parts:
            for place in found:
                results.rates += handoffs.rates(place, rounds=size.handoff_rounds, say=_say)
            for place in found[1:]:
                results.depths += handoffs.depths(
                    place, size.handoff_depths, calls=size.handoff_calls, say=_say
                )
    if "handoffs" in parts:
        rates, depths = handoffs.far(size.handoff_depths, calls=size.handoff_calls, say=_say)
        results.rates += rates
        results.depths += depths
    if "coldstart" in parts:
        with tempfile.TemporaryDirectory(prefix="tapstore-bench-", dir=disk) as folder:
            results.starts = coldstart.measure(Path(folder), rounds=size.start_rounds, say=_say)
    if "remote" in parts:
        results.far = remote.measure(rounds=size.remote_rounds, round_trips=round_trips, say=_say)
    return results


def _contended(found: Sequence[Place], size: Size, processes: Sequence[int]) -> list[contended.Run]:
    runs = []
    with contended.workers(max(processes)) as pipes:
        for number in range(size.contended_rounds):
            for place in found:
                for count in processes:
                    _say(
                        f"{place.name}: {count} processes, round {number + 1} of "
                        f"{size.contended_rounds}"
                    )
                    runs += [
                        contended.run(
                            pipes[:count], way, place=place, seconds=size.contended_seconds
                        )
                        for way in SHARED
                    ]
    return runs


def write(results: Results, out: Path) -> None:
    """Write `results.json`, the plots and `report.md`."""
    # Late: it takes a second to import, and the workers need not have it.
    from benchmarks import plots

    (out / "results.json").write_bytes(msgspec.json.encode(results))
    names = plots.draw(results, out)
    (out / "report.md").write_text(report.render(results, plots=names))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less than a minute, larger spread")
    parser.add_argument("--only", choices=PARTS, help="measure one part")
    folder = Path(__file__).parent / "results" / datetime.now().strftime("%Y%m%d-%H%M%S")
    parser.add_argument(
        "--out", type=Path, default=folder, help="folder to write into; on the disk to measure"
    )
    return parser


if __name__ == "__main__":
    main()
