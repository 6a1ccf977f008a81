"""Leases between processes: holders that are killed, stopped and resumed at any moment.

All processes of a host share one monotonic clock, so what each of them believed can be compared.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tapstore.errors import LeaseLostError, LeaseUnavailableError
from tapstore.locks import lease as lease_module
from tapstore.locks import records
from tapstore.locks.lease import LeaseService
from tapstore.stores.local import LocalStore
from tapstore.testing.clock import ManualClock
from tapstore.testing.faults import Fault, FaultyStore, kill
from tapstore.types import Owner

SHM = Path("/dev/shm")
WORKERS = 8
TTL = 0.4
NAME = "gpu-0"

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


def service(root):
    return LeaseService(LocalStore(root, durability="none"))


def owner(name):
    return Owner(agent=name, instance=f"{name}-{os.getpid()}", host="here", pid=os.getpid())


def eventually(condition, timeout=60):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


# A storm


def contend(root, diary, seed):
    """Hold the lease, renew it now and then, and write down what may be relied on until when."""
    # So that numbers are collected while somebody sleeps on them.
    records.BLOCK, records.KEEP, lease_module._COLLECT_EVERY = 4, 2, 2
    rng = random.Random(seed)
    locks, me = service(root), owner(f"worker-{seed}")
    file = os.open(diary, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(lease, event):
        entry = {"n": lease.generation, "at": time.monotonic(), "until": lease.expires, **event}
        os.write(file, json.dumps(entry).encode() + b"\n")

    while True:
        lease = locks.acquire(NAME, me, ttl=TTL, wait=None)
        note(lease, {"event": "granted"})
        try:
            for _ in range(rng.choice((0, 0, 1, 4))):
                time.sleep(rng.uniform(0, TTL / 8))
                lease = locks.renew(lease)
                note(lease, {"event": "renewed"})
        except LeaseLostError:
            note(lease, {"event": "lost"})
            continue
        time.sleep(rng.uniform(0, 0.005))
        note(lease, {"event": "released"})
        locks.release(lease)


def storm(root, diaries, seconds, seed=0):
    """Contenders that are stopped, resumed, killed and replaced; how many were killed."""
    rng = random.Random(seed)
    count = 0

    def start():
        nonlocal count
        count += 1
        process = spawn.Process(target=contend, args=(root, diaries / f"{count}", count))
        process.start()
        return process

    processes = [start() for _ in range(WORKERS)]
    stopped = {}
    try:
        eventually(lambda: len(list(diaries.iterdir())) == WORKERS)
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            time.sleep(0.02)
            for process in [p for p, until in stopped.items() if until < now]:
                os.kill(process.pid, signal.SIGCONT)
                del stopped[process]
            victim = rng.choice([p for p in processes if p not in stopped])
            chance = rng.random()
            if chance < 0.04:
                victim.kill()
                victim.join()
                processes[processes.index(victim)] = start()
            elif chance < 0.3 and len(stopped) < WORKERS - 2:
                os.kill(victim.pid, signal.SIGSTOP)
                stopped[victim] = now + rng.uniform(0, 3 * TTL)
    finally:
        for process in processes:
            process.kill()
            process.join()
    return count - WORKERS


def read(diaries):
    return sorted(
        (
            {**json.loads(line), "who": path.name}
            for path in diaries.iterdir()
            for line in path.read_text().splitlines()
        ),
        key=lambda entry: entry["at"],
    )


def beliefs(entries):
    """For each grant: since when and until when its holder relied on it at most."""
    spans = {}
    for entry in entries:
        generation = entry["n"]
        if entry["event"] in ("granted", "renewed"):
            # A renewal that came back late leaves a gap; nobody relied on it in between.
            spans.setdefault(generation, []).append([entry["at"], entry["until"]])
        else:
            for span in spans[generation]:
                span[1] = min(span[1], entry["at"])
    return sorted(
        (begin, end, generation)
        for generation, found in spans.items()
        for begin, end in found
        if end > begin
    )


def check(entries):
    held = beliefs(entries)
    latest_end, latest = 0.0, 0
    for begin, end, generation in held:
        assert generation == latest or begin >= latest_end, (
            f"{generation} held from {begin}, {latest} until {latest_end}"
        )
        assert generation >= latest
        latest_end, latest = max(end, latest_end), generation
    granted = [entry["n"] for entry in entries if entry["event"] == "granted"]
    assert granted == sorted(set(granted))
    return granted


def run_storm(root, tmp_path, seconds):
    diaries = tmp_path / "diaries"
    diaries.mkdir()
    killed = storm(root, diaries, seconds)
    entries = read(diaries)
    granted = check(entries)
    assert killed
    assert len(granted) > seconds * 2, "they hardly got on"
    # Whoever died last does not keep others out.
    assert service(root).acquire(NAME, owner("next"), ttl=TTL, wait=20).generation > granted[-1]


def test_holders_under_kill_and_stop_never_overlap(root, tmp_path):
    run_storm(root, tmp_path, 4)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_holders_under_kill_and_stop_never_overlap_for_long(root, tmp_path):
    run_storm(root, tmp_path, 600)


def test_the_check_sees_two_holders():
    entries = [
        {"n": 1, "at": 1.0, "until": 3.0, "event": "granted"},
        {"n": 2, "at": 2.0, "until": 4.0, "event": "granted"},
    ]
    with pytest.raises(AssertionError, match="2 held from"):
        check(entries)


# Stopped and resumed

GUARDED = """
import json, os, sys, time
from tapstore.errors import LeaseLostError
from tapstore.locks.guard import Guard
from tapstore.locks.lease import LeaseService
from tapstore.stores.local import LocalStore
from tapstore.types import Owner

service = LeaseService(LocalStore(sys.argv[1], durability="none"))
guard = Guard(service, service.acquire("gpu-0", Owner("stopped", "s1"), ttl=0.5))
while True:
    at = time.monotonic()
    try:
        guard.check()
        fine = not guard.lost.is_set()
    except LeaseLostError:
        fine = False
    os.write(1, json.dumps({"at": at, "fine": fine}).encode() + b"\\n")
    if not fine:
        guard.release()
        break
    time.sleep(0.001)
"""


def test_a_holder_that_was_stopped_past_its_ttl_sees_at_once_that_it_lost(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", GUARDED, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert json.loads(holder.stdout.readline())["fine"]
        holder.send_signal(signal.SIGSTOP)
        locks = service(tmp_path)
        lease = locks.acquire(NAME, owner("next"), ttl=60, wait=30)
        granted = time.monotonic()
        holder.send_signal(signal.SIGCONT)
        seen = [json.loads(line) for line in holder.stdout]
        assert holder.wait(60) == 0
    assert [look["fine"] for look in seen if look["at"] >= granted] == [False]
    # What it gave back afterwards was its own.
    assert locks.renew(lease).generation == 2


def sleep_before_create(root, answers):
    def stop(_):
        os.kill(os.getpid(), signal.SIGSTOP)

    store = FaultyStore(LocalStore(root, durability="none"), Fault("put", "*/grant-*", before=stop))
    try:
        lease = LeaseService(store).acquire(NAME, owner("sleeper"), ttl=60)
    except LeaseUnavailableError as exc:
        answers.put(str(exc))
    else:
        answers.put(lease.generation)


def test_a_contender_that_was_stopped_until_its_number_was_collected_is_not_granted(tmp_path):
    others = service(tmp_path)
    others.release(others.acquire(NAME, owner("first"), ttl=60))
    answers = spawn.Queue()
    sleeper = spawn.Process(target=sleep_before_create, args=(tmp_path, answers))
    sleeper.start()
    assert os.WIFSTOPPED(os.waitpid(sleeper.pid, os.WUNTRACED)[1])
    for _ in range(200):
        others.release(others.acquire(NAME, owner("other"), ttl=60))
    held = others.acquire(NAME, owner("holder"), ttl=60)
    folder = tmp_path / ".tap/locks" / NAME
    assert not (folder / "grant-000000000002").exists()
    os.kill(sleeper.pid, signal.SIGCONT)
    assert "holder" in answers.get(timeout=60)
    sleeper.join(60)
    assert not (folder / "grant-000000000002").exists()
    assert others.renew(held).generation == 202


# Killed at each step

STEPS = 40


def live(root, step):
    """Take over from somebody who died, renew, release, collect; die before request `step`."""
    records.BLOCK, records.KEEP, lease_module._COLLECT_EVERY = 4, 2, 2
    clock = ManualClock()
    store = LocalStore(root, durability="none")
    others = LeaseService(store, clock=clock)
    for _ in range(7):
        others.release(others.acquire(NAME, owner("other"), ttl=30))
    others.acquire(NAME, owner("dead"), ttl=30)
    with pytest.raises(LeaseUnavailableError):
        others.acquire(NAME, owner("other"), ttl=30)
    clock.advance(30)
    locks = LeaseService(FaultyStore(store, Fault("*", nth=step, before=kill)), clock=clock)
    locks._observer = others._observer
    for _ in range(2):
        lease = locks.acquire(NAME, owner("dying"), ttl=30)
        locks.release(locks.renew(lease))


ZYGOTE = """
import os, signal, sys
sys.path.insert(0, sys.argv[3])
from tests.processes import test_lock_leases as test

for step in range(1, int(sys.argv[2]) + 1):
    if not (child := os.fork()):
        test.live(f"{sys.argv[1]}/{step}", step)
        os._exit(0)
    print(-os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def deaths(tmp_path_factory):
    """What is left by processes that were killed before their n-th request, for each n."""
    folder = tmp_path_factory.mktemp("deaths")
    result = subprocess.run(
        [sys.executable, "-c", ZYGOTE, str(folder), str(STEPS), str(Path(__file__).parents[2])],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    return folder, list(map(int, result.stdout.split()))


@pytest.mark.parametrize("step", range(1, STEPS))
def test_after_a_kill_before_any_request_the_next_contender_goes_on(deaths, step):
    root = deaths[0] / str(step)
    names = os.listdir(root / ".tap/locks" / NAME)
    known = max(int(name.split("-")[1]) for name in names if name.startswith("grant-"))
    locks = LeaseService(LocalStore(root, durability="none"), clock=ManualClock())
    assert locks.acquire(NAME, owner("next"), ttl=30, wait=90).generation == known + 1


def test_the_kills_come_at_every_request_of_a_life(deaths):
    signals = deaths[1]
    lived = signals.index(0)
    assert signals == [signal.SIGKILL] * lived + [0] * (STEPS - lived)
    assert lived > 30
