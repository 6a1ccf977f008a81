"""When roles are woken, and that nothing which goes wrong there goes any further."""

import threading
import time

import pytest

from tapstore.errors import NotFoundError
from tapstore.handoffs.wakeups.notifiers import WakeUpError
from tapstore.handoffs.wakeups.schedule import (
    AGAIN_SECONDS,
    FIRST_RETRY_SECONDS,
    MAX_RETRY_SECONDS,
    Schedule,
)
from tapstore.handoffs.wakeups.waker import Waker

# The schedule


@pytest.fixture
def schedule():
    return Schedule()


def test_who_gets_mail_is_due_at_once(schedule):
    schedule.arrived("coder", 10)
    assert schedule.due(10) == ["coder"]


def test_mail_that_somebody_else_delivered_is_announced_when_it_is_seen(schedule):
    schedule.seen("coder", waiting=1, at_work=False, now=10)
    assert schedule.due(10) == ["coder"]


def test_mail_that_was_announced_when_it_came_is_not_announced_again_when_it_is_seen(schedule):
    schedule.arrived("coder", 10)
    schedule.woken("coder", 10)
    schedule.seen("coder", waiting=1, at_work=False, now=11)
    assert schedule.due(11) == []


def test_mail_that_waits_is_announced_again_after_two_minutes(schedule):
    schedule.seen("coder", waiting=1, at_work=False, now=10)
    schedule.woken("coder", 10)
    for now in (11, 10 + AGAIN_SECONDS - 1):
        schedule.seen("coder", waiting=1, at_work=False, now=now)
        assert schedule.due(now) == []
    assert schedule.due(10 + AGAIN_SECONDS) == ["coder"]
    schedule.woken("coder", 10 + AGAIN_SECONDS)
    assert schedule.next_due() == 10 + 2 * AGAIN_SECONDS


def test_who_is_at_work_is_not_reminded(schedule):
    schedule.seen("coder", waiting=2, at_work=False, now=10)
    schedule.woken("coder", 10)
    schedule.seen("coder", waiting=1, at_work=True, now=20)
    assert schedule.next_due() is None


def test_who_stops_working_while_mail_waits_is_reminded(schedule):
    schedule.seen("coder", waiting=1, at_work=False, now=10)
    schedule.woken("coder", 10)
    schedule.seen("coder", waiting=1, at_work=True, now=20)
    schedule.seen("coder", waiting=1, at_work=False, now=30)
    assert schedule.due(30) == ["coder"]


def test_more_mail_is_announced_before_the_two_minutes_are_over(schedule):
    schedule.seen("coder", waiting=1, at_work=False, now=10)
    schedule.woken("coder", 10)
    schedule.seen("coder", waiting=2, at_work=False, now=11)
    assert schedule.due(11) == ["coder"]


def test_who_has_taken_all_is_not_reminded(schedule):
    schedule.seen("coder", waiting=1, at_work=False, now=10)
    schedule.woken("coder", 10)
    schedule.seen("coder", waiting=0, at_work=False, now=20)
    assert schedule.next_due() is None


def test_what_fails_is_tried_again_ever_later_up_to_a_minute(schedule):
    schedule.arrived("coder", 0)
    pauses = [schedule.failed("coder", 0) for _ in range(12)]
    assert pauses[:4] == [FIRST_RETRY_SECONDS * factor for factor in (1, 2, 4, 8)]
    assert pauses[-1] == MAX_RETRY_SECONDS


def test_new_mail_does_not_bring_forward_what_failed(schedule):
    schedule.arrived("coder", 0)
    for _ in range(6):
        due = schedule.failed("coder", 0)
    schedule.arrived("coder", 1)
    schedule.seen("coder", waiting=5, at_work=False, now=2)
    assert schedule.due(due - 1) == []
    assert schedule.due(due) == ["coder"]


def test_after_a_success_a_failure_begins_with_the_first_pause(schedule):
    schedule.arrived("coder", 0)
    schedule.failed("coder", 0)
    schedule.failed("coder", 1)
    schedule.woken("coder", 3)
    assert schedule.failed("coder", 200) == FIRST_RETRY_SECONDS


def test_a_role_that_is_gone_is_forgotten(schedule):
    schedule.arrived("coder", 0)
    schedule.arrived("cleaner", 0)
    schedule.keep_only({"cleaner"})
    assert schedule.due(0) == ["cleaner"]


# The thread


class Calls:
    """A way to wake that notes whom, and fails as often as it is told to."""

    def __init__(self, *, fails=0):
        self.roles = []
        self.failures = []
        self.changed = threading.Condition()
        self._fails = fails

    def notify(self, role):
        with self.changed:
            self.roles.append(role)
            self.changed.notify()
            if len(self.roles) <= self._fails:
                raise WakeUpError("nobody there")

    def on_failure(self, role, error, pause):
        self.failures.append((role, str(error), pause))

    def wait(self, count):
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.roles) >= count, 20)


def test_each_role_is_woken():
    calls = Calls()
    with Waker(calls.notify, on_failure=calls.on_failure) as waker:
        waker.arrived("coder")
        waker.seen("cleaner", waiting=1, at_work=False)
        calls.wait(2)
    assert sorted(calls.roles) == ["cleaner", "coder"]


def test_a_failure_is_told_and_tried_again():
    calls = Calls(fails=1)
    with Waker(calls.notify, on_failure=calls.on_failure) as waker:
        waker.seen("coder", waiting=1, at_work=False)
        calls.wait(2)
    assert calls.failures == [("coder", "nobody there", FIRST_RETRY_SECONDS)]


@pytest.mark.parametrize("error", [OSError("no room"), NotFoundError("no room")])
def test_whatever_a_wake_up_fails_of_the_next_one_is_made(error):
    calls = Calls()

    def notify(role):
        if not calls.failures:
            raise error
        calls.notify(role)

    with Waker(notify, on_failure=calls.on_failure) as waker:
        waker.arrived("coder")
        calls.wait(1)
    assert calls.failures == [("coder", "no room", FIRST_RETRY_SECONDS)]


def test_mail_that_waits_is_announced_again():
    calls = Calls()
    with Waker(calls.notify, on_failure=calls.on_failure, again_seconds=0.05) as waker:
        waker.seen("coder", waiting=1, at_work=False)
        calls.wait(3)
    assert set(calls.roles) == {"coder"}


def test_who_brings_mail_does_not_wait_for_a_slow_wake_up():
    let_go = threading.Event()
    called = threading.Event()

    def notify(role):
        del role
        called.set()
        let_go.wait(20)

    with Waker(notify, on_failure=lambda *_: None) as waker:
        waker.arrived("coder")
        assert called.wait(20)
        started = time.monotonic()
        for _ in range(100):
            waker.arrived("cleaner")
        assert time.monotonic() - started < 5
        assert not let_go.is_set()
        let_go.set()


def test_the_end_waits_for_the_wake_up_that_is_being_made_and_for_no_other():
    called = threading.Event()
    let_go = threading.Event()
    done = []

    def notify(role):
        called.set()
        let_go.wait(20)
        done.append(role)

    waker = Waker(notify, on_failure=lambda *_: None)
    end = threading.Thread(target=waker.__exit__, args=(None, None, None))
    with waker:
        waker.arrived("a")
        waker.arrived("b")
        assert called.wait(20)
        end.start()
        deadline = time.monotonic() + 20
        while not waker.is_closed:
            assert time.monotonic() < deadline
        assert end.is_alive()
        let_go.set()
    end.join(20)
    assert len(done) == 1
