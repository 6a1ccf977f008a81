"""Writers and readers of one commit log in every order, on a place that loses and delays requests.

Each run follows from its seed: which thread makes its next request, and what becomes of it.
"""

import random

import pytest
from schedules import Place, Schedule, judge, land, run_all, run_seeds

from tapstore.commitlog import CommitLog
from tapstore.errors import ConflictError, OutcomeUnknownError, StoreError
from tapstore.stores.memory import MemoryStore


def write(log, name, rng, outcomes):
    """Commit three times, and say what became of each."""
    known = None
    for number in range(3):
        write_id = f"{name}-{number}"
        try:
            head, content = log.read(known)
        except StoreError:
            continue
        outcome = commit(log, head, write_id, content.decode())
        outcomes[write_id] = outcome
        known = head if rng.random() < 0.5 else None
        if outcome == "ok":
            known = log.at_any_cost(head.n + 1)
            log.collect(known)


def commit(log, head, write_id, follows):
    outcome = None
    for _ in range(3):
        try:
            log.commit(head, write_id, write_id.encode(), {"follows": follows})
            return "ok"
        except ConflictError:
            return "refused"
        except OutcomeUnknownError:
            outcome = "unknown"
        except StoreError:
            # Of the attempt before it says nothing.
            if outcome is None:
                return "refused"
    return outcome


class Log(CommitLog):
    def at_any_cost(self, n):
        while True:
            try:
                return self.at(n)
            except StoreError:
                continue


def read(log):
    """What is read fits together, and never goes back."""
    last = 0
    for _ in range(4):
        head, content = log.read()
        assert content == head.record.write_id.encode()
        assert head.n >= last
        last = head.n


def run(seed):
    rng = random.Random(seed)
    store, late, outcomes = MemoryStore(), [], {}
    CommitLog(store, "x").commit(None, "first", b"first", {"follows": ""})
    keep, trouble = rng.choice([1, 1, 2]), rng.choice([0, 0.05, 0.15])
    names = ["a", "b", "c", "r"]
    schedule = Schedule(rng, names)

    def work(name):
        place = Place(store, name, schedule, rng, late, 0 if name == "r" else trouble)
        log = Log(place, "x", keep=keep)
        if name == "r":
            read(log)
        else:
            write(log, name, rng, outcomes)

    errors = run_all(schedule, work, names)
    for request in late:
        land(store, request)
    check(CommitLog(store, "x"), outcomes, errors)


def check(log, outcomes, errors):
    heads = list(log.records())
    landed = [head.record.write_id for head in heads]
    judge(landed, outcomes, errors)
    assert [head.record.entry["follows"] for head in heads] == ["", *landed[:-1]], "lost update"
    assert log.read()[1] == landed[-1].encode()


def test_no_order_of_requests_and_no_fate_of_theirs_loses_or_doubles_a_commit():
    run_seeds(run, range(250))


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_nor_do_many_more():
    run_seeds(run, range(1000, 21_000))
