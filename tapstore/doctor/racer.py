"""A team of threads in one process of a race: `python -m tapstore.doctor.racer`.

The first line on standard input says which place to open, each further one what to race for; each
is answered by one line.  Ctrl-C is for the process that started this one, which ends it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from tapstore import registry
from tapstore.abc import Clock, Store
from tapstore.clock import SYSTEM_CLOCK
from tapstore.doctor import contest
from tapstore.doctor.contest import Result
from tapstore.errors import TapstoreError

_START_SECONDS = 30


class Team:
    """Threads that begin each race at the same moment."""

    def __init__(self, store: Store, threads: int, name: str, clock: Clock) -> None:
        self._store = store
        self._names = [f"{name}t{number}" for number in range(threads)]
        self._clock = clock
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="doctor")

    def __enter__(self) -> Team:
        return self

    def __exit__(self, *exc: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def run(self, order: Mapping[str, Any]) -> list[Result]:
        # Where no further thread can be started, those that were wait for it.
        start = threading.Barrier(len(self._names), timeout=_START_SECONDS)

        def contend(name: str) -> Result:
            start.wait()
            if "create" in order:
                return contest.create(self._store, order["create"], name)
            until = self._clock.monotonic() + order["seconds"]
            return contest.add(self._store, order["add"], name, order["times"], until, self._clock)

        return list(self._pool.map(contend, self._names))


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    setup = json.loads(sys.stdin.readline())
    store = registry.open_store(setup["url"], storage_options=json.loads(setup["options"]))
    with store, Team(store, setup["threads"], setup["name"], SYSTEM_CLOCK) as team:
        _answer([])
        for line in sys.stdin:
            _answer(team.run(json.loads(line)))


def _answer(results: list[Result]) -> None:
    sys.stdout.write(msgspec.json.encode(results).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        main()
    except TapstoreError as exc:
        os._exit(exc.exit_code)
