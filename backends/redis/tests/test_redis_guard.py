"""A lock that a session holds is kept alive in the background, and is known to be lost in time."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from lossy_proxy import lossy_proxy
from people import ANNA, until

import tapstore
from tapstore.clock import SYSTEM_CLOCK
from tapstore.errors import LeaseLostError, LeaseUnavailableError
from tapstore.locks.guard import Guard

TTL = 2.0


def boottime() -> float:
    return SYSTEM_CLOCK.monotonic()


def test_a_lock_outlives_a_restart_of_the_server(durable_server, opened):
    service = opened(durable_server.url)
    with Guard(service, service.acquire("gpu", ANNA, ttl=TTL)) as guard:
        first = guard.lease.expires
        durable_server.restart(keep_data=True)
        until(lambda: guard.lease.expires > first + TTL)
        guard.check()


def test_a_lock_outlives_cut_connections(server, opened):
    with lossy_proxy(server.port) as proxy:
        service = opened(proxy.url)
        with Guard(service, service.acquire("gpu", ANNA, ttl=TTL)) as guard:
            for _ in range(3):
                before = guard.lease.expires
                proxy.cut()
                until(lambda before=before: guard.lease.expires > before)
            guard.check()


@pytest.mark.parametrize("end", ["kill", "pause"])
def test_a_lock_is_lost_before_its_ttl_ends_when_the_server_is_gone(own_server, opened, end):
    service = opened(own_server.url)
    lost, told = threading.Event(), []

    def note():
        told.append(boottime())
        lost.set()

    guard = Guard(service, service.acquire("gpu", ANNA, ttl=TTL), on_lost=note)
    getattr(own_server, end)()
    assert lost.wait(10)
    assert told[0] < guard.lease.expires
    with pytest.raises(LeaseLostError):
        guard.check()
    if end == "pause":
        own_server.resume()


def test_a_lock_that_the_server_forgot_is_lost_with_the_next_renewal(own_server, opened):
    service = opened(own_server.url)
    guard = Guard(service, service.acquire("gpu", ANNA, ttl=TTL))
    own_server.restart(keep_data=False)
    assert guard.lost.wait(TTL)
    with pytest.raises(LeaseLostError, match="lost its data"):
        guard.check()
    guard.release()


def test_a_session_locks_by_redis_and_remembers_no_password(own_server, tmp_path, monkeypatch):
    with own_server.client() as client:
        client.acl_setuser("default", enabled=True, reset_passwords=True, passwords=["+horse"])
    monkeypatch.setenv("TAPSTORE_REDIS_PASSWORD", "horse")
    place = str(tmp_path / "s")
    session = tapstore.create(place, roles=["coder"], locks=own_server.url)
    other = tapstore.open(place)
    with session.lock("gpu", ttl=30) as guard:
        assert guard.generation > 0
        with pytest.raises(LeaseUnavailableError, match="gpu"):
            other.lock("gpu", ttl=30)
    with other.lock("gpu", ttl=30):
        pass
    session.close()
    other.close()
    for path in Path(place).rglob("*"):
        assert not path.is_file() or b"horse" not in path.read_bytes()


def test_two_sessions_do_not_share_a_lock(own_server, tmp_path):
    began = time.monotonic()
    sessions = [
        tapstore.create(str(tmp_path / name), roles=["coder"], locks=own_server.url)
        for name in ("one", "two")
    ]
    with sessions[0].lock("gpu", ttl=30), sessions[1].lock("gpu", ttl=30):
        assert time.monotonic() - began < 30
    for session in sessions:
        session.close()
