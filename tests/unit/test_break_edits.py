"""Edits that try to get around the rules, or to get lost."""

import json
import os
import shutil
from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import tapstore
from tapstore.sessions import history
from tapstore.tapfile import effects, format
from tapstore.tapfile.changes import diff

scalars = st.none() | st.booleans() | st.sampled_from([0, 1, 0.0, 1.0, "", "1"])
documents = st.dictionaries(
    st.sampled_from("ab"),
    st.recursive(
        scalars,
        lambda inner: (
            st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
        ),
        max_leaves=5,
    ),
    max_size=2,
)


def written(document):
    """Unlike `==`, tells true from 1 from 1.0."""
    return msgspec.json.encode(document, order="sorted")


@given(documents, documents)
def test_effects_tell_true_from_one(before, after):
    assert written(effects.replay(before, effects.effects(before, after))) == written(after)


@pytest.mark.parametrize(
    ("old", "new"), [(1, True), (0, False), ([1], [True]), ({"a": 0}, {"a": False})]
)
def test_an_edit_from_a_number_to_true_or_false_is_not_lost(tmp_path, old, new):
    with tapstore.create(
        str(tmp_path), roles=["coder"], fields={"flag": old}, keep_revisions=1
    ) as session:
        session.edit(lambda d: d.update(flag=new))
        rev = session.state.peek().rev
        assert written(session.tapfile.extra["flag"]) == written(new)
        session.set_phase("next")
        replayed = history.document_at(session.state.log, rev)
        assert written(replayed["flag"]) == written(new)


def test_a_number_written_back_in_another_way_is_no_edit():
    assert diff({"ttl": 60.0, "list": [1]}, {"ttl": 60, "list": [1.0]}) == ()


# What programs do that rewrite the Tapfile


def tapfile(session):
    return Path(session.store.local_path(".tap/Tapfile"))


def read(session):
    return yaml.safe_load(tapfile(session).read_bytes())


def write(session, document):
    """As left by a program that ended a while ago."""
    tapfile(session).write_text(yaml.safe_dump(document))
    os.utime(tapfile(session), (1, 1))


def edit(session, change):
    document = read(session)
    change(document)
    write(session, document)


def parked(session):
    folder = Path(session.store.local_path(".tap/conflicts"))
    files = sorted(folder.iterdir()) if folder.exists() else []
    return [json.loads(file.read_bytes())["reason"] for file in files]


@pytest.fixture
def session(tmp_path):
    with tapstore.create(
        str(tmp_path / "s"), roles={"coder": 1, "reviewer": 2}, phase="start"
    ) as session:
        yield session


def test_a_plain_program_that_fails_may_say_why(session):
    edit(session, lambda d: d["participants"][0].update(status="working", agent_id="p"))
    assert session.tapfile.slots("coder")[0].status == "working"
    edit(session, lambda d: d["participants"][0].update(status="failed", reason="model is down"))
    coder = session.tapfile.slots("coder")[0]
    assert (coder.status, coder.reason, parked(session)) == ("failed", "model is down", [])


def test_a_field_of_a_participant_can_be_cleared_and_set_again(session):
    for model in ("m1", None, "m2"):
        edit(session, lambda d, model=model: d["participants"][0].update(model=model))
        assert session.tapfile.slots("coder")[0].extra.get("model") == model
    assert parked(session) == []


def add_tester(document):
    document["participants"].append({"role": "tester", "status": "pending"})


def test_two_programs_that_add_the_same_role_add_it_once(session):
    old = read(session)
    edit(session, add_tester)
    assert len(session.tapfile.slots("tester")) == 1
    add_tester(old)
    old["note"] = "mine"
    write(session, old)
    assert len(session.tapfile.slots("tester")) == 1
    assert session.tapfile.extra["note"] == "mine"


def test_a_role_added_in_two_ways_is_a_conflict(session):
    old = read(session)
    edit(session, add_tester)
    assert session.tapfile.slots("tester")
    old["participants"].append({"role": "tester", "status": "working", "agent_id": "p"})
    write(session, old)
    assert [p.status for p in session.tapfile.slots("tester")] == ["pending"]
    assert "participants.tester was changed" in parked(session)[0]


@pytest.mark.parametrize("role", ["reviewer#2", "x#7", " ", "审查员" * 8])
def test_an_edit_can_not_add_a_role_that_no_session_may_have(session, role):
    edit(session, lambda d: d["participants"].append({"role": role, "status": "pending"}))
    assert session.tapfile.roles() == ("coder", "reviewer")
    assert "role" in parked(session)[0] or "too long" in parked(session)[0]


@pytest.mark.parametrize(
    "path", ["artifacts", "../x", "/etc/passwd", ".tap/session", "artifacts/start/mine/below"]
)
def test_an_edit_can_not_register_a_path_that_no_publisher_may_use(session, path):
    session.publish("mine", b"1")
    edit(session, lambda d: d["artifacts"].append({"name": "x", "path": path}))
    assert [a.name for a in session.tapfile.artifacts] == ["mine"]
    assert repr(path) in parked(session)[0]
    session.publish("next", b"2")


def test_an_edit_can_not_take_what_was_assigned_to_another_agent_meanwhile(session):
    old = read(session)
    session.edit(lambda d: d["participants"][0].update(agent_id="boss"))
    old["participants"][0].update(status="working", agent_id="thief")
    write(session, old)
    coder = session.tapfile.slots("coder")[0]
    assert (coder.status, coder.agent_id) == ("pending", "boss")
    assert "assigned to 'boss'" in parked(session)[0]


def goes_to_work(document):
    document["participants"][0].update(
        status="working", agent_id="p", last_activity="2001-01-01T00:00:00Z"
    )


def test_a_heartbeat_of_the_holder_before_does_not_make_a_plain_agent_judged(session):
    with session.claim("coder", agent="a") as claim:
        claim.heartbeat()
        claim.complete()
    assert session.tapfile.slots("coder")[0].heartbeat is not None
    edit(session, lambda d: d["participants"][0].update(status="pending"))
    assert session.tapfile.slots("coder")[0].status == "pending"
    edit(session, goes_to_work)
    assert [j.health.value for j in session.judge()] == ["unjudged"]


def test_a_program_that_drops_a_heartbeat_shows_no_sign_of_life(session):
    edit(session, lambda d: d["participants"][0].update(heartbeat="2001-01-01T00:00:00Z"))
    assert session.tapfile.slots("coder")[0].heartbeat is not None
    edit(session, goes_to_work)
    assert session.tapfile.slots("coder")[0].status == "working"
    edit(session, lambda d: d["participants"][0].pop("last_activity"))
    assert session.tapfile.slots("coder")[0].claim.renewed is False
    assert session.sweep() == []


def test_a_clock_that_was_ahead_and_is_set_right_is_believed(session):
    edit(session, goes_to_work)
    for time in ("2099-01-01T00:00:00Z", "2024-01-01T00:00:00Z", "2024-01-01T00:00:09Z"):
        edit(session, lambda d, time=time: d["participants"][0].update(heartbeat=time))
        assert session.tapfile.slots("coder")[0].heartbeat == time


def test_an_edit_that_never_can_succeed_is_not_tried_again_and_again(session):
    calls = []

    def thief(document):
        calls.append(1)
        document["participants"][0].update(agent_id="thief")

    with session.claim("coder", agent="a") as claim:
        with pytest.raises(tapstore.NotAllowedError, match="held by a"):
            session.edit(thief, timeout=1)
        claim.complete()
    assert len(calls) == 1


@pytest.mark.timeout(20)
def test_a_refusal_that_can_not_be_noted_is_raised_and_not_noted_for_ever(tmp_path):
    schema = b'{"properties": {"tapstore": {"properties": {"rev": {"maximum": 2}}}}}'
    with tapstore.create(str(tmp_path / "s"), roles=["coder"], schema=schema) as session:
        session.set_phase("next")
        edit(session, lambda d: d.update(session_id="other"))
        with pytest.raises(tapstore.FormatError, match=r"tapstore\.rev"):
            session.state.refresh()


@pytest.mark.parametrize("tapfile_format", ["yaml", "json"])
def test_the_ghost_of_a_deleted_session_does_not_set_the_new_tapfile_aside(session, tapfile_format):
    shutil.rmtree(session.store.root)
    with tapstore.create(
        session.store.root, roles=["coder"], phase="new", tapfile_format=tapfile_format
    ) as new:
        os.utime(tapfile(new), (1, 1))
        with pytest.raises(tapstore.SessionNotFoundError):
            session.set_phase("ghost")
        assert parked(new) == []


def test_an_edit_that_was_refused_is_not_applied_after_a_crash_before_publishing(session):
    edit(session, lambda d: d["participants"][0].update(status="completed"))
    refused = tapfile(session).read_bytes()
    assert session.tapfile.slots("coder")[0].status == "pending"
    assert len(parked(session)) == 1
    # Had it crashed before publishing, this would have come between, by one without the lock.
    session.edit(lambda d: d["participants"][0].update(agent_id="boss"))
    tapfile(session).write_bytes(refused)
    assert session.tapfile.slots("coder")[0].status == "pending"
    assert [e.operations for e in session.log()] == [(), ("park",), ("edit",)]
    assert format.certified(tapfile(session).read_bytes())


def test_what_can_not_be_read_does_not_stay_because_it_is_from_the_future(session):
    tapfile(session).write_text("no: [")
    os.utime(tapfile(session), (4e9, 4e9))
    session.set_phase("next")
    assert len(parked(session)) == 1
    assert read(session)["current_phase"] == "next"


@pytest.mark.parametrize("reason", [None, "", "my own"])
def test_a_program_may_go_to_work_and_drop_the_reason_of_the_reset_before(session, reason):
    session.claim("coder", agent="a").detach()
    session.reset("coder", reason="was silent")

    def rebuild(document):
        document["participants"][0] = {"role": "coder", "agent_id": "p", "status": "working"}
        if reason is not None:
            document["participants"][0]["reason"] = reason

    edit(session, rebuild)
    coder = session.tapfile.slots("coder")[0]
    assert (coder.status, coder.reason, parked(session)) == ("working", reason or "", [])


@pytest.mark.parametrize(
    "stamp",
    [{"rev": 99}, {"rev": 10**18}, {"rev": 0}, {"rev": -1}, {"rev": True}, {"rev": 2.0},
     {"rev": 2}, {"write_id": "of nobody"}, {"write_id": 5}],
    ids=str,
)  # fmt: skip
def test_an_edit_that_names_a_revision_which_it_was_not_made_from_is_set_aside(session, stamp):
    session.set_phase("next")
    session.set_phase("last")
    edit(session, lambda d: d.update(note="forged") or d["tapstore"].update(stamp))
    assert session.tapfile.extra == {}
    assert len(parked(session)) == 1
    assert read(session)["current_phase"] == "last"


def test_an_edit_of_tapstores_bookkeeping_alone_changes_nothing(session):
    edit(session, lambda d: d["tapstore"].update(incarnation="another", by="nobody", at="never"))
    assert session.state.refresh().rev == 1
    assert parked(session) == []
    assert read(session)["tapstore"]["incarnation"] == session.config.incarnation


def test_a_plain_agent_goes_on_although_nobody_published_that_it_went_to_work(session):
    edit(session, goes_to_work)
    text = tapfile(session).read_bytes()
    assert session.tapfile.slots("coder")[0].status == "working"
    tapfile(session).write_bytes(text)  # as if the importer had died before it published
    edit(session, lambda d: d["participants"][0].update(status="completed", reason="done"))
    coder = session.tapfile.slots("coder")[0]
    assert (coder.status, coder.reason, parked(session)) == ("completed", "done", [])
