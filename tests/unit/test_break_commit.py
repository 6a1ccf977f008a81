"""Commits that fail in the middle: what was refused is not there, and what is there is acknowledged
or called unknown."""

import errno
import os
import shutil
from pathlib import Path

import pytest
import yaml

import tapstore
from tapstore.commitlog import CommitLog
from tapstore.errors import (
    ConflictError,
    FormatError,
    NotFoundError,
    OutcomeUnknownError,
    StoreError,
)
from tapstore.sessions.claim import ConsumersNotToldWarning
from tapstore.sessions.config import new_id
from tapstore.sessions.view import ViewWarning
from tapstore.stores.memory import MemoryStore
from tapstore.stores.wrapper import WrapperStore
from tapstore.tapfile.operations import SetPhase
from tapstore.testing.clock import ManualClock
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
        session.state.revisions._store = FaultyStore(
            session.store, Fault("get", ".tap/session", nth=1, times=9, before=refuse(errno.EIO))
        )
        with pytest.raises(OutcomeUnknownError, match="revision 2 is in the log"):
            session.set_phase("next")
        session.state.revisions._store = session.store
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


# Reading


class Overtaken(WrapperStore):
    """Between a reader's look for the newest record and for its content others commit."""

    def __init__(self, inner, commit):
        super().__init__(inner)
        self.commit = commit

    def get(self, key, *, start=0, end=None):
        if key.startswith("x/revisions/") and self.commit is not None:
            commit, self.commit = self.commit, None
            commit()
        return super().get(key, start=start, end=end)


def test_a_reader_whose_content_is_collected_under_its_hands_goes_on():
    store = MemoryStore()
    log = CommitLog(store, "x", keep=1)
    first = log.commit(None, "w1", b"1", {})

    def overtake():
        head = first
        for number in range(2, 9):
            head = log.commit(head, f"w{number}", b"%d" % number, {})
            log.collect(head)

    head, content = CommitLog(Overtaken(store, overtake), "x").read()
    assert (head.n, content) == (8, b"8")


def test_who_knows_a_revision_needs_no_listing():
    store = MemoryStore()
    head = None
    for number in range(1, 6):
        head = CommitLog(store, "x").commit(head, f"w{number}", b"", {})
    blind = FaultyStore(store, Fault("children", before=refuse(errno.EIO)))
    assert CommitLog(blind, "x").head(hint=3).n == 5
    with pytest.raises(StoreError):
        CommitLog(blind, "x").head()


@pytest.fixture(params=["yaml", "json"])
def own(request, tmp_path):
    """A session that no other program edits."""
    with tapstore.create(
        str(tmp_path / "s"), roles=["coder"], foreign=False, tapfile_format=request.param
    ) as session:
        yield session


@pytest.mark.parametrize("look", ["refresh", "peek"])
def test_a_deleted_session_is_not_read_from_memory(own, look):
    own.state.refresh()
    shutil.rmtree(own.store.root)
    with pytest.raises(tapstore.SessionNotFoundError):
        getattr(own.state, look)()


def test_who_may_only_read_sees_the_log(tmp_path):
    class ReadOnly:
        def acquire(self, wait):  # noqa: ARG002
            error = StoreError("read-only")
            error.errno = errno.EROFS
            raise error

    with tapstore.create(str(tmp_path), roles=["coder"], phase="start") as session:
        session.state._view._lock = ReadOnly()
        with (tmp_path / ".tap" / "Tapfile").open("a") as file:
            file.write("x: 1\n")
        assert session.phase == "start"
        with pytest.raises(StoreError):
            session.set_phase("next")


# Writing


def test_time_never_goes_back_in_the_log():
    clock = ManualClock()
    url = f"memory://{new_id()}/s"
    with (
        tapstore.create(url, roles=["coder"], clock=clock) as right,
        tapstore.open(url, clock=clock.other_host(ahead=-100)) as behind,
    ):
        for session in (right, behind, right, behind):
            session.set_phase("next")
        times = [entry.at for entry in right.log()]
    assert times == sorted(times)


def test_what_no_schema_allows_is_not_committed_by_any_operation(own):
    with pytest.raises(FormatError, match="type is 5"):
        own.publish("x", b"1", type=5)
    assert own.state.peek().rev == 1


def test_others_that_keep_winning_end_in_a_timeout():
    clock = ManualClock()
    url = f"memory://{new_id()}/s"
    with tapstore.create(url, roles=["coder"], clock=clock) as session:

        def lose(*_):
            clock.advance(1)
            raise ConflictError("somebody else was faster")

        session.state.revisions.commit = lose
        operation = SetPhase(id="o", phase="next")
        with pytest.raises(tapstore.WaitTimeoutError, match="nothing was written"):
            session.state.commit(operation, timeout=5)


@pytest.mark.parametrize("keep", [1, 4])
def test_a_session_keeps_few_contents(tmp_path, keep):
    with tapstore.create(str(tmp_path), roles=["coder"], keep_revisions=keep) as session:
        for number in range(20):
            session.set_phase(f"p{number}")
        kept = list(session.store.list(f"{session.config.prefix}/revisions/"))
        assert keep <= len(kept) <= keep + max(1, keep // 2)


# Publishing


def shown(session):
    return yaml.safe_load(Path(session.store.local_path(".tap/Tapfile")).read_bytes())


def test_a_view_that_was_overtaken_while_it_was_written_is_written_again(own):
    with tapstore.open(own.store.root) as other:
        view = own.state._view
        store = view._store

        def overtake(_):
            view._store = store
            other.set_phase("faster")

        view._store = FaultyStore(store, Fault("put", ".tap/Tapfile", before=overtake))
        own.set_phase("slower")
    assert own.state.peek().tapfile.current_phase == "faster"
    assert shown(own)["current_phase"] == "faster"


@pytest.mark.parametrize("tapfile_format", ["yaml", "json"])
def test_a_writer_whose_lock_was_broken_does_not_overwrite_the_edit_made_since(
    tmp_path, tapfile_format
):
    with tapstore.create(
        str(tmp_path), roles=["coder"], phase="start", tapfile_format=tapfile_format
    ) as session:
        write = session.state._write

        def write_and_be_stopped(*args):
            snapshot = write(*args)
            session.state._write = write
            # Somebody takes the lock for stale, and a plain program has its turn.
            (tmp_path / ".tap" / "locks" / "tapfile.lock").unlink()
            document = shown(session) | {"note": "plain"}
            (tmp_path / ".tap" / "Tapfile").write_text(yaml.safe_dump(document))
            return snapshot

        session.state._write = write_and_be_stopped
        session.set_phase("next")
        assert shown(session)["note"] == "plain"
        assert (session.tapfile.extra, session.phase) == ({"note": "plain"}, "next")
        assert shown(session)["current_phase"] == "next"


@pytest.mark.parametrize("tapfile_format", ["yaml", "json"])
def test_the_view_of_another_session_at_the_same_revision_is_not_taken_for_ours(
    tmp_path, tapfile_format
):
    sessions = [
        tapstore.create(
            str(tmp_path / name), roles=["coder"], phase=name, tapfile_format=tapfile_format
        )
        for name in ("one", "two")
    ]
    one, two = (Path(s.store.local_path(".tap/Tapfile")) for s in sessions)
    one.write_bytes(two.read_bytes())
    os.utime(one, (1, 1))
    assert sessions[0].phase == "one"
    assert shown(sessions[0])["current_phase"] == "one"
