"""Leases and `tapfile.lock` between two hosts whose clocks are an hour apart."""

import signal
import time

import pytest

from tests.nfs.clocks import CLOCKS, in_roles
from tests.nfs.interpreter import Interpreter

LEASES = """
import time
from tapstore.errors import LeaseLostError, LeaseUnavailableError
from tapstore.locks.lease import LeaseService
from tapstore.stores.local import LocalStore
from tapstore.types import Owner

def acquire(name, ttl, wait=0):
    global lease
    try:
        lease = service.acquire("gpu-0", Owner(name, name), ttl=ttl, wait=wait)
    except LeaseUnavailableError:
        return 0
    return lease.generation

def renew():
    global lease
    try:
        lease = service.renew(lease)
    except LeaseLostError:
        return False
    return True
"""

LOCK = """
import os, time
from tapstore.locks.tapfile_lock import TapfileLock
from tapstore.stores.local import LocalStore
from tapstore.types import Owner
"""

HOLD = """
import os, sys
from tapstore.locks.tapfile_lock import TapfileLock
from tapstore.stores.local import LocalStore
from tapstore.types import Owner

lock = TapfileLock(LocalStore(sys.argv[1]), "tapfile.lock", Owner("stopped", "s1"))
print(lock.acquire(10), lock.is_ours(), flush=True)
sys.stdin.readline()
print(lock.is_ours(), flush=True)
lock.release()
print("released", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def people(pythons, place):
    for python in pythons:
        python.run(LEASES)
        python.run(f"service = LeaseService(LocalStore({place!r}))")
    return pythons


@pytest.fixture
def pair(request, people):
    """Holder and contender."""
    return in_roles(people, request)


@CLOCKS
def test_a_lease_is_refused_to_the_other_host_until_it_is_released(pair):
    holder, contender = pair
    assert holder.ask("acquire('anna', 600)") == 1
    assert contender.ask("acquire('bert', 600)") == 0
    holder.run("service.release(lease)")
    assert contender.ask("acquire('bert', 600)") == 2


@CLOCKS
def test_one_look_takes_nothing_over_although_an_hour_seems_to_have_passed(pair):
    holder, contender = pair
    assert holder.ask("acquire('anna', 60)") == 1
    assert contender.ask("acquire('bert', 60)") == 0
    assert contender.ask("acquire('bert', 60, wait=1)") == 0
    assert holder.ask("renew()")


@CLOCKS
def test_who_waits_gets_it_when_the_ttl_is_over_and_not_before(pair):
    holder, contender = pair
    assert holder.ask("acquire('anna', 2)") == 1
    granted = time.monotonic()
    contender.begin("acquire('bert', 2, wait=60)")
    assert contender.answer() == 2
    assert 2 - 0.1 < time.monotonic() - granted < 15
    assert not holder.ask("renew()")


@CLOCKS
def test_who_renews_keeps_it_while_others_wait(pair):
    holder, contender = pair
    assert holder.ask("acquire('anna', 2)") == 1
    contender.begin("acquire('bert', 2, wait=4)")
    until = time.monotonic() + 4
    while time.monotonic() < until:
        assert holder.ask("renew()")
        holder.run("time.sleep(0.2)")
    assert contender.answer() == 0


@CLOCKS
def test_who_waits_sees_a_release_soon(pair):
    holder, contender = pair
    assert holder.ask("acquire('anna', 600)") == 1
    assert contender.ask("acquire('bert', 600)") == 0
    contender.begin("acquire('bert', 600, wait=60)")
    holder.run("service.release(lease)")
    released = time.monotonic()
    assert contender.answer() == 2
    assert time.monotonic() - released < 5


def test_a_holder_that_was_killed_is_taken_over_by_the_other_host(nfs, people, place):
    _, contender = people
    with Interpreter(nfs.clients[0]) as holder:
        holder.run(LEASES)
        holder.run(f"service = LeaseService(LocalStore({place!r}))")
        assert holder.ask("acquire('anna', 2)") == 1
        holder.process.kill()
    assert contender.ask("acquire('bert', 2, wait=60)") == 2


def test_tapfile_lock_is_held_by_one_host_at_a_time(pythons, place):
    first, second = pythons
    for python in pythons:
        python.run(LOCK)
        python.run(f"lock = TapfileLock(LocalStore({place!r}), 'tapfile.lock', Owner('x', 'x'))")
    for one, other in ((first, second), (second, first)) * 3:
        assert one.ask("lock.acquire(10)")
        assert not other.ask("lock.acquire(0.1)")
        assert one.ask("lock.is_ours()")
        one.run("lock.release()")


def test_a_holder_that_was_stopped_sees_that_the_other_host_took_its_tapfile_lock(
    nfs, pythons, place
):
    _, taker = pythons
    with nfs.clients[0].python("-c", HOLD, place) as holder:
        assert holder.stdout.readline() == "True True\n"
        holder.signal(signal.SIGSTOP)
        taker.run(LOCK)
        taker.run(
            f"lock = TapfileLock(LocalStore({place!r}), 'tapfile.lock', Owner('x', 'x'),"
            " stale_after=2)"
        )
        assert taker.ask("lock.acquire(30)")
        holder.signal(signal.SIGCONT)
        holder.send("\n")
        assert holder.stdout.readline() == "False\n"
        assert holder.stdout.readline() == "released\n"
        # What it gave back was not ours.
        assert taker.ask("lock.is_ours()")
        taker.run("lock.release()")


def test_a_plain_lock_file_and_tapstore_keep_each_other_out(pythons, place):
    first, second = pythons
    first.run(LOCK)
    first.run(f"lock = TapfileLock(LocalStore({place!r}), 'tapfile.lock', Owner('x', 'x'))")
    second.run(
        "import os\n"
        "def plain():\n"
        f"    try: os.close(os.open({place!r} + '/tapfile.lock', os.O_CREAT | os.O_EXCL))\n"
        "    except FileExistsError: return False\n"
        "    return True\n"
    )
    for _ in range(5):
        assert first.ask("lock.acquire(10)")
        assert not second.ask("plain()")
        first.run("lock.release()")
        assert second.ask("plain()")
        assert not first.ask("lock.acquire(0.1)")
        second.run(f"os.unlink({place!r} + '/tapfile.lock')")
