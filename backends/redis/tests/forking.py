"""Uses a lease service on both sides of a fork.

python forking.py URL
"""

from __future__ import annotations

import os
import sys

from tapstore.errors import LeaseUnavailableError
from tapstore.types import Owner
from tapstore_redis import RedisLockService
from tapstore_redis.opening import read_address


def refused(service: RedisLockService, owner: Owner) -> bool:
    try:
        service.acquire("gpu", owner, ttl=60, wait=0.1)
    except LeaseUnavailableError:
        return True
    return False


def main(url: str) -> None:
    service = RedisLockService(read_address(url, {}), "s1")
    parent, child = (Owner(agent=name, instance=name) for name in ("parent", "child"))
    lease = service.acquire("gpu", parent, ttl=60)
    assert refused(service, parent)  # leaves connections behind, of both kinds
    pid = os.fork()
    if pid == 0:
        assert refused(service, child)
        service.release(service.acquire("tpu", child, ttl=60))
        service.close()
        return
    # At the same time: with shared sockets, answers would go astray.
    for number in range(50):
        lease = service.renew(lease)
        assert service.acquire(f"other-{number}", parent, ttl=60).name == f"other-{number}"
    _, status = os.waitpid(pid, 0)
    assert status == 0
    assert service.renew(lease).generation == lease.generation
    assert refused(service, parent)


if __name__ == "__main__":
    main(sys.argv[1])
