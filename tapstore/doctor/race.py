"""Several processes with several threads each race for creations and updates.

Whether conditions hold when two writers come at the same moment is what no single request shows.
Bounded in rounds and in time.  A race can refute, not prove: a window of microseconds may stay
hidden, and processes on one machine may meet one cache that another machine does not.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from tapstore.abc import Clock
from tapstore.doctor import contest, racer
from tapstore.doctor.contest import Result
from tapstore.doctor.subject import Subject
from tapstore.errors import TapstoreError
from tapstore.types import OVERWRITE, Finding

RACE = "race"

PROCESSES = 2
THREADS = 4
ROUNDS = 12
KEYS = 3
"""Created one after the other in each round: contenders that begin late meet in the next one."""

ADDITIONS = 10
"""By each thread."""

SECONDS = 60.0

Order = Mapping[str, Any]
Contenders = Callable[[Order], list[Result]]


def race(subject: Subject, place: object, storage_options: Mapping[str, Any] | None) -> Finding:
    """Race on the place, which is opened anew by each contender where that is possible."""
    deadline = subject.clock.monotonic() + SECONDS
    url = place if isinstance(place, (str, os.PathLike)) else None
    options = _as_json(storage_options)
    alone = url is None or options is None or str(url).startswith("memory:")
    try:
        if alone:
            with racer.Team(subject.store, THREADS * PROCESSES, "p0", subject.clock) as team:
                return _run(subject, team.run, deadline, "threads")
        with _processes(os.fspath(url), options, subject.clock, deadline) as contenders:  # type: ignore[arg-type]
            return _run(subject, contenders, deadline, f"threads in {PROCESSES} processes")
    except TimeoutError:
        return Finding(RACE, "warning", f"it did not end within {SECONDS:g} s", "nothing was shown",
                       "repeat it when the place is less busy")  # fmt: skip


def _run(subject: Subject, contenders: Contenders, deadline: float, how: str) -> Finding:
    store, work = subject.store, subject.work
    wrong: list[str] = []
    rounds = 0
    while rounds < ROUNDS and subject.clock.monotonic() < deadline - SECONDS / 2 and not wrong:
        keys = [work.key(f"race/{rounds}-{number}") for number in range(KEYS)]
        results = contenders({"create": keys})
        wrong += contest.judge(results, contest.contents(store, keys), None)
        rounds += 1
    added = doubtful = 0
    if store.capabilities.update and not wrong:
        key = work.key("race/counter")
        store.put(key, contest.counter(0), OVERWRITE)
        seconds = max(1.0, deadline - subject.clock.monotonic() - 10)
        results = contenders({"add": key, "times": ADDITIONS, "seconds": seconds})
        added = sum(result.added for result in results)
        doubtful = sum(result.doubtful for result in results)
        wrong += contest.judge(results, {}, contest.count_at(store, key))
    values = {"contenders": PROCESSES * THREADS, "creations": rounds * KEYS, "updates": added,
              "unknown": doubtful}  # fmt: skip
    who = f"{PROCESSES * THREADS} {how}"
    if wrong:
        return Finding(
            RACE,
            "fatal",
            f"{who}: {wrong[0]}",
            "it looks and writes in two steps: work of agents that come together would be lost",
            "take a place that compares and writes in one step, or a newer version of this server",
            values,
        )
    updates = f", {added} updates counted" if added else ""
    seen = f"{rounds * KEYS} creations won once{updates} ({who})"
    if doubtful > added / 10:
        return Finding(
            RACE,
            "note",
            f"{seen}; of {doubtful} more it did not say what became of them",
            "the server fails when many write one object; sessions find out by reading back",
            "fewer agents in one session, or locks=redis://…",
            values,
        )
    return Finding(RACE, "ok", seen, values=values)


def _as_json(options: Mapping[str, Any] | None) -> str | None:
    try:
        return json.dumps(dict(options or {}))
    except TypeError:
        return None


@contextmanager
def _processes(url: str, options: str, clock: Clock, deadline: float) -> Iterator[Contenders]:
    running: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(PROCESSES):
            running.append(_start())
            # Through a pipe: arguments and the environment are seen by others.
            setup = {"url": url, "options": options, "name": f"p{number}", "threads": THREADS}
            _tell(running[-1], setup)
        for process in running:
            _hear(process, deadline - clock.monotonic())

        def contend(order: Order) -> list[Result]:
            for process in running:
                _tell(process, order)
            results: list[Result] = []
            for process in running:
                line = _hear(process, deadline - clock.monotonic())
                results += msgspec.json.decode(line, type=list[Result])
            return results

        yield contend
    finally:
        _end(running)


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tapstore.doctor.racer"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def _tell(process: subprocess.Popen[bytes], value: Order) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(value).encode() + b"\n")
        process.stdin.flush()
    except BrokenPipeError:
        pass  # `_hear` finds that it has ended


def _hear(process: subprocess.Popen[bytes], seconds: float) -> bytes:
    """One line; raises TimeoutError, and `TapstoreError` if the process ends."""
    assert process.stdout is not None
    line = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while not line.endswith(b"\n"):
            if not selector.select(max(seconds, 0.1)):
                raise TimeoutError
            some = os.read(process.stdout.fileno(), 1 << 16)
            if not some:
                raise TapstoreError("a contender ended before the race did")
            line += some
    return line


def _end(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.kill()
    for process in processes:
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    pass
        process.wait()
