"""What is collected is what nobody needs; most tests are about what is spared."""

import itertools
from dataclasses import replace
from datetime import timedelta

import pytest

import tapstore
from tapstore.errors import NotAllowedError, NotFoundError
from tapstore.sessions import garbage
from tapstore.sessions.garbage import ARTIFACT, CONTENT, GHOST, HEARTBEAT, PARKED, TEMPORARY
from tapstore.stores.memory import MemoryStore
from tapstore.testing.clock import ManualClock
from tapstore.types import CREATE, OVERWRITE

DAY = timedelta(days=1)
_numbers = itertools.count()


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def session(clock, monkeypatch, request):
    """In memory, so that days pass at once; only one revision is kept."""
    if request.node.get_closest_marker("create_only"):
        capabilities = replace(MemoryStore.capabilities, update=False)
        monkeypatch.setattr(MemoryStore, "capabilities", capabilities)
    with tapstore.create(
        f"memory://garbage-{next(_numbers)}/s", roles=["coder"], phase="p", keep_revisions=1,
        clock=clock,
    ) as made:  # fmt: skip
        yield made


@pytest.fixture(params=["in the session", "in another place"])
def anywhere(clock, request):
    """A session, by where the bytes of its artifacts lie."""
    name = f"memory://garbage-{next(_numbers)}"
    artifacts = None if request.param == "in the session" else f"{name}-bytes/b"
    with tapstore.create(
        f"{name}/s", roles=["coder"], phase="p", keep_revisions=1, artifacts=artifacts, clock=clock
    ) as made:
        yield made


def found(session, kind, **options):
    return [g.key for g in garbage.find(session, older_than=DAY, **options) if g.kind == kind]


def pass_days(clock, days):
    clock.advance(days * 86400)


# Artifacts


def test_bytes_that_nobody_registered_can_go(session, clock):
    path = session.stage("x", b"bytes").path
    pass_days(clock, 2)
    assert found(session, ARTIFACT) == [path]


def test_bytes_that_somebody_may_be_about_to_register_are_spared(anywhere, clock):
    anywhere.stage("x", b"bytes")
    pass_days(clock, 0.9)
    assert found(anywhere, ARTIFACT) == []


def test_what_is_registered_is_spared(anywhere, clock):
    anywhere.publish("x", b"bytes")
    pass_days(clock, 400)
    assert found(anywhere, ARTIFACT) == []


def replaced(session):
    """Publish a second version; the path of the first."""
    first = session.publish("x", b"first")
    session.publish("x", b"second", overwrite=True)
    return first.path


def test_what_was_replaced_long_ago_can_go(anywhere, clock):
    path = replaced(anywhere)
    pass_days(clock, 2)
    assert found(anywhere, ARTIFACT) == [path]


def test_what_was_replaced_only_lately_is_spared(anywhere, clock):
    anywhere.publish("x", b"first")
    pass_days(clock, 30)
    anywhere.publish("x", b"second", overwrite=True)
    pass_days(clock, 0.5)
    assert found(anywhere, ARTIFACT) == []


def test_what_a_kept_revision_names_is_spared(clock):
    with tapstore.create(
        f"memory://garbage-{next(_numbers)}/s", keep_revisions=2, clock=clock
    ) as s:
        replaced(s)
        pass_days(clock, 30)
        assert found(s, ARTIFACT) == []


def test_what_a_live_claim_stored_is_spared_for_as_long_as_it_lives(anywhere, clock):
    claim = anywhere.claim("coder", agent="c1", ttl=7 * 86400)
    staged = anywhere.stage("x", b"bytes", claim=claim)
    pass_days(clock, 3)
    assert found(anywhere, ARTIFACT) == []
    claim.release()
    assert found(anywhere, ARTIFACT) == [staged.path]


def test_too_short_an_age_is_refused(session):
    with pytest.raises(NotAllowedError, match="too short"):
        garbage.find(session, older_than=timedelta(minutes=14))


def test_what_was_found_is_removed(session, clock):
    path = session.stage("x", b"bytes").path
    pass_days(clock, 2)
    removed = garbage.remove(session, garbage.find(session, older_than=DAY), older_than=DAY)
    assert [g.key for g in removed] == [path]
    with pytest.raises(NotFoundError):
        session.store.head(path)


def test_what_was_registered_since_it_was_found_is_spared(anywhere, clock):
    staged = anywhere.stage("x", b"bytes")
    pass_days(clock, 2)
    listed = garbage.find(anywhere, older_than=DAY)
    anywhere.edit(
        lambda doc: doc["artifacts"].append(
            {"name": "x", "path": staged.path, "type": "", "producer": "p", "consumer": [],
             "checksum": staged.checksum}
        )
    )  # fmt: skip
    assert garbage.remove(anywhere, listed, older_than=DAY) == []
    assert anywhere.artifacts["x"].read_bytes() == b"bytes"


# Contents of commits


def content_key(session, number):
    return f"{session.config.prefix}/revisions/{number:012d}-stray"


@pytest.mark.create_only
def test_the_content_of_a_lost_race_can_go(session, clock):
    session.set_phase("q")
    session.store.put(content_key(session, 2), b"{}", CREATE)
    pass_days(clock, 2)
    assert found(session, CONTENT) == [content_key(session, 2)]


@pytest.mark.create_only
def test_a_content_above_the_head_is_spared_however_old_it_is(session, clock):
    # Its writer may be stopped between content and record, and commit when it wakes up.
    session.store.put(content_key(session, 2), b"{}", CREATE)
    pass_days(clock, 3000)
    assert found(session, CONTENT) == []


@pytest.mark.create_only
def test_the_contents_of_kept_commits_are_spared(session, clock):
    session.set_phase("q")
    pass_days(clock, 2)
    assert found(session, CONTENT) == []


# Heartbeats


def test_heartbeats_of_claims_that_ended_can_go(session, clock):
    claim = session.claim("coder", agent="c1")
    claim.heartbeat()
    claim.detach()
    session.reset("coder")
    pass_days(clock, 2)
    assert found(session, HEARTBEAT) == [f".tap/heartbeats/c1~{claim.id}"]


def test_heartbeats_of_live_claims_are_spared(session, clock):
    claim = session.claim("coder", agent="c~1", ttl=7 * 86400)
    claim.heartbeat()
    pass_days(clock, 2)
    assert found(session, HEARTBEAT) == []
    claim.release()


# Sessions that were here before


def test_what_an_earlier_session_left_can_go(session, clock):
    session.store.put(".tap/0123456789abcdef/log/000000000/000000000001", b"{}", CREATE)
    pass_days(clock, 2)
    assert found(session, GHOST) == [".tap/0123456789abcdef/log/000000000/000000000001"]


def test_a_session_that_may_just_be_made_is_spared(session, clock):
    session.store.put(".tap/0123456789abcdef/log/000000000/000000000001", b"{}", CREATE)
    pass_days(clock, 2)
    session.store.put(".tap/0123456789abcdef/revisions/000000000002-x", b"{}", CREATE)
    assert found(session, GHOST) == []


def test_folders_that_are_no_session_are_spared(session, clock):
    session.signal("go")
    session.store.put(".tap/somebody/notes", b"mine", CREATE)
    pass_days(clock, 400)
    assert garbage.find(session, older_than=DAY) == []


# Edits that were set aside


def test_edits_that_were_set_aside_are_spared_unless_they_are_named(session, clock):
    session.store.put(".tap/conflicts/park-1.json", b"{}", OVERWRITE)
    session.store.put(".tap/conflicts/park-2.json", b"{}", OVERWRITE)
    pass_days(clock, 400)
    assert found(session, PARKED) == []
    assert found(session, PARKED, parked=["park-1.json"]) == [".tap/conflicts/park-1.json"]


def test_a_name_cannot_lead_out_of_the_folder_of_edits(session):
    with pytest.raises(NotFoundError):
        garbage.find(session, older_than=DAY, parked=["../session"])


# Unfinished writes


def test_unfinished_writes_can_go(tmp_path):
    import os
    import time

    with tapstore.create(str(tmp_path), roles=["coder"]) as session:
        left = tmp_path / "artifacts" / ".tapstore-tmp-0000"
        left.write_bytes(b"half")
        long_ago = time.time() - 2 * 86400
        os.utime(left, (long_ago, long_ago))
        listed = garbage.find(session, older_than=DAY)
        assert [(g.kind, g.key) for g in listed] == [(TEMPORARY, "artifacts/.tapstore-tmp-0000")]
        garbage.remove(session, listed, older_than=DAY)
        assert not left.exists()
