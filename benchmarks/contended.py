"""Several processes commit to one document for some seconds, as fast as they can.

The workers live as long as the benchmark and are told what to do over pipes, so that starting
them is not what gets measured.  Each counts its own commits by the ids that were acknowledged;
who has been waiting when the time is over still gets its commit, and the wait counts.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks.cases import SHARED
from benchmarks.places import Place
from benchmarks.stats import jain, quantile
from benchmarks.ways import WORKERS, SharedWay

_START_SECONDS = 0.05


class Task(NamedTuple):
    """One worker's part of a run."""

    way: str
    fsync: bool
    directory: Path
    worker: str
    seconds: float


class Work(NamedTuple):
    """What one worker did."""

    worker: str
    attempts: int | None
    waits: list[float]
    """Seconds for each commit, in order."""

    in_time: int
    """How many ended before the time was over."""

    cpu_seconds: float


class Run(msgspec.Struct, kw_only=True):
    """One way, one place, so many processes."""

    place: str
    way: str
    processes: int
    seconds: float
    window_seconds: float
    """Of one round; `seconds` is of all that were pooled."""

    commits: list[int]
    """In time, by worker."""

    attempts: int | None
    waits: list[float]
    """Seconds for each commit of anybody, sorted."""

    cpu_seconds: float
    """Of all workers together."""

    lost: int

    @property
    def rate(self) -> float:
        """Commits per second."""
        return sum(self.commits) / self.seconds

    @property
    def attempts_per_commit(self) -> float | None:
        return None if self.attempts is None else self.attempts / len(self.waits)

    @property
    def cpu_per_commit(self) -> float:
        return self.cpu_seconds / len(self.waits)

    @property
    def fairness(self) -> float:
        return jain(self.commits)

    def wait(self, share: float) -> float:
        """What that share of all commits did not take longer than, in seconds."""
        return quantile(self.waits, share)

    @property
    def longest(self) -> float:
        return self.waits[-1]


def pooled(runs: Sequence[Run]) -> list[Run]:
    """One run for each place, way and number of processes, as if it had been a longer one."""
    groups: dict[tuple[str, int, str], list[Run]] = {}
    for one in runs:
        groups.setdefault((one.place, one.processes, one.way), []).append(one)
    return [_pool(group) for group in groups.values()]


def _pool(runs: list[Run]) -> Run:
    attempts = [one.attempts for one in runs if one.attempts is not None]
    return Run(
        place=runs[0].place,
        way=runs[0].way,
        processes=runs[0].processes,
        seconds=sum(one.seconds for one in runs),
        window_seconds=min(one.window_seconds for one in runs),
        commits=[sum(each) for each in zip(*(one.commits for one in runs), strict=True)],
        attempts=sum(attempts) if attempts else None,
        waits=sorted(wait for one in runs for wait in one.waits),
        cpu_seconds=sum(one.cpu_seconds for one in runs),
        lost=sum(one.lost for one in runs),
    )


@contextmanager
def workers(count: int) -> Iterator[list[Connection]]:
    """Processes that do what they are sent, and end with the block."""
    # Forked, and warm: imports and compiled patterns are not what gets measured, and with 32 of
    # them on a small machine they would be most of the first second.
    with tempfile.TemporaryDirectory() as folder:
        for name, make in SHARED.items():
            way = make(fsync=False)
            directory = Path(folder, name)
            directory.mkdir()
            way.create(directory)
            way.open(directory)
            way.commit(WORKERS[0], "warm")
    context = multiprocessing.get_context("fork")
    pipes, processes = [], []
    for _ in range(count):
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    try:
        yield pipes
        for pipe in pipes:
            pipe.send(None)
        for process in processes:
            process.join()
    finally:
        for process in processes:
            process.kill()


def run(pipes: list[Connection], way: str, *, place: Place, seconds: float) -> Run:
    """Let one process for each pipe commit in the same way for so many seconds."""
    directory = place.new_directory()
    judge: SharedWay = SHARED[way](fsync=place.fsync)
    judge.create(directory)
    for name, pipe in zip(WORKERS, pipes, strict=False):
        pipe.send(Task(way, place.fsync, directory, name, seconds))
    for pipe in pipes:
        pipe.recv()
    start = time.monotonic() + _START_SECONDS
    for pipe in pipes:
        pipe.send(start)
    done: list[Work] = [pipe.recv() for pipe in pipes]
    judge.open(directory)
    lost = judge.missing({w.worker: _ids(w.worker, len(w.waits)) for w in done})
    attempts = [w.attempts for w in done if w.attempts is not None]
    return Run(
        place=place.name,
        way=way,
        processes=len(pipes),
        seconds=seconds,
        window_seconds=seconds,
        commits=[w.in_time for w in done],
        attempts=sum(attempts) if attempts else None,
        waits=sorted(wait for w in done for wait in w.waits),
        cpu_seconds=sum(w.cpu_seconds for w in done),
        lost=lost,
    )


def _ids(worker: str, count: int) -> list[str]:
    return [f"{worker}-{number:06d}" for number in range(count)]


def _serve(pipe: Connection) -> None:
    while (task := pipe.recv()) is not None:
        way = SHARED[task.way](fsync=task.fsync)
        way.open(task.directory)
        pipe.send("ready")
        start = pipe.recv()
        time.sleep(max(0.0, start - time.monotonic()))
        pipe.send(_work(way, task, time.monotonic, start + task.seconds))


def _work(way: SharedWay, task: Task, clock: Callable[[], float], end: float) -> Work:
    waits: list[float] = []
    in_time = 0
    cpu = time.process_time()
    # Once at least: on a busy machine a short window may be over before its start.
    while (began := clock()) < end or not waits:
        way.commit(task.worker, f"{task.worker}-{len(waits):06d}")
        ended = clock()
        waits.append(ended - began)
        in_time += ended < end
    return Work(task.worker, way.attempts, waits, in_time, time.process_time() - cpu)
