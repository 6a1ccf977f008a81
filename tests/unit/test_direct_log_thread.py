"""Who logs what was committed, and when it ends."""

import threading
import time

from test_direct import Counting

import tapstore
from tapstore.sessions import history, logwriter
from tapstore.sessions.logwriter import LogWriter
from tapstore.stores.memory import MemoryStore


def log_threads():
    return [t for t in threading.enumerate() if t.name == "tapstore-log"]


def until(condition):
    end = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_who_only_reads_starts_no_thread_and_writes_nothing():
    store = MemoryStore()
    dead = tapstore.create(store, roles=["coder"], phase="one")
    dead.set_phase("two")
    before = log_threads()
    counting = Counting(store)
    with tapstore.open(counting) as reader:
        assert reader.phase == "two"
        list(reader.log())
        assert log_threads() == before
    assert "PUT" not in counting.requests


def test_the_log_thread_ends_with_its_session():
    store = MemoryStore()
    before = len(log_threads())
    session = tapstore.create(store, roles=["coder"], phase="one")
    session.set_phase("two")
    assert len(log_threads()) == before + 1
    session.close()
    until(lambda: len(log_threads()) == before)
    session.set_phase("three")
    session.close()
    assert [h.n for h in session.state.revisions._segments.records()] == [1, 2, 3]


def test_sessions_that_nobody_closes_keep_no_thread(monkeypatch):
    monkeypatch.setattr(logwriter, "DELAY_SECONDS", 0.0)
    monkeypatch.setattr(logwriter, "IDLE_SECONDS", 0.01)
    store = MemoryStore()
    before = len(log_threads())
    session = tapstore.create(store, roles=["coder"], phase="one")
    for n in range(2):  # and each that commits again has one again
        session.set_phase(f"p{n}")
        until(lambda: len(log_threads()) == before)
        records = session.state.revisions._segments.records()
        assert [head.n for head in records] == list(range(1, n + 3))


def test_a_record_among_segments_of_one_is_found_by_two_requests(monkeypatch):
    monkeypatch.setattr(LogWriter, "_start", lambda *_: None)
    store = MemoryStore()
    session = tapstore.create(store, roles=["coder"], phase="one")
    for n in range(100):
        session.set_phase(f"p{n}")
        session.state.flush()
    counting = Counting(store)
    fresh = tapstore.open(counting)
    _ = fresh.phase
    counting.take()
    assert fresh.state.log.at(90).n == 90
    assert counting.take() == {"LIST": 1, "GET": 1}
    assert [e.rev for e in fresh.log(after=95)] == list(range(96, 102))
    assert counting.take() == {"304": 1, "LIST": 1, "GET": 6}
    assert list(history.verify(fresh.state.log)) == []
    assert counting.take()["GET"] <= 101
