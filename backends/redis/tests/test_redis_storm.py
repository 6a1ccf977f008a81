"""Contenders are killed and stopped, the server loses its data or keeps them: numbers hold."""

from __future__ import annotations

import json
import os
import random
import signal
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import pytest
from redis_programs import RedisServer

STORM = Path(__file__).with_name("storm.py")
TTL_SECONDS = 1.0


class Witness(socketserver.ThreadingTCPServer):
    """Takes writes in the order of their numbers, and remembers everything."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.mutex = threading.Lock()
        self.highest = 0
        self.holder = 0
        self.grants: list[dict] = []
        self.ends: dict[int, dict] = {}
        self.accepted: list[tuple[float, int]] = []
        self.refused = 0
        self.starved = 0
        self.errors: list[str] = []

    def hear(self, said: dict) -> str:
        with self.mutex:
            if said["kind"] == "grant":
                self.grants.append(said)
                self.holder = said["pid"]
            elif said["kind"] == "end":
                self.ends[said["number"]] = said
            elif said["kind"] == "starved":
                self.starved += 1
            elif said["kind"] == "error":
                self.errors.append(said["error"])
            elif said["number"] < self.highest:
                self.refused += 1
                return "refused"
            else:
                self.highest = said["number"]
                self.accepted.append((time.monotonic(), said["number"]))
        return "ok"


class _Connection(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        with suppress(OSError):  # killed
            for line in self.rfile:
                self.wfile.write(self.server.hear(json.loads(line)).encode() + b"\n")


@contextmanager
def witness() -> Iterator[Witness]:
    with Witness() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def disturb(seen: Witness, rng: random.Random, stopped: list[tuple[float, int]]) -> None:
    """Kill or stop whoever holds the lease, and let go on who was stopped for long enough."""
    now = time.monotonic()
    for due in [each for each in stopped if each[0] <= now]:
        stopped.remove(due)
        with suppress(ProcessLookupError):
            os.kill(due[1], signal.SIGCONT)
    with seen.mutex:
        victim, seen.holder = seen.holder, 0
    if victim and victim not in {pid for _, pid in stopped}:
        with suppress(ProcessLookupError):
            if rng.random() < 0.4:
                os.kill(victim, signal.SIGKILL)
            else:
                os.kill(victim, signal.SIGSTOP)
                stopped.append((now + rng.uniform(0.5, 2.5) * TTL_SECONDS, victim))


def storm(server: RedisServer, *, contenders: int, seconds: float, restarts: int) -> Witness:
    rng = random.Random(contenders)
    with witness() as seen:
        process = subprocess.Popen(
            [
                sys.executable, STORM, server.url, str(seen.server_address[1]), str(seconds),
                str(contenders), str(TTL_SECONDS),
            ],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        began = time.monotonic()
        plan = [began + seconds * (n + 1) / (restarts + 1) for n in range(restarts)]
        stopped: list[tuple[float, int]] = []
        while time.monotonic() < began + seconds or stopped:
            if plan and time.monotonic() >= plan[0]:
                plan.pop(0)
                server.restart(keep_data=server.durable)
            disturb(seen, rng, stopped) if time.monotonic() < began + seconds else _wake(stopped)
            with suppress(subprocess.TimeoutExpired):
                process.wait(rng.uniform(0.1, 0.4))
        output, errors = process.communicate(timeout=90)
        assert process.returncode == 0, output + errors
        return seen


def _wake(stopped: list[tuple[float, int]]) -> None:
    while stopped:
        with suppress(ProcessLookupError):
            os.kill(stopped.pop()[1], signal.SIGCONT)


def check_numbers(seen: Witness) -> None:
    """Who was granted the lease later has the higher number, and nobody shares one."""
    numbers = [grant["number"] for grant in seen.grants]
    assert len(numbers) == len(set(numbers))
    highest_before = 0
    by_end = sorted(seen.grants, key=lambda grant: grant["got"])
    for grant in sorted(seen.grants, key=lambda grant: grant["asked"]):
        while by_end and by_end[0]["got"] < grant["asked"]:
            highest_before = max(highest_before, by_end.pop(0)["number"])
        assert grant["number"] > highest_before


def check_progress(seen: Witness, *, longest_pause: float) -> None:
    for (before, _), (after, _) in pairwise(seen.accepted):
        assert after - before < longest_pause


def check_exclusion(seen: Witness) -> None:
    """While the server keeps its data, no two rely on the lease at once."""
    held = sorted(seen.ends.values(), key=lambda end: end["got"])
    for before, after in pairwise(held):
        assert before["until"] <= after["got"]


def check(seen: Witness, server: RedisServer) -> None:
    assert len(seen.grants) > 20
    check_numbers(seen)
    # A ttl, a place in the queue of somebody who died, and a machine that has other work.
    check_progress(seen, longest_pause=12 * TTL_SECONDS)
    if server.durable:
        check_exclusion(seen)
        # A server that loses its data loses the queue, so that anybody may be the last again.
        assert not seen.starved


def check_storms(
    server: RedisServer, *, contenders: int, seconds: float, restarts: int, attempts: int = 4
) -> None:
    """Storms, until there was one in which a former holder came to try."""
    for _ in range(attempts):
        seen = storm(server, contenders=contenders, seconds=seconds, restarts=restarts)
        check(seen, server)
        if seen.refused:
            return
    pytest.fail("no former holder ever tried: the storms were none")


def test_numbers_and_exclusion_hold_while_the_server_keeps_its_data(durable_server):
    check_storms(durable_server, contenders=32, seconds=12, restarts=2)


def test_numbers_hold_though_the_server_loses_its_data(own_server):
    check_storms(own_server, contenders=32, seconds=12, restarts=2)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("round_", range(5))
def test_numbers_hold_in_a_long_storm(durable_server, own_server, round_):
    for server in (durable_server, own_server):
        check_storms(server, contenders=64, seconds=90 + round_, restarts=12)
