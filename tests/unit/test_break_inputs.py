"""Hostile and mistaken input: refused with a reason, before anything was changed."""

import pytest

import tapstore


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
