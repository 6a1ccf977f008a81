"""Who asks for leases in these tests, and how tests wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import redis

from tapstore.types import Owner

ANNA = Owner(agent="anna", instance="a1", host="h1", pid=11)
BERT = Owner(agent="bert", instance="b1", host="h2", pid=22)


def until(ready: Callable[[], object], *, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.005)


def queue_length(client: redis.Redis, name: str, scope: str = "s1") -> int:
    return client.zcard(f"tapstore:{{{scope}}}:queue:{name}")


def in_background(call: Callable[[], object]) -> Future:
    pool = ThreadPoolExecutor(1)
    future = pool.submit(call)
    pool.shutdown(wait=False)
    return future
