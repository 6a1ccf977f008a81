"""`tapfile.lock` within one process: who gets it, who may remove it, what it says."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tapstore.clock import SYSTEM_CLOCK
from tapstore.errors import ConflictError, StoreError, UnsupportedOperationError
from tapstore.keys import TEMP_MARK
from tapstore.locks import ownfile, process
from tapstore.locks.process import Process
from tapstore.locks.tapfile_lock import Record, TapfileLock
from tapstore.stores.local import LocalStore
from tapstore.stores.memory import MemoryStore
from tapstore.testing.clock import ManualClock
from tapstore.types import Owner

KEY = ".tap/locks/tapfile.lock"
ANNA = Owner(agent="anna", instance="a1", host="h1")
BERT = Owner(agent="bert", instance="b1", host="h2")
NOWHERE = Process()
"""A process of which nothing can be told."""


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def path(tmp_path):
    return tmp_path / KEY


@pytest.fixture
def lock(tmp_path, clock):
    def make(owner=ANNA, **options):
        store = LocalStore(tmp_path, durability="none")
        return TapfileLock(store, KEY, owner, **{"clock": clock, **options})

    return make


def plain_lock(path: Path, content: bytes = b"") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "xb") as file:
        file.write(content)


def a_dead_process() -> Process:
    """The identity of a process that was, and is no more."""
    child = subprocess.run(
        [sys.executable, "-c", "from tapstore.locks import process as p, tapfile_lock\n"
         "import msgspec, sys; sys.stdout.buffer.write(msgspec.json.encode(p.myself()))"],
        capture_output=True, check=True, timeout=60,
    )  # fmt: skip
    return msgspec.json.decode(child.stdout, type=Process)


def record(of: Process) -> bytes:
    return msgspec.json.encode(Record(format=1, agent="anna", instance="a1", process=of))


# Taking and giving back


def test_a_free_lock_is_taken_and_given_back(lock, path):
    mine = lock()
    assert mine.acquire(0)
    assert path.exists()
    mine.release()
    assert not path.exists()


def test_a_taken_lock_is_not_to_be_had(lock):
    assert lock().acquire(0) is True
    assert lock(BERT).acquire(0.5) is False


def test_an_empty_lock_of_a_plain_agent_is_respected(lock, path):
    plain_lock(path)
    assert not lock().acquire(0.5)
    assert path.read_bytes() == b""


def test_a_plain_agent_cannot_create_its_lock_beside_ours(lock, path):
    lock().acquire(0)
    with pytest.raises(FileExistsError):
        os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR)


def test_a_lock_that_is_given_back_during_the_wait_is_taken(lock, path, clock):
    plain_lock(path)
    clock.after(0.3, path.unlink)
    assert lock().acquire(1)
    assert clock.monotonic() < 1000 + 0.35


def test_a_wait_in_vain_ends_in_time(lock, path, clock):
    plain_lock(path)
    before = clock.monotonic()
    assert not lock().acquire(1)
    assert 1 <= clock.monotonic() - before <= 1.01


def test_who_waited_in_vain_does_not_wait_for_the_same_holding_again(lock, path, clock):
    plain_lock(path)
    mine = lock()
    mine.acquire(1)
    before = clock.monotonic()
    assert not mine.acquire(1)
    assert clock.monotonic() - before < 0.05


def test_who_waited_in_vain_waits_for_the_next_holding(lock, path, clock):
    plain_lock(path)
    mine = lock()
    mine.acquire(1)
    path.unlink()
    plain_lock(path, b"another")
    before = clock.monotonic()
    assert not mine.acquire(1)
    assert clock.monotonic() - before >= 1


def test_it_can_be_taken_over_and_over(lock, path):
    mine = lock()
    for _ in range(100):
        assert mine.acquire(0)
        mine.release()
    assert not path.exists()


def test_two_users_of_one_process_take_turns(lock):
    first, second = lock(), lock(BERT)
    first.acquire(0)
    first.release()
    assert second.acquire(0)
    assert not first.acquire(0)


def test_threads_that_share_it_take_turns(lock):
    shared, inside, most = lock(clock=SYSTEM_CLOCK), [], []

    def work():
        for _ in range(50):
            assert shared.acquire(30)
            inside.append(1)
            most.append(len(inside))
            inside.pop()
            shared.release()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(most), max(most)) == (200, 1)


def test_releasing_twice_is_no_error(lock):
    mine = lock()
    mine.acquire(0)
    mine.release()
    mine.release()
    assert mine.acquire(0)


def test_a_lock_that_is_no_longer_ours_is_not_removed(lock, path):
    mine = lock()
    mine.acquire(0)
    path.unlink()
    plain_lock(path)
    assert not mine.is_ours()
    mine.release()
    assert path.read_bytes() == b""


def test_the_lock_is_ours_while_we_have_it(lock):
    mine = lock()
    assert not mine.is_ours()
    mine.acquire(0)
    assert mine.is_ours()
    mine.release()
    assert not mine.is_ours()


def test_a_link_whose_reply_was_lost_is_ours(lock, monkeypatch):
    real = os.link

    def repeat(source, target, **options):
        real(source, target, **options)
        real(source, target, **options)  # as NFS does when the first reply was lost

    monkeypatch.setattr(os, "link", repeat)
    mine = lock()
    assert mine.acquire(0)
    assert mine.is_ours()


def test_a_sweep_of_temporary_files_does_no_harm(lock, tmp_path, path):
    mine = lock()
    mine.acquire(0)
    assert len(LocalStore(tmp_path).sweep(-60)) == 1
    assert mine.is_ours()
    mine.release()
    assert not path.exists()
    assert mine.acquire(0)


def test_what_it_keeps_beside_the_lock_goes_with_it(lock, path):
    mine = lock()
    mine.acquire(0)
    mine.release()
    assert [name[: len(TEMP_MARK)] for name in os.listdir(path.parent)] == [TEMP_MARK]
    del mine
    assert os.listdir(path.parent) == []


def test_to_take_it_again_is_one_system_call(lock, monkeypatch):
    mine = lock()
    mine.acquire(0)
    mine.release()
    monkeypatch.setattr(os, "open", None)
    monkeypatch.setattr(os, "stat", None)
    monkeypatch.setattr(os, "lstat", None)
    assert mine.acquire(0)
    monkeypatch.undo()
    mine.release()


def test_it_needs_files(clock):
    with pytest.raises(UnsupportedOperationError):
        TapfileLock(MemoryStore(), KEY, ANNA, clock=clock)


def test_a_folder_in_its_place_is_an_error(lock, path):
    path.mkdir(parents=True)
    with pytest.raises(StoreError, match="a folder is where a file should be"):
        lock().acquire(0)


def test_a_folder_that_cannot_be_written_is_an_error(lock, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    mine = lock()
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StoreError, match="read-only"):
        mine.acquire(0)
    monkeypatch.undo()
    assert mine.acquire(0)


# What is to be seen


def test_it_says_who_has_it(lock):
    lock().acquire(0)
    seen = lock(BERT).inspect()
    assert (seen.record.agent, seen.record.host, seen.record.pid) == ("anna", "h1", os.getpid())


def test_nobody_has_it_at_first(lock):
    assert lock().inspect() is None


def test_an_empty_lock_says_nothing_but_its_age(lock, path):
    plain_lock(path)
    seen = lock().inspect()
    assert (seen.record, seen.size) == (None, 0)
    assert 0 <= seen.age_seconds < 5


def test_a_reader_never_sees_a_part_of_it(lock, path):
    stop, seen = threading.Event(), set()

    def read():
        while not stop.is_set():
            try:
                seen.add(path.read_bytes())
            except FileNotFoundError:
                continue

    reader = threading.Thread(target=read)
    reader.start()
    mine = lock()
    for _ in range(300):
        mine.acquire(1)
        mine.release()
    stop.set()
    reader.join()
    assert len(seen) <= 1


@pytest.mark.parametrize("content", [b"{}", b"null", b"\xff", b"4711\n", b'{"format": 1}'])
def test_what_others_write_into_their_lock_makes_it_theirs(lock, path, content):
    plain_lock(path, content)
    assert lock().inspect().record is None


# The dead and the stuck


@pytest.mark.skipif(process.myself() == Process(), reason="no /proc to tell the dead by")
def test_the_lock_of_a_dead_process_is_taken_at_once(lock, path):
    plain_lock(path, record(a_dead_process()))
    assert lock(BERT).acquire(0)


@pytest.mark.skipif(process.myself() == Process(), reason="no /proc to tell the dead by")
def test_the_lock_of_a_process_whose_pid_was_given_away_is_taken_at_once(lock, path):
    plain_lock(path, record(msgspec.structs.replace(process.myself(), started="1")))
    assert lock(BERT).acquire(0)


@pytest.mark.parametrize(
    "changes",
    [{"boot": "another"}, {"namespace": "pid:[1]"}, {"boot": ""}],
    ids=["another kernel", "another container", "unknown"],
)
def test_of_a_process_elsewhere_nothing_is_known(lock, path, changes):
    plain_lock(path, record(msgspec.structs.replace(a_dead_process(), **changes)))
    assert not lock(BERT).acquire(0)


def test_the_lock_of_a_living_process_is_respected(lock, path):
    plain_lock(path, record(process.myself()))
    assert not lock(BERT).acquire(0)


def test_a_process_that_ended_but_was_not_asked_how_is_dead():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    found = process.myself()
    _, started = process._status(child.pid)
    there = msgspec.structs.replace(found, pid=child.pid, started=started)
    assert not process.is_dead(there, here=found)
    child.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert process.is_dead(there, here=found)
    child.stdin.close()
    child.wait()


def test_a_lock_of_tapstore_that_stays_the_same_for_too_long_is_taken(lock, path, clock):
    plain_lock(path, record(NOWHERE))
    before = clock.monotonic()
    assert lock(BERT).acquire(60)
    assert 10 <= clock.monotonic() - before < 10.1


def test_what_was_seen_in_an_earlier_wait_counts(lock, path, clock):
    plain_lock(path, record(NOWHERE))
    mine = lock(BERT)
    assert not mine.acquire(6)
    clock.advance(5)
    assert mine.acquire(0)


def test_a_lock_that_changes_hands_is_not_stale(lock):
    held, mine = lock(), lock(BERT)
    held.acquire(0)
    for _ in range(5):
        before = mine.inspect().identity
        assert not mine.acquire(4)
        while mine.inspect().identity == before:  # within one tick of the file system's clock
            held.release()
            assert held.acquire(0)


def test_an_empty_lock_is_never_stale_by_itself(lock, path, clock):
    plain_lock(path)
    mine = lock()
    for _ in range(5):
        assert not mine.acquire(1)
        clock.advance(3600)
    assert path.exists()


def test_an_empty_lock_is_stale_when_the_policy_says_so(lock, path, clock):
    plain_lock(path)
    mine = lock(foreign_stale_after=600)
    assert not mine.acquire(1)
    clock.advance(600)
    assert mine.acquire(0)


def test_one_look_sees_that_a_lock_is_old_by_both_clocks(tmp_path, path, monkeypatch):
    plain_lock(path, record(NOWHERE))
    store = LocalStore(tmp_path, durability="none")
    later = ManualClock(wall=path.stat().st_ctime + 11)
    monkeypatch.setattr(store, "now", later.time)
    assert TapfileLock(store, KEY, BERT, clock=later).acquire(0)


@pytest.mark.parametrize(("host", "place"), [(11, 0), (0, 11)])
def test_one_look_is_not_enough_if_one_clock_says_that_it_is_young(
    tmp_path, path, monkeypatch, host, place
):
    plain_lock(path, record(NOWHERE))
    store = LocalStore(tmp_path, durability="none")
    linked = path.stat().st_ctime
    monkeypatch.setattr(store, "now", lambda: linked + place)
    assert not TapfileLock(store, KEY, BERT, clock=ManualClock(wall=linked + host)).acquire(0)


# Removing


def test_a_person_removes_what_was_seen(lock, path):
    plain_lock(path)
    mine = lock()
    mine.break_lock(mine.inspect().identity)
    assert not path.exists()


def test_a_person_does_not_remove_what_came_after(lock, path):
    plain_lock(path)
    mine = lock()
    seen = mine.inspect().identity
    path.unlink()
    plain_lock(path, b"another")
    with pytest.raises(ConflictError, match="changed hands"):
        mine.break_lock(seen)
    assert path.read_bytes() == b"another"


def test_removing_what_is_gone_is_fine(lock):
    lock().break_lock("1-2")


def test_two_who_judge_the_same_lock_remove_one(lock, path):
    plain_lock(path, record(NOWHERE))
    first, second = lock(), lock(BERT)
    seen = second.inspect().identity
    first.break_lock(seen)
    assert first.acquire(0)
    with pytest.raises(ConflictError):
        second.break_lock(seen)
    assert first.is_ours()


def at_rename(monkeypatch, action) -> None:
    """Have `action` happen between the last look at a lock and its removal."""
    real = os.rename

    def rename(source, target):
        monkeypatch.setattr(os, "rename", real)
        action()
        real(source, target)

    monkeypatch.setattr(os, "rename", rename)


def test_a_plain_lock_that_came_between_look_and_removal_is_given_back(lock, path, monkeypatch):
    plain_lock(path)
    mine = lock()
    seen = mine.inspect().identity

    def swap():
        path.unlink()
        plain_lock(path, b"new")

    at_rename(monkeypatch, swap)
    with pytest.raises(ConflictError):
        mine.break_lock(seen)
    assert path.read_bytes() == b"new"
    assert len(os.listdir(path.parent)) == 1


def test_no_lock_of_tapstore_can_come_between_look_and_removal(lock, path, monkeypatch):
    """The breaker is at it, the holder wakes up and gives it back: it has to wait."""
    holder = lock()
    holder.acquire(0)
    breaker = lock(BERT)
    seen = breaker.inspect().identity
    at_rename(monkeypatch, holder.release)
    breaker.break_lock(seen)
    assert not path.exists()
    assert breaker.acquire(0)


def test_a_holder_that_sleeps_while_it_gives_back_cannot_be_robbed(lock, path, monkeypatch):
    """Between its last look and its unlink nobody removes the lock, so no third one has it."""
    holder, thief = lock(), lock(BERT)
    holder.acquire(0)
    seen = thief.inspect().identity
    refused = []
    real = os.unlink

    def unlink(target):
        monkeypatch.setattr(os, "unlink", real)
        with pytest.raises(ConflictError) as caught:
            thief.break_lock(seen)
        refused.append(caught)
        real(target)

    monkeypatch.setattr(os, "unlink", unlink)
    holder.release()
    assert refused
    assert not path.exists()


def test_a_breaker_that_died_leaves_the_way_free(lock, path):
    plain_lock(path, record(NOWHERE))
    seen = lock().inspect().identity
    fd = ownfile.open_lock(str(path))
    with ownfile.removing(fd) as alone:
        assert alone
        with pytest.raises(ConflictError):
            lock().break_lock(seen)
    os.close(fd)
    lock().break_lock(seen)
    assert not path.exists()


# Forked


@pytest.fixture
def forked(tmp_path) -> Iterator[str]:
    program = """
import os, sys
from tapstore.locks.tapfile_lock import TapfileLock
from tapstore.stores.local import LocalStore
from tapstore.types import Owner

lock = TapfileLock(LocalStore(sys.argv[1]), ".tap/locks/tapfile.lock", Owner("anna", "a1"))
assert lock.acquire(0)
if not (child := os.fork()):
    lock.release()
    ours = lock.is_ours()
    sys.exit(0 if not ours and not lock.acquire(0) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert lock.is_ours()
lock.release()
assert lock.acquire(0)
lock.release()
print(os.listdir(f"{sys.argv[1]}/.tap/locks"))
"""
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(tmp_path)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def test_a_forked_child_has_no_part_in_the_lock(forked):
    assert forked.count(TEMP_MARK) == 1
