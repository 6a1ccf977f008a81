"""The store's clock as far as it can be seen from outside."""

import pytest

from tapstore.abc import Clock
from tapstore.stores.storetime import StoreTime


class HandClock(Clock):
    seconds = 0.0

    def time(self):
        raise AssertionError("the host's wall clock decides nothing")

    def monotonic(self):
        return self.seconds

    def sleep(self, seconds):
        self.seconds += seconds


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def probed():
    return []


@pytest.fixture
def store_time(clock, probed):
    def probe():
        probed.append(clock.seconds)
        return 1000.0 + clock.seconds

    return StoreTime(clock, probe)


def test_the_first_look_is_a_probe(store_time):
    assert store_time.now() == 1000.0


def test_between_looks_time_goes_on_by_the_monotonic_clock(store_time, clock, probed):
    store_time.now()
    clock.sleep(59)
    assert (store_time.now(), len(probed)) == (1059.0, 1)


def test_after_a_minute_it_looks_again(store_time, clock, probed):
    store_time.now()
    clock.sleep(61)
    assert (store_time.now(), len(probed)) == (1061.0, 2)


def test_a_write_makes_a_probe_needless(store_time, probed):
    store_time.see(2000.0)
    assert (store_time.now(), probed) == (2000.0, [])


def test_a_write_that_took_long_does_not_set_it_back(store_time, clock):
    store_time.see(2000.0)
    clock.sleep(10)
    store_time.see(2003.0)
    assert store_time.now() == 2010.0


def test_a_store_whose_clock_was_set_back_is_believed_after_a_minute(store_time, clock):
    store_time.see(2000.0)
    clock.sleep(61)
    store_time.see(1500.0)
    assert store_time.now() == 1500.0


def test_a_better_look_moves_it_on(store_time, clock):
    store_time.see(2000.0)
    clock.sleep(1)
    store_time.see(2008.0)
    assert store_time.now() == 2008.0
