"""Who is alive is told from who is not, also in awkward moments."""

import threading

import pytest

import tapstore
from tapstore.testing.faults import Fault, FaultyStore, lost


@pytest.fixture
def session(tmp_path):
    with tapstore.create(
        str(tmp_path / "s"), roles={"coder": 1, "reviewer": 2}, phase="start"
    ) as session:
        yield session


class SlowLock:
    """A `tapfile.lock` that one waits for until `free` is set."""

    def __init__(self):
        self.wanted, self.free = threading.Event(), threading.Event()

    def acquire(self, wait):  # noqa: ARG002
        self.wanted.set()
        return not self.free.wait(30)

    def is_ours(self):
        return False

    def release(self):
        pass


def test_heartbeats_go_on_while_another_thread_waits_to_commit(session):
    claim = session.claim("coder", agent="a")
    session.state._view._lock = lock = SlowLock()
    commit = threading.Thread(target=session.set_phase, args=("next",))
    commit.start()
    lock.wanted.wait(10)
    beat = threading.Thread(target=claim.heartbeat)
    beat.start()
    beat.join(10)
    in_time = not beat.is_alive()
    lock.free.set()
    commit.join()
    beat.join()
    claim.release()
    assert in_time


def test_a_heartbeat_right_after_the_claim_was_completed_is_no_loss(session):
    told = []
    claim = session.claim("coder", agent="a", on_lost=told.append)
    commit = session.state.commit

    def commit_and_beat(*operations):
        snapshot = commit(*operations)
        claim.heartbeat()  # as the thread would if it were due now
        return snapshot

    session.state.commit = commit_and_beat
    claim.complete()
    assert not claim.lost.is_set()
    assert told == []


def test_a_heartbeat_after_a_refused_completion_still_notices_the_loss(session):
    claim = session.claim("coder", agent="a")
    with pytest.raises(tapstore.InvalidKeyError):
        claim.complete(phase=" ")
    claim.heartbeat()
    session.reset("coder")
    with pytest.raises(tapstore.ClaimLostError):
        claim.heartbeat()
    claim.detach()


def test_a_claim_whose_heartbeats_fail_is_lost_as_a_claim(session):
    claim = session.claim("coder", agent="a", ttl=0.2)
    session.state.store = FaultyStore(session.store, Fault("*", "*", times=999, before=lost))
    assert claim.lost.wait(10)
    with pytest.raises(tapstore.ClaimLostError):
        claim.check()
    session.state.store = session.store
    claim.detach()
