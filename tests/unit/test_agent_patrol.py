"""Waiting for work goes on when a place fails for a while, and ends when it is told to."""

import errno
import logging

import pytest

import tapstore
from tapstore.agents import AgentSpec, Ending, Worker, WorkFilter
from tapstore.errors import SessionNotFoundError
from tapstore.sessions import config as configs
from tapstore.sessions.config import new_id
from tapstore.sessions.opening import assemble
from tapstore.testing.clock import ManualClock
from tapstore.testing.faults import Fault, FaultyStore, lost, refuse

WAITS = WorkFilter(role="coder", when_phase="go")


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def session(clock):
    with tapstore.create(
        f"memory://{new_id()}/s", roles=["coder"], phase="p", clock=clock
    ) as session:
        yield session


def faulty(session, clock, *faults):
    data = configs.raw(session.store)
    config = configs.parse(session.store, data)
    return assemble(FaultyStore(session.store, *faults), config, data, clock)


def do_nothing(_work):
    pass


def worker(session, handler=do_nothing):
    return Worker(session, AgentSpec(agent="a1", work=WAITS), handler)


def test_work_that_comes_later_is_found(session, clock):
    clock.after(300, lambda: session.set_phase("go"))
    assert worker(session).run_once(wait=400).ending is Ending.COMPLETED


def test_a_place_that_fails_for_a_while_is_tried_again(session, clock, caplog):
    session.set_phase("go")
    fault = Fault("children", "inbox/*", times=4, before=refuse(errno.EIO))
    agent = worker(faulty(session, clock, fault))
    with caplog.at_level(logging.WARNING):
        assert agent.run_once(wait=60).ending is Ending.COMPLETED
    assert [record.args[2] for record in caplog.records] == [1.0, 2.0, 4.0, 8.0]


def test_waiting_ends_also_at_a_place_that_goes_on_to_fail(session, clock, caplog):
    fault = Fault("children", "inbox/*", times=1000, before=refuse(errno.EIO))
    agent = worker(faulty(session, clock, fault))
    with caplog.at_level(logging.WARNING):
        assert agent.run_once(wait=60) is None
    assert caplog.records


def test_a_session_that_is_deleted_ends_the_agent(session, clock):
    agent = worker(session)

    def delete():
        session.store.delete(configs.SESSION_KEY)
        session.store.delete(configs.TAPFILE_KEY)

    clock.after(50, delete)
    with pytest.raises(SessionNotFoundError):
        agent.run_once(wait=400)


def test_a_claim_is_alive_in_its_first_moment_also_at_the_turn_of_a_second():
    clock = ManualClock(wall=1_700_000_000.99)
    with tapstore.create(f"memory://{new_id()}/s", roles=["coder"], clock=clock) as session:
        claim = session.claim("coder", agent="a1", ttl=1)
        clock.advance(0.02)
        assert session.sweep() == []
        claim.release()


def test_a_completion_whose_reply_is_lost_is_known_to_have_happened(session, clock):
    session.set_phase("go")
    faults = [Fault("put", ".tap/Tapfile", nth=2, after=lost)]
    outcome = worker(faulty(session, clock, *faults)).run_once(wait=0)
    assert outcome.ending is Ending.COMPLETED
    assert session.tapfile.slots("coder")[0].status == "completed"


def test_a_completion_that_can_not_be_written_fails_the_work_or_leaves_it(session, clock):
    session.set_phase("go")
    fault = Fault("put", ".tap/Tapfile", nth=2, times=1000, before=refuse(errno.ENOSPC))
    outcome = worker(faulty(session, clock, fault)).run_once(wait=0)
    assert outcome.ending is Ending.LOST
    assert "No space left" in outcome.reason
    # Nobody keeps it alive any more, so it is taken back like that of a dead agent.
    clock.advance(62)
    assert worker(session).run_once(wait=0).ending is Ending.COMPLETED


def test_a_full_disk_for_a_moment_fails_the_work_with_that_reason(session, clock):
    session.set_phase("go")
    fault = Fault("put", ".tap/Tapfile", nth=2, before=refuse(errno.ENOSPC))
    outcome = worker(faulty(session, clock, fault)).run_once(wait=0)
    assert outcome.ending is Ending.FAILED
    assert "No space left" in session.tapfile.slots("coder")[0].reason
