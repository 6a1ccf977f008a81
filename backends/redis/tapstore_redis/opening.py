"""Opens what a URL names, with user and password from the environment.

Not promised: a connection.  That is made by the first call.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping

from tapstore.abc import Clock, Store
from tapstore.clock import SYSTEM_CLOCK
from tapstore_redis import address
from tapstore_redis.address import Address, Credentials
from tapstore_redis.bell import Bell
from tapstore_redis.service import RedisLockService


def open_service(
    store: Store, prefix: str, *, url: str, clock: Clock, scope: str = ""
) -> RedisLockService:
    """The entry points of `tapstore.locks`.

    `scope` names what the leases belong to (a session), uniquely among all who use this Redis.
    Without it, the store's URL and the prefix do, which have to be the same for all then.
    """
    return RedisLockService(read_address(url), scope or _scope(store, prefix), clock=clock)


def open_bell(url: str, scope: str, *, clock: Clock = SYSTEM_CLOCK) -> Bell:
    """The bell of the session that `scope` names."""
    return Bell(read_address(url), scope, clock=clock)


def read_address(url: str, environment: Mapping[str, str] = os.environ) -> Address:
    """The address with user and password; those in the URL come first.

    TAPSTORE_REDIS_USERNAME and TAPSTORE_REDIS_PASSWORD; for the sentinels themselves
    TAPSTORE_REDIS_SENTINEL_USERNAME and TAPSTORE_REDIS_SENTINEL_PASSWORD.
    """

    def login(of: str) -> Credentials:
        name = f"TAPSTORE_REDIS_{of}"
        return Credentials(
            environment.get(f"{name}USERNAME", ""), environment.get(f"{name}PASSWORD", "")
        )

    return address.parse(url, login(""), login("SENTINEL_"))


def _scope(store: Store, prefix: str) -> str:
    return hashlib.sha256(f"{store.url}\n{prefix}".encode()).hexdigest()[:24]
