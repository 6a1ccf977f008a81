"""What keeps leases and claims alive in the background, and tells when it could not.

Threads need real time; it is short, and nothing is decided by how late something happened.
"""

from __future__ import annotations

import errno
import gc
import subprocess
import sys
import threading
import time

import pytest

from tapstore.clock import SYSTEM_CLOCK
from tapstore.errors import ClaimLostError, LeaseLostError, StoreError
from tapstore.locks.guard import Guard, Renewer
from tapstore.locks.lease import LeaseService
from tapstore.stores.memory import MemoryStore
from tapstore.testing.clock import ManualClock
from tapstore.testing.faults import Fault, FaultyStore, refuse
from tapstore.types import Owner

TTL = 0.3
PATIENT = 1.5
"""Where the end of the ttl must not be reached by a thread that has to wait for a processor."""

ANNA = Owner(agent="anna", instance="a1")
BERT = Owner(agent="bert", instance="b1")


def eventually(condition, timeout=20):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


@pytest.fixture
def renewers():
    started = []

    def start(renew, *, ttl=TTL, **options):
        renewer = Renewer(renew, ttl=ttl, name="lease 'x'", **options)
        started.append(renewer)
        renewer.start()
        return renewer

    yield start
    for renewer in started:
        renewer.stop()


def extend():
    return SYSTEM_CLOCK.monotonic() + TTL


# Time


@pytest.fixture
def clock():
    return ManualClock()


def idle(clock, **options):
    """A renewer whose threads never get to run, as in a process that was stopped."""
    return Renewer(extend, ttl=30, name="lease 'x'", clock=clock, **options)


def test_what_is_not_renewed_is_lost_before_its_ttl_ends(clock):
    renewer = idle(clock)
    clock.advance(26.9)
    assert not renewer.lost.is_set()
    clock.advance(0.2)
    assert renewer.lost.is_set()


def test_the_time_counts_from_the_grant(clock):
    renewer = idle(clock, expires=clock.monotonic() + 10)
    clock.advance(8)
    assert renewer.lost.is_set()


def test_long_ttls_do_not_waste_a_tenth(clock):
    renewer = Renewer(extend, ttl=3600, name="x", clock=clock)
    clock.advance(3590)
    assert not renewer.lost.is_set()


def test_check_says_what_was_lost_and_why(clock):
    renewer = idle(clock)
    renewer.check()
    clock.advance(30)
    with pytest.raises(LeaseLostError, match="lease 'x' is lost: not renewed in time"):
        renewer.check()


def test_check_raises_the_error_of_who_uses_it(clock):
    renewer = idle(clock, error=ClaimLostError)
    clock.advance(30)
    with pytest.raises(ClaimLostError):
        renewer.check()


def test_who_waits_for_the_loss_need_not_wait_when_it_is_over_already(clock):
    renewer = idle(clock)
    clock.advance(30)
    assert renewer.lost.wait(0)


def test_what_was_stopped_in_time_is_not_lost_later(clock):
    renewer = idle(clock)
    renewer.stop()
    clock.advance(60)
    assert not renewer.lost.is_set()


# Threads


def test_it_renews_every_third_of_the_ttl(renewers):
    times = []

    def renew():
        times.append(time.monotonic())
        return extend()

    began = time.monotonic()
    renewers(renew)
    eventually(lambda: len(times) >= 4)
    assert all(
        later - earlier >= TTL / 3 * 0.9
        for earlier, later in zip([began, *times], times, strict=False)
    )


def test_a_failure_that_passes_is_survived(renewers):
    calls = []

    def renew():
        calls.append(1)
        if len(calls) % 3:
            raise StoreError("busy")
        return SYSTEM_CLOCK.monotonic() + PATIENT

    began = time.monotonic()
    renewer = renewers(renew, ttl=PATIENT)
    eventually(lambda: time.monotonic() > began + PATIENT * 1.1)
    renewer.check()
    assert len(calls) >= 3


def test_a_failure_that_stays_is_the_cause_of_the_loss(renewers):
    def renew():
        raise ZeroDivisionError("a bug of ours")

    renewer = renewers(renew)
    assert renewer.lost.wait(20)
    with pytest.raises(LeaseLostError, match="ZeroDivisionError: a bug of ours") as caught:
        renewer.check()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_failure_that_stays_is_told_before_the_ttl_ends(renewers):
    told = []

    def renew():
        raise StoreError("down")

    began = time.monotonic()
    ttl = 2.0
    renewer = renewers(renew, ttl=ttl, on_lost=lambda: told.append(time.monotonic()))
    assert renewer.lost.wait(20)
    eventually(lambda: told)
    assert told[0] < began + ttl


def test_a_renewal_that_is_stuck_does_not_keep_the_loss_back(renewers):
    stuck, told = threading.Event(), threading.Event()

    def renew():
        stuck.wait(60)
        return extend()

    renewer = renewers(renew, on_lost=told.set)
    assert told.wait(20)
    assert not stuck.is_set()
    stuck.set()
    with pytest.raises(LeaseLostError):
        renewer.check()


@pytest.mark.parametrize("error", [LeaseLostError, ClaimLostError])
def test_a_renewal_that_is_refused_is_a_loss_at_once(renewers, error):
    def renew():
        raise error("bert has it now")

    renewer = renewers(renew, ttl=60, expires=SYSTEM_CLOCK.monotonic() + 30)
    assert renewer.lost.wait(20)
    with pytest.raises(error, match="bert has it now"):
        renewer.check()


def test_the_loss_is_told_once_and_from_another_thread(renewers):
    told = []

    def renew():
        raise LeaseLostError("gone")

    renewer = renewers(renew, on_lost=lambda: told.append(threading.current_thread()))
    eventually(lambda: told)
    renewer.stop()
    assert len(told) == 1
    assert told[0] is not threading.main_thread()


def test_who_is_told_of_the_loss_may_stop_it(renewers):
    stopped = threading.Event()

    def renew():
        raise LeaseLostError("gone")

    def stop():
        renewer.stop()
        stopped.set()

    renewer = renewers(renew, on_lost=stop)
    assert stopped.wait(20)


def test_stopping_waits_for_a_renewal_that_is_under_way(renewers):
    began, done = threading.Event(), []

    def renew():
        began.set()
        time.sleep(0.05)
        done.append(1)
        return extend()

    renewer = renewers(renew)
    assert began.wait(20)
    renewer.stop()
    assert done


def test_nothing_is_renewed_after_stopping(renewers):
    calls = []

    def renew():
        calls.append(1)
        return extend()

    renewer = renewers(renew)
    eventually(lambda: calls)
    renewer.stop()
    before = len(calls)
    assert not renewer.lost.wait(TTL * 1.5)
    assert len(calls) == before


# Guards


@pytest.fixture
def store():
    return MemoryStore()


def guard(store, *, ttl=TTL, service=None, **options):
    service = service or LeaseService(store)
    return Guard(service, service.acquire("gpu-0", ANNA, ttl=ttl), **options)


def holder(store):
    found = LeaseService(store).inspect("gpu-0")
    return found and found.owner.agent


def test_a_guarded_lease_outlives_its_ttl(store):
    began = time.monotonic()
    with guard(store, ttl=PATIENT) as held:
        eventually(lambda: time.monotonic() > began + PATIENT * 1.1)
        held.check()
        assert holder(store) == "anna"


def test_the_end_of_the_block_gives_it_back(store):
    with guard(store):
        pass
    assert holder(store) is None


def test_an_exception_gives_it_back_and_goes_on(store):
    with pytest.raises(KeyError, match="mine"), guard(store):
        raise KeyError("mine")
    assert holder(store) is None


def test_an_exception_is_not_hidden_by_a_release_that_fails(store):
    faulty = FaultyStore(store, Fault("put", "*/released-*", before=refuse(errno.EIO)))
    with pytest.raises(KeyError) as caught, guard(faulty):
        raise KeyError("mine")
    assert "was not released" in caught.value.__notes__[0]


def test_a_release_that_fails_can_be_repeated(store):
    faulty = FaultyStore(store, Fault("put", "*/released-*", before=refuse(errno.EIO)))
    held = guard(faulty)
    with pytest.raises(StoreError):
        held.release()
    held.release()
    assert holder(store) is None


def test_a_block_that_lost_its_lease_does_not_end_well(store):
    def lose():
        with guard(store) as held:
            LeaseService(store).force_release("gpu-0", held.generation)
            assert held.lost.wait(20)

    with pytest.raises(LeaseLostError, match="force"):
        lose()


def test_a_lost_lease_is_not_taken_from_its_next_holder(store):
    held = guard(store)
    LeaseService(store).force_release("gpu-0", held.generation)
    LeaseService(store).acquire("gpu-0", BERT, ttl=60)
    assert held.lost.wait(20)
    held.release()
    assert holder(store) == "bert"


def test_the_guard_tells_the_fencing_token(store):
    with guard(store) as held:
        assert held.generation == held.lease.generation == 1


def test_a_guard_that_nobody_has_any_more_stops_renewing(store):
    held = guard(store)
    leases = [held.lease]
    while held.lease is leases[0]:
        time.sleep(0.005)
    del held
    gc.collect()
    LeaseService(store).acquire("gpu-0", BERT, ttl=60, wait=20)


# Processes

FORK = """
import os, sys, time
from tapstore.errors import LeaseLostError
from tapstore.locks.guard import Guard
from tapstore.locks.lease import LeaseService
from tapstore.stores.local import LocalStore
from tapstore.types import Owner

service = LeaseService(LocalStore(sys.argv[1]))
guard = Guard(service, service.acquire("gpu-0", Owner("anna", "a1"), ttl=60))
if not (child := os.fork()):
    try:
        guard.check()
    except LeaseLostError as exc:
        assert "forked child" in str(exc)
        assert guard.lost.is_set()
        guard.release()
        os._exit(7)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
guard.check()
service.renew(guard.lease)
print("kept")
"""

EXIT = """
import sys
from tapstore.locks.guard import Guard
from tapstore.locks.lease import LeaseService
from tapstore.stores.local import LocalStore
from tapstore.types import Owner

service = LeaseService(LocalStore(sys.argv[1]))
guard = Guard(service, service.acquire("gpu-0", Owner("anna", "a1"), ttl=60))
print("held")
"""


def run(program, *arguments):
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, *map(str, arguments)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout.strip()


def test_a_forked_child_neither_holds_nor_releases(tmp_path):
    assert run(FORK, tmp_path) == "kept"


def test_a_guard_that_is_not_released_does_not_hold_up_the_interpreter(tmp_path):
    assert run(EXIT, tmp_path) == "held"
