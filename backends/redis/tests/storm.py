"""Contenders for one lease, in processes of their own, which anybody may kill or stop.

    python storm.py URL WITNESS_PORT SECONDS CONTENDERS TTL

Each takes the lease, tells the witness, writes to it, and goes on, careless of whether it still
holds the lease: what protects the witness is the number of the grant.  A contender that is killed
is replaced.  Ends with status 1 if one of them does not come to its end.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable

from tapstore.clock import SYSTEM_CLOCK
from tapstore.errors import LeaseLostError, LeaseUnavailableError, OutcomeUnknownError, StoreError
from tapstore.types import Lease, Owner
from tapstore_redis import RedisLockService
from tapstore_redis.opening import read_address

WAIT_SECONDS = 60.0
PATIENCE_SECONDS = 45.0


class Witness:
    """What the contenders have in common, and what a lease is for."""

    def __init__(self, port: int) -> None:
        self._file = socket.create_connection(("127.0.0.1", port)).makefile("rw")

    def tell(self, **what: object) -> str:
        self._file.write(json.dumps({"pid": os.getpid(), **what}) + "\n")
        self._file.flush()
        return self._file.readline().strip()


def contend(url: str, port: int, end: float, ttl: float) -> None:
    rng = random.Random(os.getpid())
    witness = Witness(port)
    service = RedisLockService(read_address(url, {}), "storm")
    owner = Owner(agent=f"a{os.getpid()}", instance=str(os.getpid()), pid=os.getpid())
    while time.time() < end:
        asked = SYSTEM_CLOCK.monotonic()
        try:
            lease = service.acquire("gpu", owner, ttl=ttl, wait=WAIT_SECONDS)
        except (StoreError, OutcomeUnknownError) as exc:
            witness.tell(kind="error", error=f"{type(exc).__name__}: {exc}")
            time.sleep(rng.uniform(0, 0.1))
            continue
        except LeaseUnavailableError:
            witness.tell(kind="starved")
            continue
        got = SYSTEM_CLOCK.monotonic()
        witness.tell(kind="grant", number=lease.generation, asked=asked, got=got)
        lease = work(service, witness, lease, rng)
        witness.tell(
            kind="end",
            number=lease.generation,
            got=got,
            until=min(lease.expires, SYSTEM_CLOCK.monotonic()),
        )
        ignoring(lambda: service.release(lease))  # noqa: B023 - called at once
    service.close()


def work(service: RedisLockService, witness: Witness, lease: Lease, rng: random.Random) -> Lease:
    for _ in range(rng.randint(1, 4)):
        witness.tell(kind="write", number=lease.generation)
        time.sleep(rng.uniform(0, 0.02))
    if rng.random() < 0.2:
        renewed: list[Lease] = []
        ignoring(lambda: renewed.append(service.renew(lease)))
        return renewed[0] if renewed else lease
    return lease


def ignoring(call: Callable[[], object]) -> None:
    """What is lost or unknown is no reason for the careless to stop."""
    try:
        call()
    except (LeaseLostError, StoreError, OutcomeUnknownError):
        pass


def start(url: str, port: int, end: float, ttl: float) -> int:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            contend(url, port, end, ttl)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return pid


def main(url: str, port: int, seconds: float, contenders: int, ttl: float) -> int:
    end = time.time() + seconds
    alive = {start(url, port, end, ttl) for _ in range(contenders)}
    failed = 0
    while alive and time.time() < end + PATIENCE_SECONDS:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            time.sleep(0.02)
            continue
        alive.discard(pid)
        if os.WIFSIGNALED(status) and time.time() < end:
            alive.add(start(url, port, end, ttl))
        elif os.WIFEXITED(status) and os.WEXITSTATUS(status):
            failed += 1
    for pid in alive:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    print(f"{len(alive)} hung, {failed} failed")
    return 1 if alive or failed else 0


if __name__ == "__main__":
    address, witness_port, duration, number, life = sys.argv[1:]
    sys.exit(main(address, int(witness_port), float(duration), int(number), float(life)))
