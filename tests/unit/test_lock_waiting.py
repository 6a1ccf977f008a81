"""How contenders wait, and for how long they saw nothing change."""

from __future__ import annotations

import random

import pytest

from tapstore.locks.waiting import Observer, Patience
from tapstore.testing.clock import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


def patience(clock, wait, seed=0):
    return Patience(wait, first=0.01, longest=0.5, clock=clock, rng=random.Random(seed))


def pauses(clock, waiting, count):
    for _ in range(count):
        before = clock.monotonic()
        waiting.pause()
        yield clock.monotonic() - before


def test_looks_start_close_together_and_stay_within_a_bound(clock):
    found = list(pauses(clock, patience(clock, None), 50))
    assert max(found[:2]) <= 0.015
    assert 0.25 <= min(found[-10:]) <= max(found[-10:]) <= 0.5


def test_looks_are_close_together_again_when_something_moved(clock):
    waiting = patience(clock, None)
    list(pauses(clock, waiting, 50))
    waiting.hurry()
    assert next(pauses(clock, waiting, 1)) <= 0.01


def test_two_who_wait_do_not_look_in_step(clock):
    first, second = patience(clock, None, 1), patience(clock, None, 2)
    assert list(pauses(clock, first, 5)) != list(pauses(clock, second, 5))


def test_no_pause_is_longer_than_what_is_left(clock):
    waiting = patience(clock, 1.0)
    while not waiting.over:
        waiting.pause()
    assert waiting.waited == pytest.approx(1.0)


def test_no_wait_is_over_at_once(clock):
    assert patience(clock, 0).over


def test_a_wait_for_ever_is_never_over(clock):
    waiting = patience(clock, None)
    clock.advance(1e9)
    assert not waiting.over


def test_a_first_look_has_seen_nothing_unchanged(clock):
    assert Observer(clock).unchanged_for("x", "a", looked=clock.monotonic() - 9) == 0


def test_time_counts_from_the_end_of_the_first_look(clock):
    observer = Observer(clock)
    began = clock.monotonic()
    clock.advance(5)  # the first look took so long
    observer.unchanged_for("x", "a", looked=began)
    clock.advance(10)
    assert observer.unchanged_for("x", "a", looked=clock.monotonic()) == 10


def test_time_counts_to_the_beginning_of_the_last_look(clock):
    observer = Observer(clock)
    observer.unchanged_for("x", "a", looked=clock.monotonic())
    clock.advance(10)
    began = clock.monotonic()
    clock.advance(5)  # the last look took so long
    assert observer.unchanged_for("x", "a", looked=began) == 10


def test_a_change_starts_it_again(clock):
    observer = Observer(clock)
    for state in ("a", "b", "a"):
        observer.unchanged_for("x", state, looked=clock.monotonic())
        clock.advance(10)
    assert observer.unchanged_for("x", "a", looked=clock.monotonic()) == 10
