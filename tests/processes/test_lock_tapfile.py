"""`tapfile.lock` between processes: plain agents and tapstore's, some of them killed."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import signal
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import pytest

from tapstore.locks.tapfile_lock import TapfileLock
from tapstore.stores.local import LocalStore
from tapstore.types import Owner

KEY = ".tap/locks/tapfile.lock"
SHM = Path("/dev/shm")

# Children that inherit nothing: as separate as agents are.
spawn = multiprocessing.get_context("spawn")


@pytest.fixture(params=["disk", "tmpfs"])
def root(request, tmp_path):
    if request.param == "disk":
        folder = tmp_path / "root"
    elif os.access(SHM, os.W_OK):
        folder = Path(tempfile.mkdtemp(dir=SHM))
    else:
        pytest.skip("no writable tmpfs at /dev/shm")
    (folder / KEY).parent.mkdir(parents=True)
    yield folder
    shutil.rmtree(folder)


def tapfile_lock(root, name, **options):
    owner = Owner(agent=name, instance=f"{name}-{os.getpid()}", host="here", pid=os.getpid())
    return TapfileLock(LocalStore(root, durability="none"), KEY, owner, **options)


def eventually(condition, timeout=60):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


# Taking turns


class Diary:
    """When this process held the lock; a holding without an end was cut short."""

    def __init__(self, path):
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, event):
        os.write(self._fd, json.dumps([event, time.monotonic()]).encode() + b"\n")


def hold(diary, rng):
    diary.note("begin")
    time.sleep(rng.choice((0, 0, 0.0005, 0.002)))
    diary.note("end")


def plain(root, path, seed):
    """A plain agent: system calls, and nothing of tapstore's."""
    diary, rng, lock = Diary(path), random.Random(seed), root / KEY
    while True:
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_RDWR))
        except FileExistsError:
            time.sleep(0.001)
            continue
        hold(diary, rng)
        os.remove(lock)
        time.sleep(rng.uniform(0, 0.002))


def ours(root, path, seed):
    diary, rng, lock = Diary(path), random.Random(seed), tapfile_lock(root, f"worker-{seed}")
    while True:
        if lock.acquire(0.1):
            hold(diary, rng)
            assert lock.is_ours()
            lock.release()
        time.sleep(rng.uniform(0, 0.001))


def turns(root, diaries, seconds):
    """Let plain agents and ours take turns, and kill some of ours; when each was killed."""
    rng = random.Random(0)
    count, killed = 0, {}

    def start(target):
        nonlocal count
        count += 1
        name = f"{target.__name__}-{count}"
        process = spawn.Process(target=target, args=(root, diaries / name, count), name=name)
        process.start()
        return process

    theirs = [start(plain) for _ in range(2)]
    mine = [start(ours) for _ in range(4)]
    try:
        eventually(lambda: len(list(diaries.iterdir())) == count)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(rng.uniform(0, 0.1))
            victim = rng.choice(mine)
            if rng.random() < 0.6:
                # Too short to be taken for dead.
                os.kill(victim.pid, signal.SIGSTOP)
                time.sleep(rng.uniform(0, 0.05))
                os.kill(victim.pid, signal.SIGCONT)
            else:
                # From here on nothing is certain of it.
                killed[victim.name] = time.monotonic()
                victim.kill()
                victim.join()
                assert victim.exitcode == -signal.SIGKILL
                mine[mine.index(victim)] = start(ours)
        assert all(process.is_alive() for process in [*theirs, *mine])
    finally:
        for process in [*theirs, *mine]:
            killed.setdefault(process.name, time.monotonic())
            process.kill()
            process.join()
    return killed


def holdings(diaries, killed):
    found = []
    for path in diaries.iterdir():
        begin = None
        for line in path.read_text().splitlines():
            event, at = json.loads(line)
            if event == "end":
                found.append((begin, at, path.name))
            begin = at if event == "begin" else None
        if begin is not None:
            found.append((begin, max(begin, killed[path.name]), path.name))
    return sorted(found)


def run_turns(root, tmp_path, seconds):
    diaries = tmp_path / "diaries"
    diaries.mkdir()
    killed = turns(root, diaries, seconds)
    held = holdings(diaries, killed)
    for (_, end, before), (begin, _, after) in pairwise(held):
        assert end <= begin, f"{before} and {after}"
    for kind in ("plain", "ours"):
        assert sum(name.startswith(kind) for _, _, name in held) > seconds * 10
    # Locks were left behind by those who were killed, and taken by the next one.
    cut_short = [name for begin, end, name in held if name in killed and end == killed[name]]
    return len(cut_short)


def test_plain_agents_and_ours_never_hold_it_at_once(root, tmp_path):
    run_turns(root, tmp_path, 3)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_plain_agents_and_ours_never_hold_it_at_once_for_long(root, tmp_path):
    assert run_turns(root, tmp_path, 600)


# The dead and the stopped


def take_and_wait(root, pipe):
    lock = tapfile_lock(root, "holder")
    assert lock.acquire(1)
    pipe.send("taken")
    pipe.recv()
    os._exit(0 if not lock.is_ours() and lock.release() is None else 1)


@pytest.fixture
def holder(root):
    pipe, theirs = spawn.Pipe()
    process = spawn.Process(target=take_and_wait, args=(root, theirs))
    process.start()
    assert pipe.recv() == "taken"
    process.pipe = pipe
    yield process
    process.kill()
    process.join()


def test_the_lock_of_a_killed_holder_is_taken_at_once(root, holder):
    lock = tapfile_lock(root, "next")
    assert not lock.acquire(0)
    holder.kill()
    holder.join()
    assert lock.acquire(0)


def test_the_lock_of_a_stopped_holder_is_taken_after_a_while(root, holder):
    os.kill(holder.pid, signal.SIGSTOP)
    taken = (root / KEY).stat().st_ctime
    lock = tapfile_lock(root, "next", stale_after=0.3)
    assert lock.acquire(30)
    assert time.time() - taken >= 0.3


def test_a_holder_that_wakes_up_too_late_sees_it_and_removes_nothing(root, holder):
    os.kill(holder.pid, signal.SIGSTOP)
    lock = tapfile_lock(root, "next", stale_after=0.3)
    assert lock.acquire(30)
    holder.pipe.send("go on")
    os.kill(holder.pid, signal.SIGCONT)
    holder.join(60)
    assert holder.exitcode == 0
    assert lock.is_ours()


def test_the_empty_lock_of_a_killed_plain_agent_stays(root):
    diary = root / "diary"
    agent = spawn.Process(target=plain, args=(root, diary, 1))
    agent.start()
    # Killed until it was killed while it held the lock.
    eventually(lambda: diary.exists() and diary.read_text().count("begin") > 3)
    while True:
        os.kill(agent.pid, signal.SIGSTOP)
        if (root / KEY).exists():
            break
        os.kill(agent.pid, signal.SIGCONT)
    agent.kill()
    agent.join()
    lock = tapfile_lock(root, "next", stale_after=0.05)
    assert not lock.acquire(0.2)
    assert (root / KEY).read_bytes() == b""


# Several who judge the same lock


def break_in_rounds(root, path, number, rounds, barrier):
    diary, lock = Diary(path), tapfile_lock(root, f"breaker-{number}")
    for _ in range(rounds):
        barrier.wait()
        assert lock.acquire(30)
        diary.note("begin")
        diary.note("end")
        assert lock.is_ours()
        lock.release()
        # One of them leaves the lock of somebody who died.
        if barrier.wait() == 0:
            shutil.copyfile(root / "dead", root / "dead.tmp")
            os.rename(root / "dead.tmp", root / KEY)


def break_together(root, tmp_path, rounds):
    leave = spawn.Process(target=leave_dead_lock, args=(root,))
    leave.start()
    leave.join(60)
    os.rename(root / KEY, root / "dead")
    diaries = tmp_path / "diaries"
    diaries.mkdir()
    barrier = spawn.Barrier(6, timeout=60)
    processes = [
        spawn.Process(
            target=break_in_rounds, args=(root, diaries / str(number), number, rounds, barrier)
        )
        for number in range(6)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * 6
    held = holdings(diaries, {})
    assert len(held) == 6 * rounds
    for (_, end, _), (begin, _, _) in pairwise(held):
        assert end <= begin


def leave_dead_lock(root):
    tapfile_lock(root, "dead").acquire(0)
    os._exit(0)


def test_of_several_who_judge_a_dead_lock_only_one_removes_it(root, tmp_path):
    break_together(root, tmp_path, 40)
