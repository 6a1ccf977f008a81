"""Which lock service a session uses, on real servers: who may know the password, and a change."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import tapstore
from tapstore.sessions.lockservice import GENERATION_BITS
from tapstore.testing.servers import valkey as valkey_module
from tapstore.testing.servers.redis_like import RedisServer
from tests.integration.cli_calls import call, ok
from tests.servers import redis as redis_module
from tests.servers.process import ServerMissingError


@pytest.fixture(params=[valkey_module.server, redis_module.server], ids=["valkey", "redis"])
def guarded(request) -> Iterator[RedisServer]:
    """A server that knows one user, with a password."""
    try:
        with request.param(acl=True) as running:
            yield running
    except ServerMissingError as missing:
        pytest.skip(str(missing))


@pytest.fixture
def place(tmp_path) -> str:
    return str(tmp_path / "s")


def everything_in(folder: str) -> bytes:
    files = [path for path in Path(folder).rglob("*") if path.is_file()]
    assert files
    return b"".join(path.read_bytes() for path in files)


# Credentials


def test_the_session_remembers_the_service_but_no_password(guarded, place):
    with tapstore.create(place, roles=["coder"], locks=guarded.url) as session:
        with session.lock("gpu", ttl=30):
            pass
        assert session.locks.name == f"redis://{guarded.user}@127.0.0.1:{guarded.port}/0"
    written = everything_in(place)
    assert f"127.0.0.1:{guarded.port}".encode() in written
    assert guarded.password.encode() not in written


def test_who_opens_it_brings_a_password_of_its_own(guarded, place, monkeypatch):
    tapstore.create(place, locks=guarded.url).close()
    with tapstore.open(place, locks=guarded.url) as session, session.lock("gpu", ttl=30):
        pass
    monkeypatch.setenv("TAPSTORE_REDIS_PASSWORD", guarded.password)
    with tapstore.open(place) as session, session.lock("gpu", ttl=30):
        pass


def test_without_a_password_nothing_is_granted_and_none_is_shown(guarded, place):
    tapstore.create(place, locks=guarded.url).close()
    with (
        tapstore.open(place) as session,
        pytest.raises(tapstore.TapstoreError) as caught,
    ):
        session.lock("gpu", ttl=30)
    assert guarded.password not in str(caught.value)


def test_another_service_is_refused_by_name_and_without_passwords(guarded, place):
    tapstore.create(place, locks=guarded.url).close()
    with pytest.raises(tapstore.NotAllowedError) as caught:
        tapstore.open(place, locks="redis://anna:hidden@elsewhere:1234/0")
    message = str(caught.value)
    for word in (f"127.0.0.1:{guarded.port}", "elsewhere:1234", "`tapstore locks switch URL`"):
        assert word in message
    for secret in (guarded.password, "hidden", "anna"):
        assert secret not in message


def test_the_service_that_was_switched_to_is_the_one_that_open_asks_for(redis_like, place):
    with tapstore.create(place) as session:
        session.switch_locks(redis_like.url)
    with pytest.raises(tapstore.NotAllowedError, match="'o_excl'"):
        tapstore.open(place, locks="o_excl")
    tapstore.open(place, locks=redis_like.url).close()


# Switching


def test_from_files_to_a_server_and_back_while_somebody_holds_and_waits(redis_like, place):
    with tapstore.create(place) as maker, tapstore.open(place) as other:
        with maker.lock("gpu", ttl=30) as held:
            waiting = threading.Event()
            got: list[int] = []

            def wait() -> None:
                waiting.set()
                with other.lock("gpu", ttl=30, wait=60) as guard:
                    got.append(guard.generation)

            thread = threading.Thread(target=wait)
            thread.start()
            waiting.wait()
            with pytest.raises(tapstore.LeaseUnavailableError, match="'gpu' by"):
                other.switch_locks(redis_like.url, wait=0)
            held.check()
            assert got == []
        thread.join()
        assert got[0] >> GENERATION_BITS == 1
        assert maker.switch_locks("o_excl").former.startswith("redis://")
        with other.lock("gpu", ttl=30) as guard:
            assert guard.generation > got[0]


def test_a_server_that_has_gone_is_left_without_being_asked(guarded, place, monkeypatch):
    monkeypatch.setenv("TAPSTORE_REDIS_PASSWORD", guarded.password)
    with tapstore.create(place, locks=guarded.url) as session:
        guard = session.lock("gpu", ttl=2)
        guarded.kill()
        refused = call("-w", place, "locks", "switch", "o_excl", "--wait", "0")
        assert (refused.status, "--old-is-gone" in refused.err) == (9, True)
        done = ok(
            "-w", place, "locks", "switch", "o_excl", "--old-is-gone", "--wait", "2s", "--json"
        )
        assert done.json["how"] == "unasked"
        assert guard.lost.wait(30)
        with tapstore.open(place) as other, other.lock("gpu", ttl=30) as next_guard:
            assert next_guard.generation > guard.generation
        assert guarded.password not in refused.err + done.out + done.err


def test_the_command_line_shows_no_password(guarded, place):
    shown = [
        ok("init", "-w", place, "-r", "coder", "--locks", guarded.url),
        ok("-w", place, "locks", env={"TAPSTORE_REDIS_PASSWORD": guarded.password}),
        ok("-w", place, "locks", "switch", "o_excl", "--json",
           env={"TAPSTORE_REDIS_PASSWORD": guarded.password}),
        ok("-w", place, "locks", "switch", guarded.url),
        ok("-w", place, "locks", "--json",
           env={"TAPSTORE_REDIS_PASSWORD": guarded.password}),
    ]  # fmt: skip
    assert guarded.password not in "".join(each.out + each.err for each in shown)
    assert shown[-1].json["service"] == f"redis://***@127.0.0.1:{guarded.port}/0"
    assert guarded.password.encode() not in everything_in(place)
    assert os.environ.get("TAPSTORE_REDIS_PASSWORD") is None
