"""The lock service passes the conformance suite on Redis and on Valkey, by all ways there."""

from __future__ import annotations

import pytest
from redis_programs import RedisServer

from tapstore.abc import Clock, LockService
from tapstore.testing.locks import LockPlace, LockServiceTests
from tapstore_redis import RedisLockService
from tapstore_redis.opening import read_address
from tapstore_redis.records import Keys

SCOPE = "conformance"


class RedisPlace(LockPlace):
    def __init__(self, server: RedisServer, url: str) -> None:
        self.server = server
        self.url = url

    def open(self, clock: Clock) -> LockService:
        return RedisLockService(read_address(self.url, {}), SCOPE, clock=clock)

    def spoil(self, name: str) -> None:
        keys = Keys(SCOPE)
        with self.server.client() as client:
            client.sadd(keys.held, name)
            client.set(keys.record(name), "not a record")


class RedisLocks(LockServiceTests):
    manual_clock = False
    ttl = 0.4
    slack = 0.2


class TestRedisLocks(RedisLocks):
    @pytest.fixture
    def place(self, server: RedisServer) -> LockPlace:
        return RedisPlace(server, server.url)


class TestRedisLocksOverASocket(RedisLocks):
    @pytest.fixture
    def place(self, server: RedisServer) -> LockPlace:
        return RedisPlace(server, f"unix://{server.socket}")
