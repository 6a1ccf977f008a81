"""Commits that fail in the middle: what was refused is not there, and what is there is acknowledged
or called unknown."""

import errno

import pytest

import tapstore
from tapstore.commitlog import CommitLog
from tapstore.errors import FormatError, NotFoundError, OutcomeUnknownError, StoreError
from tapstore.sessions.claim import ConsumersNotToldWarning
from tapstore.sessions.view import ViewWarning
from tapstore.stores.memory import MemoryStore
from tapstore.testing.faults import Fault, FaultyStore, lost, refuse

RECORD, CONTENT = "x/log/*", "x/revisions/*"


def unseen(key):
    raise NotFoundError(f"an NFS client remembers that {key} was not there")


def second_commit(*faults):
    """A log with one commit, on a store that fails, and how to commit the second."""
    store = MemoryStore()
    parent = CommitLog(store, "x").commit(None, "w1", b"1", {})
    log = CommitLog(FaultyStore(store, *faults), "x")
    return CommitLog(store, "x"), lambda: log.commit(parent, "w2", b"2", {})


def test_a_lost_reply_and_a_place_that_can_not_be_read_then_are_unknown():
    log, commit = second_commit(
        Fault("put", RECORD, after=lost), Fault("get", RECORD, before=refuse(errno.EIO))
    )
    with pytest.raises(OutcomeUnknownError):
        commit()
    assert log.read()[1] == b"2"
    assert commit().n == 2


def test_a_record_that_is_there_but_not_seen_yet_is_unknown_and_keeps_its_content():
    log, commit = second_commit(
        Fault("put", RECORD, after=lost), Fault("get", RECORD, times=2, before=unseen)
    )
    for _ in range(2):
        with pytest.raises(OutcomeUnknownError):
            commit()
    assert commit().n == 2
    assert log.read()[1] == b"2"


def test_a_refusal_after_an_unknown_outcome_is_no_refusal():
    log, commit = second_commit(
        Fault("put", RECORD, before=lost), Fault("put", RECORD, nth=2, before=refuse(errno.ENOSPC))
    )
    for _ in range(2):
        with pytest.raises(OutcomeUnknownError):
            commit()
    # The record of the first attempt arrives late: its content must be there.
    assert commit().n == 2
    assert log.read()[1] == b"2"


def test_what_can_not_be_written_into_a_record_leaves_no_content():
    store = MemoryStore()
    with pytest.raises(FormatError, match="surrogates"):
        CommitLog(store, "x").commit(None, "w1", b"1", {"reason": "\ud800"})
    assert list(store.list()) == []


def test_a_commit_is_unknown_if_the_disk_is_full_when_it_is_sent_again(tmp_path):
    with tapstore.create(str(tmp_path), roles=["coder"]) as session:
        inner = session.store
        session.state.log._store = FaultyStore(
            inner,
            Fault("put", "*/log/*", before=lost),
            Fault("put", "*/revisions/*", nth=2, times=9, before=refuse(errno.ENOSPC)),
        )
        with pytest.raises(OutcomeUnknownError):
            session.set_phase("next")


def test_a_refusal_at_the_first_attempt_is_one(tmp_path):
    with tapstore.create(str(tmp_path), roles=["coder"]) as session:
        session.state.log._store = FaultyStore(
            session.store, Fault("put", "*/log/*", before=refuse(errno.ENOSPC))
        )
        with pytest.raises(StoreError):
            session.set_phase("next")
        assert session.state.peek().rev == 1


def test_a_place_that_fails_right_after_the_commit_is_no_refusal(tmp_path):
    with tapstore.create(str(tmp_path), roles=["coder"]) as session:
        inner, session.state.store = (
            session.store,
            FaultyStore(session.store, Fault("get", ".tap/session", before=refuse(errno.EIO))),
        )
        with pytest.raises(OutcomeUnknownError, match="revision 2 is in the log"):
            session.set_phase("next")
        session.state.store = inner
        assert session.phase == "next"


def test_a_view_of_which_nobody_knows_whether_it_was_written_is_no_failed_commit(tmp_path):
    with tapstore.create(str(tmp_path), roles=["coder"]) as session:
        view = session.state._view
        view._store = FaultyStore(view._store, Fault("put", ".tap/Tapfile", before=lost))
        with pytest.warns(ViewWarning, match="revision 2 is committed"):
            session.set_phase("next")
        assert session.phase == "next"


def test_a_damaged_old_record_does_not_fail_the_commit_whose_line_is_logged(tmp_path):
    with tapstore.create(str(tmp_path), roles=["coder"]) as session:
        session.set_phase("a")
        session.set_phase("b")
        (tmp_path / ".tap" / "session.log").unlink()
        record = next((tmp_path / ".tap").glob("*/log/*/000000000002"))
        record.write_bytes(b"{")
        with pytest.warns(ViewWarning, match="damaged"):
            session.set_phase("next")
        assert session.state.peek().tapfile.current_phase == "next"


def test_a_claim_is_completed_although_its_heartbeat_file_can_not_be_removed(tmp_path):
    with tapstore.create(str(tmp_path), roles=["coder"]) as session:
        claim = session.claim("coder", agent="a")
        inner = session.store
        session.state.store = FaultyStore(
            inner, Fault("delete", ".tap/heartbeats/*", before=refuse(errno.EIO))
        )
        claim.complete()
        assert session.tapfile.slots("coder")[0].status == "completed"


def test_a_claim_is_completed_although_its_consumers_can_not_be_told(tmp_path):
    with tapstore.create(str(tmp_path), roles=["coder", "reviewer"]) as session:
        claim = session.claim("coder", agent="a")
        claim.publish("x", b"1", consumers=["reviewer"])
        session.store = FaultyStore(
            session.store, Fault("put", "inbox/*", before=refuse(errno.EIO))
        )
        with pytest.warns(ConsumersNotToldWarning, match="is completed"):
            claim.complete()
        assert session.tapfile.slots("coder")[0].status == "completed"
