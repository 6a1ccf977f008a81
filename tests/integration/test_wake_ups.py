"""Who waits is woken by the bell of the lock service, and looks by himself without it."""

import subprocess
import sys
import threading
import time
from contextlib import closing

import pytest

import tapstore
from tapstore.agents import HandoffSpec, HandoffWorker
from tapstore.handoffs.queue import opening
from tapstore.sessions import waiting
from tapstore.sessions.config import new_id
from tapstore.sessions.waiting import Waiter
from tapstore.stores.memory import MemoryStore


@pytest.fixture
def store():
    return MemoryStore(f"memory://{new_id()}/s")


@pytest.fixture
def patient(monkeypatch):
    """Nobody looks by himself for a minute."""
    monkeypatch.setattr(waiting, "MAX_INTERVAL_SECONDS", 60.0)
    monkeypatch.setattr(waiting, "MIN_INTERVAL_SECONDS", 60.0)


def wait_in_thread(store, results):
    def wait():
        with tapstore.open(store) as session:
            session.wait_for(phase="next", timeout=50)
            results.append(time.monotonic())

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def subscribers(server):
    with server.client() as client:
        return sum(number for _, number in client.pubsub_numsub(*client.pubsub_channels()))


@pytest.mark.usefixtures("patient")
def test_a_hand_off_wakes_who_waits_for_one(store, redis_like):
    with tapstore.create(store, roles=["coder", "QA"], locks=redis_like.url) as session:
        woken = []

        def wait():
            with tapstore.open(store) as mine:
                mailbox = opening.open(mine, role="QA", agent="q")
                waiter = Waiter(mine.store, mine.clock, timeout=50, open_bell=mine.locks.bell)
                while mailbox.next() is None and waiter.wait():
                    pass
                woken.append(time.monotonic())
                waiter.close()

        thread = threading.Thread(target=wait)
        thread.start()
        deadline = time.monotonic() + 30
        while not subscribers(redis_like):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        sender = opening.open(session, role="coder", agent="c")
        sender.send(b"type: note\nto: QA\npriority: 50\nmessage: wake up\n")
        sent = time.monotonic()
        thread.join(40)
        assert woken, "not woken before it would have looked by itself"
        assert woken[0] - sent < 30


@pytest.mark.usefixtures("patient")
def test_a_hand_off_wakes_an_agent_that_waits_for_work(store, redis_like):
    with tapstore.create(store, roles=["coder", "QA"], locks=redis_like.url) as session:
        woken = []

        def work():
            with tapstore.open(store) as mine:
                spec = HandoffSpec(agent="q", role="QA")
                HandoffWorker(mine, spec, woken.append).run_once(wait=50)

        thread = threading.Thread(target=work)
        thread.start()
        deadline = time.monotonic() + 30
        while not subscribers(redis_like):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        sent = time.monotonic()
        sender = opening.open(session, role="coder", agent="c")
        sender.send(b"type: note\nto: QA\npriority: 50\nmessage: wake up\n")
        thread.join(40)
        assert woken, "not woken before it would have looked by itself"
        assert time.monotonic() - sent < 30


@pytest.mark.usefixtures("patient")
def test_a_commit_wakes_who_waits_for_it(store, redis_like):
    with tapstore.create(store, roles=["r"], phase="first", locks=redis_like.url) as session:
        woken = []
        thread = wait_in_thread(store, woken)
        deadline = time.monotonic() + 30
        while not subscribers(redis_like):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        session.set_phase("next")
        committed = time.monotonic()
        thread.join(40)
        assert woken, "not woken before it would have looked by itself"
        assert woken[0] - committed < 30


def test_a_program_that_commits_and_ends_rings_before_it_ends(tmp_path, redis_like):
    with (
        tapstore.create(tmp_path, roles=["r"], phase="p", locks=redis_like.url) as session,
        closing(session.locks.bell()) as bell,
    ):
        bell.wait(30)  # the first may return at once
        for number in range(5):  # a busy machine may not come to it in time
            command = [sys.executable, "-m", "tapstore", "-w", tmp_path, "phase", f"p{number}"]
            subprocess.run(command, check=True, capture_output=True)
            if bell.wait(5):
                break
        else:
            pytest.fail("five programs committed, and none rang")


def test_without_the_service_who_waits_looks_by_himself(store, redis_like):
    with tapstore.create(store, roles=["r"], phase="first", locks=redis_like.url) as session:
        redis_like.stop()
        try:
            woken = []
            thread = wait_in_thread(store, woken)
            session.set_phase("next")
            thread.join(40)
            assert woken
        finally:
            redis_like.restart(keep_data=False)
