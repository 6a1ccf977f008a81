"""A store for tests has to do what it is told."""

import errno

import pytest

from tapstore.errors import AlreadyExistsError, OutcomeUnknownError, StoreError
from tapstore.stores.memory import MemoryStore
from tapstore.testing.faults import Fault, FaultyStore, SimulatedCrash, crash, lost, refuse


@pytest.fixture
def memory():
    return MemoryStore()


def test_a_lost_request_did_not_happen(memory):
    with pytest.raises(OutcomeUnknownError, match="'a'"):
        FaultyStore(memory, Fault("put", before=lost)).put("a", b"x")
    assert list(memory.list()) == []


def test_a_lost_reply_did_happen(memory):
    with pytest.raises(OutcomeUnknownError):
        FaultyStore(memory, Fault("put", after=lost)).put("a", b"x")
    assert memory.get("a").data == b"x"


def test_a_call_that_failed_has_no_reply_to_lose(memory):
    memory.put("a", b"x")
    with pytest.raises(AlreadyExistsError):
        FaultyStore(memory, Fault("put", after=lost)).put("a", b"y")


def test_a_refusal_has_its_errno(memory):
    with pytest.raises(StoreError) as info:
        FaultyStore(memory, Fault("put", before=refuse(errno.ENOSPC))).put("a", b"x")
    assert info.value.errno == errno.ENOSPC


def test_only_the_calls_that_are_due_fail(memory):
    store = FaultyStore(memory, Fault("put", "log/*", nth=2, times=2, before=crash))
    outcomes = []
    for key in ("log/1", "other", "log/2", "log/3", "log/4"):
        try:
            store.put(key, b"")
            outcomes.append(key)
        except SimulatedCrash:
            outcomes.append("crash")
    assert outcomes == ["log/1", "other", "crash", "crash", "log/4"]


def test_a_crash_is_not_caught_as_an_exception():
    assert not issubclass(SimulatedCrash, Exception)


def test_an_action_may_let_somebody_else_in(memory):
    store = FaultyStore(memory, Fault("put", before=lambda key: memory.put(key, b"theirs")))
    with pytest.raises(AlreadyExistsError):
        store.put("a", b"ours")
