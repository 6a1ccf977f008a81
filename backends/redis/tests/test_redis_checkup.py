"""What a look at a Redis is worth saying."""

from __future__ import annotations

from contextlib import closing

import pytest

from tapstore.clock import SYSTEM_CLOCK
from tapstore.stores.memory import MemoryStore
from tapstore.types import Owner
from tapstore_redis import checkup, open_service
from tapstore_redis.address import parse


@pytest.mark.parametrize(
    ("info", "severity"),
    [
        ({"redis_version": "7.0.15", "role": "master"}, "ok"),
        ({"redis_version": "7.2.4", "valkey_version": "9.1.2", "role": "master"}, "ok"),
        ({"redis_version": "6.0.16", "role": "master"}, "warning"),
        ({"redis_version": "7.0.15", "role": "master", "connected_slaves": 2}, "note"),
        ({"redis_version": "7.0.15", "role": "slave"}, "fatal"),
    ],
)
def test_the_server_is_judged_by_version_and_role(info, severity):
    assert checkup.server(info).severity == severity


@pytest.mark.parametrize(
    ("policy", "limit", "severity"),
    [
        ("noeviction", 2**27, "ok"),
        ("volatile-lru", 2**27, "ok"),
        ("allkeys-lru", 0, "note"),
        ("allkeys-random", 2**27, "warning"),
    ],
)
def test_only_a_policy_that_may_take_any_key_is_warned_of(policy, limit, severity):
    info = {"maxmemory_policy": policy, "maxmemory": limit}
    assert checkup.eviction(info).severity == severity


@pytest.mark.parametrize(
    ("info", "save", "severity"),
    [
        ({"aof_enabled": 1}, "", "ok"),
        ({"aof_enabled": 0}, "3600 1", "note"),
        ({"aof_enabled": 0}, None, "note"),
        ({"aof_enabled": 0}, "", "warning"),
        ({"aof_enabled": 1, "aof_last_write_status": "err"}, "", "warning"),
    ],
)
def test_what_a_restart_forgets_is_said(info, save, severity):
    assert checkup.persistence(info, save).severity == severity


@pytest.mark.parametrize(
    ("url", "severity"),
    [
        ("redis://127.0.0.1:6379/0", "ok"),
        ("unix:///run/redis.sock", "ok"),
        ("rediss://cache:6379/0", "ok"),
        ("redis://cache:6379/0", "note"),
        ("redis://user:hunter2@cache:6379/0", "note"),
    ],
)
def test_only_what_goes_over_a_network_in_the_clear_is_noted(url, severity):
    found = checkup.access(parse(url))
    assert found.severity == severity
    assert "hunter2" not in str(found)


def test_a_clock_is_judged_by_more_than_the_way_there_takes():
    assert checkup.offset(1.2, 0.3).severity == "ok"
    assert checkup.offset(1.4, 0.3).severity == "note"
    assert "5.0 s behind" in checkup.offset(-5.0, 0.0).seen


def test_a_checkup_of_a_server_names_everything_and_forgets_what_was_tried(redis_like):
    service = open_service(
        MemoryStore(), "locks", url=redis_like.url, scope="checkup", clock=SYSTEM_CLOCK
    )
    with closing(service), redis_like.client() as client:
        service.release(service.acquire("tried", Owner("a", "1"), ttl=5))
        service.release(service.acquire("kept", Owner("a", "1"), ttl=5))
        found = {finding.probe: finding for finding in service.checkup(("tried",))}
        assert set(found) == {
            "redis-server", "redis-eviction", "redis-persistence", "redis-latency", "redis-clock",
            "redis-access",
        }  # fmt: skip
        assert found["redis-latency"].values["samples"] == 50
        deadline = iter(range(500))
        while client.exists("tapstore:{checkup}:lock:tried"):
            assert next(deadline) < 499
        assert client.exists("tapstore:{checkup}:lock:kept")
