"""Hostile and mistaken input: refused with a reason, before anything was changed."""

import pytest

import tapstore
from tapstore.artifacts.model import Artifact


@pytest.fixture
def session(tmp_path):
    with tapstore.create(
        str(tmp_path / "s"), roles={"coder": 1, "reviewer": 2}, phase="start"
    ) as session:
        yield session


LONG = "审查员" * 8


def test_an_agent_whose_heartbeats_could_not_be_stored_gets_no_claim(session):
    with pytest.raises(tapstore.InvalidKeyError, match="too long"):
        session.claim("coder", agent=LONG)
    assert session.tapfile.slots("coder")[0].status == "pending"
    assert session.judge() == []


@pytest.mark.parametrize("role", ["reviewer#2", LONG])
def test_a_role_that_would_be_taken_for_a_slot_or_has_no_inbox_is_refused(tmp_path, role):
    with pytest.raises(tapstore.InvalidKeyError):
        tapstore.create(str(tmp_path / "t"), roles={"reviewer": 2, role: 1})
    with pytest.raises(tapstore.SessionNotFoundError):
        tapstore.open(str(tmp_path / "t"))


@pytest.mark.parametrize("path", ["../../etc/passwd", "/etc/passwd", ".tap/session", "artifacts"])
def test_an_artifact_made_by_hand_can_not_leave_the_session(session, path):
    with session.claim("coder", agent="a") as claim:
        with pytest.raises(tapstore.InvalidKeyError):
            claim.complete(publish=[Artifact(name="x", path=path)])
        claim.complete()
    assert session.tapfile.artifacts == ()
