"""The clock of a server is learnt from its replies."""

from __future__ import annotations

import random

import pytest
from s3_places import BucketPlace

from tapstore.abc import Clock
from tapstore_s3.servertime import ServerTime
from tests.servers.faults import refuse


class HandClock(Clock):
    def __init__(self):
        self.at = 1000.0

    def time(self):
        return 0.0

    def monotonic(self):
        return self.at

    def sleep(self, seconds):
        self.at += seconds


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def time(clock):
    return ServerTime(clock)


def reply(time, clock, offset, *, there=0.0, back=0.0, pause=0.0):
    """A reply of a server whose clock is ahead of our monotonic one by `offset`."""
    sent = clock.at
    clock.at += there
    date = float(int(clock.at + offset))
    clock.at += back
    time.see(date, sent=sent, received=clock.at)
    clock.at += pause


def test_nothing_is_known_without_a_reply(time):
    assert time.now() is None


def test_one_reply_tells_it_to_a_second_and_the_way(time, clock):
    reply(time, clock, 5000.7, there=0.2, back=0.3)
    assert 5000.7 + clock.at - 1.3 <= time.now() <= 5000.7 + clock.at


def test_the_clock_of_the_server_is_never_thought_to_be_ahead_of_what_it_is(time, clock):
    drawn = random.Random(1)
    for _ in range(500):
        reply(time, clock, 5000.7, there=drawn.random(), back=drawn.random(), pause=drawn.random())
        assert time.now() <= 5000.7 + clock.at


def test_many_replies_tell_it_to_a_tenth(time, clock):
    drawn = random.Random(2)
    for _ in range(100):
        reply(time, clock, 5000.7, there=0.01, back=0.01, pause=drawn.random())
    assert 5000.6 + clock.at <= time.now()


def test_between_replies_it_goes_on(time, clock):
    reply(time, clock, 5000.0)
    before = time.now()
    clock.at += 30
    assert time.now() == before + 30


def test_what_was_learnt_long_ago_is_forgotten(time, clock):
    reply(time, clock, 5000.0)
    clock.at += 3600
    assert time.now() is None


@pytest.mark.parametrize("step", [-3000.0, 3000.0])
def test_a_server_whose_clock_is_set_is_believed(time, clock, step):
    for _ in range(10):
        reply(time, clock, 5000.0, pause=0.3)
    for _ in range(2):
        reply(time, clock, 5000.0 + step, pause=0.3)
    assert abs(time.now() - (5000.0 + step + clock.at)) <= 1.3


def test_a_clock_that_drifts_is_followed(time, clock):
    offset = 5000.0
    for _ in range(2000):
        offset -= 0.01
        reply(time, clock, offset, pause=1.0)
        assert time.now() <= offset + clock.at + 2.5


@pytest.mark.parametrize("ahead", [-7200.0, 0.0, 7200.0])
def test_the_store_goes_by_the_clock_of_the_server(stub_s3_server, ahead):
    stub_s3_server.dialect.clock_ahead_seconds = ahead
    with BucketPlace(stub_s3_server).open() as store:
        modified = store.put("a", b"x").modified
        assert abs(store.now() - modified) <= 2
        assert abs(modified - store.head("a").modified) <= 1


def test_the_time_can_be_told_by_who_may_not_read(stub_s3_server):
    place = BucketPlace(stub_s3_server)
    stub_s3_server.rules.add(refuse(403, "AccessDenied"), times=None)
    with place.open() as store:
        assert store.now() > 1.7e9
