"""LocalStore between processes: exclusive creation, whole reads, and what SIGKILL leaves."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import tempfile
import time
from pathlib import Path

import pytest

from tapstore.errors import AlreadyExistsError, NotFoundError
from tapstore.keys import TEMP_MARK
from tapstore.stores.local import LocalStore
from tapstore.types import CREATE, OVERWRITE

SHM = Path("/dev/shm")
WRITERS = 8

# Children that inherit nothing: as separate as agents are.
spawn = multiprocessing.get_context("spawn")


@pytest.fixture(params=["disk", "tmpfs"])
def root(request, tmp_path):
    if request.param == "disk":
        yield tmp_path / "root"
        return
    if not os.access(SHM, os.W_OK):
        pytest.skip("no writable tmpfs at /dev/shm")
    folder = Path(tempfile.mkdtemp(dir=SHM))
    yield folder / "root"
    shutil.rmtree(folder)


def content(writer, number):
    """Whole if it is as long as it says, and of one writer and number."""
    body = b"%d:%d\n" % (writer, number) * (1 + number % 40)
    return b"%08d" % len(body) + body


def is_whole(data):
    lines = data[8:].splitlines()
    return len(data) >= 8 and int(data[:8]) == len(data) - 8 and len(set(lines)) == 1


def start(target, *arguments):
    process = spawn.Process(target=target, args=arguments)
    process.start()
    return process


def end_well(processes):
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * len(processes)


# Creation


def create_in_rounds(root, writer, rounds, barrier, wins):
    store = LocalStore(root, durability="none")
    for number in range(rounds):
        barrier.wait()
        try:
            store.put(f"race/{number}", content(writer, number), CREATE)
        except AlreadyExistsError:
            continue
        wins.put((number, writer))


def race_of_creations(root, rounds):
    barrier, wins = spawn.Barrier(WRITERS), spawn.Queue()
    processes = [
        start(create_in_rounds, root, writer, rounds, barrier, wins) for writer in range(WRITERS)
    ]
    won = [wins.get(timeout=60) for _ in range(rounds)]
    end_well(processes)
    assert wins.empty()
    assert sorted(number for number, _ in won) == list(range(rounds))
    store = LocalStore(root)
    for number, writer in won:
        assert store.get(f"race/{number}").data == content(writer, number)


def test_of_eight_processes_exactly_one_creates_each_key(root):
    race_of_creations(root, 150)


@pytest.mark.soak
def test_of_eight_processes_exactly_one_creates_each_of_many_keys(root):
    race_of_creations(root, 10_000)


# Overwriting


def overwrite_until(root, writer, stop):
    store = LocalStore(root, durability="none")
    number = 0
    while not stop.is_set():
        store.put("state", content(writer, number), OVERWRITE)
        number += 1


def read_until_seen(root, wanted, results):
    store = LocalStore(root)
    seen = set()
    torn = reads = 0
    deadline = time.monotonic() + 60
    while len(seen) < wanted and time.monotonic() < deadline:
        data = store.get("state").data
        reads += 1
        torn += not is_whole(data)
        seen.add(data)
    results.put((len(seen), torn, reads))


def test_readers_never_see_a_part_or_nothing_while_it_is_overwritten(root):
    LocalStore(root).put("state", content(0, 0))
    stop, results = spawn.Event(), spawn.Queue()
    writers = [start(overwrite_until, root, writer, stop) for writer in range(2)]
    readers = [start(read_until_seen, root, 150, results) for _ in range(2)]
    answers = [results.get(timeout=90) for _ in readers]
    stop.set()
    end_well(writers + readers)
    assert all(torn == 0 for _, torn, _ in answers)
    assert all(seen >= 150 for seen, _, _ in answers)


# Death


def write_for_ever(root, writer, ready):
    # Big enough that writing takes most of the time.
    store = LocalStore(root)
    padding = b"." * 300_000
    ready.set()
    number = 0
    while True:
        number += 1
        store.put(f"own/{writer}", content(writer, number) + padding, OVERWRITE)
        store.put(f"log/{writer}-{number}", content(writer, number) + padding, CREATE)


def kill_at_random(root, deaths, seed):
    chance = random.Random(seed)
    for death in range(deaths):
        ready = spawn.Event()
        process = start(write_for_ever, root, death, ready)
        assert ready.wait(60)
        time.sleep(chance.uniform(0, 0.05))  # the moment of death is what is random here
        os.kill(process.pid, signal.SIGKILL)
        process.join(60)
        assert process.exitcode == -signal.SIGKILL


def judge_what_is_left(root):
    store = LocalStore(root)
    objects = list(store.list())
    assert objects
    for info in objects:
        data = store.get(info.key).data.rstrip(b".")
        assert is_whole(data), info
    others = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()} - {
        info.key for info in objects
    }
    assert all(Path(name).name.startswith(TEMP_MARK) for name in others)
    old = time.time() - 3600
    for name in others:
        os.utime(root / name, (old, old))
    assert set(store.sweep(600)) == others
    assert [info.key for info in store.list()] == [info.key for info in objects]


def test_death_while_writing_leaves_whole_objects_and_temporary_files_only(root):
    kill_at_random(root, 8, seed=1)
    judge_what_is_left(root)


@pytest.mark.soak
def test_many_deaths_while_writing_leave_whole_objects_and_temporary_files_only(root):
    kill_at_random(root, 500, seed=int(time.time()))
    judge_what_is_left(root)


STEPS = ["open", "write", "fsync", "close", "link", "unlink", "replace"]


def die_at(root, step, mode):
    """Die right after the first call of `os.<step>` that the write makes."""
    store = LocalStore(root)
    function = getattr(os, step)

    def call(*arguments):
        function(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(os, step, call)
    store.put("a/key", b"new content", mode)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("mode", [CREATE, OVERWRITE])
def test_death_after_any_step_leaves_the_old_state_or_the_new_one(tmp_path, step, mode):
    store = LocalStore(tmp_path)
    store.put("a/other", b"untouched")
    if mode is OVERWRITE:
        store.put("a/key", b"old content")
    process = start(die_at, tmp_path, step, mode)
    process.join(60)
    skipped = {CREATE: ["replace"], OVERWRITE: ["link", "unlink"]}[mode]
    assert process.exitcode == (0 if step in skipped else -signal.SIGKILL)
    try:
        found = store.get("a/key").data
    except NotFoundError:
        found = None
    done = step in ("link", "unlink", "replace") or process.exitcode == 0
    assert found == (b"new content" if done else {CREATE: None, OVERWRITE: b"old content"}[mode])
    assert store.get("a/other").data == b"untouched"


def test_a_write_after_a_death_is_not_in_the_way_of_what_it_left(tmp_path):
    process = start(die_at, tmp_path, "fsync", CREATE)
    process.join(60)
    store = LocalStore(tmp_path)
    store.put("a/key", b"another's")
    assert store.get("a/key").data == b"another's"
