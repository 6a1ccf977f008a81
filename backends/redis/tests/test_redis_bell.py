"""A bell wakes those who watch at once, and without Redis they are slower and nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from people import in_background

from tapstore_redis import Bell, open_bell
from tests.servers.process import free_ports


@pytest.fixture
def bell() -> Iterator[Callable[..., Bell]]:
    bells: list[Bell] = []

    def make(url: str, scope: str = "s1") -> Bell:
        bells.append(open_bell(url, scope))
        return bells[-1]

    yield make
    for each in bells:
        each.close()


def seconds_of(call: Callable[[], object]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


def test_a_ring_ends_a_wait(server, bell):
    watcher, writer = bell(server.url), bell(server.url)
    watcher.wait(0)
    waiting = in_background(lambda: watcher.wait(20))
    assert writer.ring()
    assert seconds_of(lambda: waiting.result(20)) < 2
    assert waiting.result() is True


def test_the_first_wait_returns_at_once_because_it_may_have_missed_a_ring(server, bell):
    watcher = bell(server.url)
    assert watcher.wait(20) is True


def test_what_rings_between_two_waits_is_heard_by_the_second(server, bell):
    watcher, writer = bell(server.url), bell(server.url)
    watcher.wait(0)
    writer.ring()
    assert watcher.wait(20) is True


def test_many_rings_are_one_reason_to_look(server, bell):
    watcher, writer = bell(server.url), bell(server.url)
    watcher.wait(0)
    for _ in range(20):
        writer.ring()
    assert watcher.wait(20) is True
    assert watcher.wait(0.05) is False


def test_without_a_ring_a_wait_ends_in_its_time(server, bell):
    watcher = bell(server.url)
    watcher.wait(0)
    assert 0.2 <= seconds_of(lambda: watcher.wait(0.2)) < 2


def test_the_bell_of_another_session_is_not_heard(server, bell):
    watcher, writer = bell(server.url, "s1"), bell(server.url, "s2")
    watcher.wait(0)
    assert writer.ring() is False
    assert watcher.wait(0.1) is False


def test_all_who_watch_are_woken(server, bell):
    watchers = [bell(server.url) for _ in range(5)]
    for watcher in watchers:
        watcher.wait(0)
    bell(server.url).ring()
    assert [watcher.wait(20) for watcher in watchers] == [True] * 5


def test_without_redis_a_wait_lasts_its_time_and_a_ring_costs_next_to_nothing(bell):
    (port,) = free_ports(1)
    lonely = bell(f"redis://127.0.0.1:{port}/0")
    assert 0.2 <= seconds_of(lambda: lonely.wait(0.2)) < 2
    assert lonely.ring() is False
    assert seconds_of(lambda: [lonely.ring() for _ in range(1000)]) < 0.5


def test_a_server_that_hangs_delays_a_ring_by_a_moment_only(own_server, bell):
    writer = bell(own_server.url)
    writer.ring()
    own_server.pause()
    try:
        assert seconds_of(writer.ring) < 2
        assert seconds_of(writer.ring) < 0.1
    finally:
        own_server.resume()


def test_after_a_restart_watchers_hear_again(own_server, bell):
    watcher, writer = bell(own_server.url), bell(own_server.url)
    watcher.wait(0)
    own_server.restart(keep_data=False)
    assert watcher.wait(0.1) is False
    watcher._retry_at = writer._retry_at = 0.0
    assert watcher.wait(20) is True  # subscribed anew
    waiting = in_background(lambda: watcher.wait(20))
    assert writer.ring()
    assert waiting.result(20) is True
