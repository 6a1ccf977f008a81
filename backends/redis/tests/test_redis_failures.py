"""Whatever fails: nothing is granted, the error says what, where and what next, no secret shows."""

from __future__ import annotations

import errno
import time
import traceback
from collections.abc import Callable

import pytest
from people import ANNA, BERT
from redis_programs import RedisServer, running

from tapstore.errors import (
    InvalidKeyError,
    OutcomeUnknownError,
    StoreError,
    TapstoreError,
)
from tapstore_redis import Bell
from tapstore_redis.opening import read_address
from tests.servers.process import free_ports

HORSE = "correct-horse"
USER = "secret-agent"


def error_of(call: Callable[[], object]) -> TapstoreError:
    with pytest.raises(TapstoreError) as caught:
        call()
    return caught.value


def test_nobody_there_is_an_error_that_says_where_and_what_next(opened):
    (port,) = free_ports(1)
    service = opened(f"redis://127.0.0.1:{port}/0")
    began = time.monotonic()
    error = error_of(lambda: service.acquire("gpu", ANNA, ttl=30))
    assert time.monotonic() - began < 1
    assert isinstance(error, StoreError)
    assert error.errno == errno.ECONNREFUSED
    assert f"redis://127.0.0.1:{port}" in str(error)
    assert "check that it runs" in str(error)


def test_who_waits_for_a_server_that_never_was_there_gives_up_after_some_seconds(opened):
    (port,) = free_ports(1)
    service = opened(f"redis://127.0.0.1:{port}/0")
    began = time.monotonic()
    assert isinstance(error_of(lambda: service.acquire("gpu", ANNA, ttl=30, wait=None)), StoreError)
    assert time.monotonic() - began < 6


def test_a_host_without_address_is_named(opened):
    service = opened("redis://no-such-host.invalid:6379/0")
    error = error_of(lambda: service.acquire("gpu", ANNA, ttl=30))
    assert isinstance(error, StoreError)
    assert "check the name of the host" in str(error)


def test_a_socket_that_is_not_there_is_named(opened, tmp_path):
    service = opened(f"unix://{tmp_path}/none.sock")
    error = error_of(lambda: service.inspect("gpu"))
    assert isinstance(error, StoreError)
    assert error.errno == errno.ENOENT
    assert "none.sock" in str(error)


def test_a_server_that_does_not_answer_grants_nothing_and_keeps_nobody(own_server, opened):
    service = opened(own_server.url + "?socket_timeout=0.5")
    lease = service.acquire("gpu", ANNA, ttl=4)
    own_server.pause()
    try:
        began = time.monotonic()
        for call in (
            lambda: service.acquire("tpu", BERT, ttl=4, wait=1),
            lambda: service.renew(lease),
            lambda: service.release(lease),
            lambda: service.inspect("gpu"),
        ):
            assert isinstance(error_of(call), (OutcomeUnknownError, StoreError))
        assert time.monotonic() - began < 15
    finally:
        own_server.resume()


def test_a_grant_that_arrives_after_its_ttl_is_no_lease(own_server, opened):
    service = opened(own_server.url)
    service.inspect("warm-up")
    own_server.pause()
    try:
        with pytest.raises(OutcomeUnknownError):
            service.acquire("gpu", ANNA, ttl=0.5)
    finally:
        own_server.resume()


def test_a_full_server_still_ends_and_renews_leases(own_server, opened):
    service = opened(own_server.url)
    held = service.acquire("gpu", ANNA, ttl=30)
    with own_server.client() as client:
        client.config_set("maxmemory", 1)
        error = error_of(lambda: service.acquire("tpu", ANNA, ttl=30))
        assert isinstance(error, StoreError)
        assert error.errno == errno.ENOSPC
        assert "maxmemory" in str(error)
        held = service.renew(held)
        service.release(held)
        client.config_set("maxmemory", 0)
    assert service.acquire("gpu", BERT, ttl=30).owner == BERT


def test_a_replica_refuses_and_says_so(kind, opened):
    (port,) = free_ports(1)
    with running(kind, replicaof=f"127.0.0.1 {port}") as replica:
        service = opened(replica.url)
        error = error_of(lambda: service.acquire("gpu", ANNA, ttl=30))
    assert isinstance(error, StoreError)
    assert error.errno == errno.EROFS
    assert "replica" in str(error)


def test_what_would_be_repeated_is_refused_at_once_when_it_can_never_succeed(own_server, opened):
    with own_server.client() as client:
        client.config_set("requirepass", HORSE)
    began = time.monotonic()
    error = error_of(lambda: opened(own_server.url).acquire("gpu", ANNA, ttl=30, wait=None))
    assert time.monotonic() - began < 2
    assert isinstance(error, StoreError)
    assert error.errno == errno.EACCES
    assert "TAPSTORE_REDIS_PASSWORD" in str(error)


# Secrets


def secret_url(server: RedisServer) -> str:
    return f"redis://{USER}:{HORSE}@127.0.0.1:{server.port}/0"


def everything_said(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)) + repr(error)


def test_a_wrong_password_is_not_repeated_to_anybody(server, opened):
    error = error_of(lambda: opened(secret_url(server)).acquire("gpu", ANNA, ttl=30))
    assert isinstance(error, StoreError)
    for word in (HORSE, USER):
        assert word not in everything_said(error)


def test_no_error_shows_a_secret(own_server, opened):
    service = opened(secret_url(own_server))
    with own_server.client() as client:
        client.acl_setuser(USER, enabled=True, passwords=[f"+{HORSE}"], keys=["*"],
                           channels=["*"], commands=["+@all"])  # fmt: skip
    lease = service.acquire("gpu", ANNA, ttl=30)
    errors = [error_of(lambda: service.acquire("gpu", BERT, ttl=30, wait=0.1))]
    with own_server.client() as client:
        client.acl_setuser(USER, commands=["-evalsha", "-eval"])
        errors.append(error_of(lambda: service.renew(lease)))
    own_server.kill()
    errors += [
        error_of(lambda: service.acquire("tpu", BERT, ttl=30)),
        error_of(lambda: service.inspect("gpu")),
        error_of(lambda: list(service.names())),
    ]
    for error in errors:
        assert HORSE not in everything_said(error)
        assert USER not in everything_said(error)


def test_no_value_shows_a_secret(server, opened):
    service = opened(secret_url(server))
    address = read_address(secret_url(server), {})
    bell = Bell(address, "s1")
    for each in (service, service._line, service._line.clients, bell, address, address.login):
        assert HORSE not in repr(each)
        assert HORSE not in str(each)


@pytest.mark.parametrize(
    "url",
    [
        "redis://alice:correct-horse@host:port/0",
        "redis://alice:correct-horse@host/0/1",
        "redis://alice:correct/horse@host/0",
        "redis://host/0?password=correct-horse",
        "redis://host/0?nonsense=correct-horse",
        "redis://[alice:correct-horse@host",
        "redis+sentinel://alice:correct-horse@host",
        "redis+cluster://alice:correct-horse@host/3",
        "redis://alice:correct-horse@a,b/0",
        "unix:correct-horse",
    ],
)
def test_a_malformed_url_is_refused_without_being_shown(url):
    with pytest.raises(InvalidKeyError) as caught:
        read_address(url, {})
    assert "horse" not in everything_said(caught.value)
