"""An agent that can be killed: waits for a lease, says "ready", and holds it.

python lease_holder.py URL TTL
"""

from __future__ import annotations

import sys
import threading

from tapstore.types import Owner
from tapstore_redis import RedisLockService
from tapstore_redis.opening import read_address


def main(url: str, ttl: float) -> None:
    service = RedisLockService(read_address(url, {}), "s1")
    lease = service.acquire("gpu", Owner(agent="holder", instance="h"), ttl=ttl, wait=60)
    try:
        print("ready", flush=True)
        threading.Event().wait(60)
    finally:
        service.release(lease)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
