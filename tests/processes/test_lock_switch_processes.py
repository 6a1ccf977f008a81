"""Processes that fight for a lease while others switch the session between files and a server.

All are stopped, resumed, killed and replaced at any moment.  Processes of a host share one
monotonic clock, so what each of them believed can be compared.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import time

import pytest

import tapstore
from tapstore.errors import ConflictError, LeaseLostError, LeaseUnavailableError
from tapstore.sessions.lockservice import GENERATION_BITS
from tests.processes.test_lock_leases import NAME, check, eventually, owner, read

WORKERS = 5
SWITCHERS = 2
TTL = 0.6

spawn = multiprocessing.get_context("spawn")


def contend(place, diary, seed):
    """Hold the lease, renew it now and then, and write down what may be relied on until when."""
    rng = random.Random(seed)
    me = owner(f"worker-{seed}")
    locks = tapstore.open(place).locks
    file = os.open(diary, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(lease, event):
        entry = {"n": lease.generation, "at": time.monotonic(), "until": lease.expires, **event}
        os.write(file, json.dumps(entry).encode() + b"\n")

    while True:
        try:
            lease = locks.acquire(NAME, me, ttl=TTL, wait=rng.choice((0, 1, 60)))
        except LeaseUnavailableError:
            time.sleep(rng.uniform(0, TTL / 4))
            continue
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


def switch(place, server, seed):
    """Have everybody go to the other service, again and again."""
    rng = random.Random(seed)
    session = tapstore.open(place)
    while True:
        time.sleep(rng.uniform(0, 0.3))
        used = session.locks.name
        to = used if rng.random() < 0.5 else server if used == "o_excl" else "o_excl"
        try:
            session.switch_locks(to, wait=rng.choice((0, 1, 5)))
        except (LeaseUnavailableError, ConflictError):
            pass


def storm(place, server, diaries, seconds, seed=0):
    rng = random.Random(seed)
    count = 0

    def start(target):
        nonlocal count
        count += 1
        arguments = (
            (place, diaries / f"{count}", count) if target is contend else (place, server, count)
        )
        process = spawn.Process(target=target, args=arguments)
        process.start()
        return process

    targets = [contend] * WORKERS + [switch] * SWITCHERS
    processes = [start(target) for target in targets]
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
            if chance < 0.02:
                index = processes.index(victim)
                victim.kill()
                victim.join()
                processes[index] = start(targets[index])
            elif chance < 0.2 and len(stopped) < 3:
                os.kill(victim.pid, signal.SIGSTOP)
                stopped[victim] = now + rng.uniform(0, 3 * TTL)
    finally:
        for process in processes:
            process.kill()
            process.join()
    return count - len(targets)


def run_storm(place, server, tmp_path, seconds):
    diaries = tmp_path / "diaries"
    diaries.mkdir()
    tapstore.create(place, locks="o_excl").close()
    killed = storm(place, server.url, diaries, seconds)
    granted = check(read(diaries))
    numbers = {generation >> GENERATION_BITS for generation in granted}
    assert killed
    assert len(numbers) >= 3, "they hardly switched"
    assert len(granted) > 2 * seconds, "they hardly got on"
    # Whoever died last, holder or switcher, does not keep others out.
    with tapstore.open(place) as session:
        lease = session.locks.acquire(NAME, owner("next"), ttl=TTL, wait=60)
        assert lease.generation > granted[-1]
        session.locks.release(lease)
        assert session.switch_locks(session.locks.name, wait=60).locks


def test_holders_never_overlap_while_the_service_changes_under_them(tmpfs_path, valkey, tmp_path):
    run_storm(str(tmpfs_path / "s"), valkey, tmp_path, 12)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_holders_never_overlap_for_long(tmpfs_path, valkey, tmp_path):
    run_storm(str(tmpfs_path / "s"), valkey, tmp_path, 900)
