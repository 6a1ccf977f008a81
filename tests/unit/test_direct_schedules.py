"""Commits under compare-and-set in every order, on a place that loses and delays requests."""

import random

import pytest
from schedules import Place, Schedule, judge, land, run_all, run_seeds

from tapstore.clock import SYSTEM_CLOCK
from tapstore.errors import NotAllowedError, OutcomeUnknownError, StoreError
from tapstore.sessions import config as configs
from tapstore.sessions import direct, history
from tapstore.sessions.config import SessionConfig
from tapstore.sessions.direct import DirectRevisions
from tapstore.sessions.logwriter import LogWriter
from tapstore.sessions.state import SessionState, _RacedError, first_revision
from tapstore.sessions.view import NoView
from tapstore.stores.memory import MemoryStore
from tapstore.tapfile.model import Tapfile
from tapstore.tapfile.operations import SetPhase


@pytest.fixture(autouse=True)
def nothing_by_itself(monkeypatch):
    """The log is written when the schedule says so; and soon the Tapfile may carry no more."""
    monkeypatch.setattr(LogWriter, "_start", lambda *_: None)
    monkeypatch.setattr(direct, "MAX_CARRIED", 3)


class Patient(SessionState):
    """Says that a race is lost, instead of trying again."""

    def commit_once(self, operation):
        with self._alone():
            return self._try((operation,))


def create(store, fmt):
    config = SessionConfig(
        session_id="s", incarnation="i1", commits="direct", foreign=False, tapfile_format=fmt
    )
    tapfile = Tapfile(session_id="s", current_phase="first")
    direct.begin(store, config, first_revision(config, tapfile, by="", at=1.0))
    return config, configs.create(store, config)


def state(store, config, data):
    return Patient(
        store, config, DirectRevisions(store, config, data), NoView(store, config),
        clock=SYSTEM_CLOCK,
    )  # fmt: skip


def write(mine, name, rng, outcomes):
    for number in range(3):
        identity = f"{name}-{number}"
        operation = SetPhase(id=identity, phase=identity, by=name)
        outcomes[identity] = attempt(mine, operation)
        if rng.random() < 0.4:
            mine.flush()
        if rng.random() < 0.3:
            mine.revisions.seen = None


def attempt(mine, operation):
    for _ in range(3):
        try:
            snapshot = mine.commit_once(operation)
        except _RacedError:
            continue  # the same operation, on what the winner made
        except OutcomeUnknownError:
            return "unknown"
        except (StoreError, NotAllowedError):
            return "refused"
        assert snapshot.tapfile.current_phase == operation.id
        return "ok"
    return "refused"


def read(mine):
    last = 0
    for _ in range(5):
        rev = mine.peek().rev
        assert rev >= last
        last = rev
        heads = list(mine.log.records())
        assert [head.n for head in heads] == list(range(1, len(heads) + 1))
        assert len(heads) >= last


def run(seed):
    rng = random.Random(seed)
    store, late, outcomes = MemoryStore(), [], {}
    config, data = create(store, rng.choice(["json", "json", "yaml"]))
    trouble = rng.choice([0, 0.05, 0.15])
    names = ["a", "b", "c", "r"]
    schedule = Schedule(rng, names)

    def work(name):
        place = Place(store, name, schedule, rng, late, 0 if name == "r" else trouble)
        mine = state(place, config, data)
        if name == "r":
            read(mine)
        else:
            write(mine, name, rng, outcomes)

    errors = run_all(schedule, work, names)
    for request in late:
        land(store, request)
    check(state(store, config, data), outcomes, errors)


def check(fresh, outcomes, errors):
    assert list(history.verify(fresh.log)) == []
    landed = [identity for head in fresh.log.records() for identity in history.operation_ids(head)]
    judge(landed, outcomes, errors)
    assert fresh.peek().tapfile.current_phase == (landed[-1] if landed else "first")
    assert fresh.peek().rev == len(landed) + 1


def test_no_order_of_requests_and_no_fate_of_theirs_loses_or_doubles_a_commit():
    run_seeds(run, range(150))


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_nor_do_many_more():
    run_seeds(run, range(1000, 21_000))
