"""Redis, from the system's packages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.servers import redis_like
from tests.servers.process import find_program
from tests.servers.redis_like import RedisServer


@contextmanager
def server(
    *, tls: bool = False, acl: bool = False, settings: Mapping[str, str] | None = None
) -> Iterator[RedisServer]:
    """Run Redis; with `acl` it knows one user, who has a password, and nobody else."""
    program = find_program("redis-server", "make servers")
    with redis_like.server("redis", program, tls=tls, acl=acl, settings=settings) as running:
        yield running
