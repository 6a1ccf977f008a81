"""Fixtures: a server of each kind, and services on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from redis_programs import KINDS, RedisServer, program, running

from tapstore.clock import SYSTEM_CLOCK
from tapstore_redis import RedisLockService
from tapstore_redis.opening import read_address
from tests.servers.process import ServerMissingError

Opener = Callable[..., RedisLockService]


@pytest.fixture(scope="session", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    try:
        program(request.param)
    except ServerMissingError as missing:
        pytest.skip(str(missing))
    return request.param


@pytest.fixture(scope="session")
def shared_server(kind: str) -> Iterator[RedisServer]:
    """For tests that leave it as it is."""
    with running(kind) as server:
        yield server


@pytest.fixture
def server(shared_server: RedisServer) -> RedisServer:
    """Empty."""
    with shared_server.client() as client:
        client.flushall()
        client.config_resetstat()
    return shared_server


@pytest.fixture
def own_server(kind: str) -> Iterator[RedisServer]:
    """For tests that stop or change it."""
    with running(kind) as server:
        yield server


@pytest.fixture
def durable_server(kind: str) -> Iterator[RedisServer]:
    """Keeps its data when it is restarted."""
    with running(kind, durable=True) as server:
        yield server


@pytest.fixture
def opened() -> Iterator[Opener]:
    """Opens services of one session, and closes them."""
    services: list[RedisLockService] = []

    def open_one(url: str, scope: str = "s1") -> RedisLockService:
        services.append(RedisLockService(read_address(url, {}), scope, clock=SYSTEM_CLOCK))
        return services[-1]

    yield open_one
    for service in services:
        service.close()
