"""Events are what a commit did, whatever kind of program made it."""

import itertools

import pytest

import tapstore
from tapstore.cli import events as cli_events
from tapstore.record import Head, Record

_numbers = itertools.count()


@pytest.fixture
def session():
    with tapstore.create(f"memory://events-{next(_numbers)}/s", roles=["coder"], phase="p") as made:
        yield made


def last(session):
    """The events of the newest commit, without what all have in common."""
    head = session.state.refresh().head
    common = ("rev", "at", "by", "reason")
    return [{k: v for k, v in e.items() if k not in common} for e in cli_events.events(head)]


def test_the_first_commit_creates_the_session(session):
    assert last(session) == [{"event": "created"}]


def test_a_claim_that_moves_the_phase_is_two_events(session):
    session.claim("coder", agent="c1", phase="q").detach()
    assert [e["event"] for e in last(session)] == ["claimed", "phase"]


def test_what_is_published_comes_before_what_it_completes(session):
    claim = session.claim("coder", agent="c1")
    claim.complete(phase="q", publish=[session.stage("x", b"1", claim=claim)])
    assert [e["event"] for e in last(session)] == ["published", "completed", "phase"]


@pytest.mark.parametrize("how", ["release", "fail", "complete"])
def test_each_end_of_a_claim_has_its_name(session, how):
    claim = session.claim("coder", agent="c1")
    getattr(claim, how)(*(["no"] if how == "fail" else []))
    (event,) = last(session)
    assert event["event"] == {"release": "released", "fail": "failed", "complete": "completed"}[how]
    assert (event["agent"], event["claim"]) == ("c1", claim.id)


def test_taking_back_names_who_lost_it(session):
    session.claim("coder", agent="c1").detach()
    session.reset("coder")
    (event,) = last(session)
    assert (event["event"], event["agent"]) == ("reset", "c1")


def test_reopening_is_not_taking_back(session):
    session.claim("coder", agent="c1").complete()
    session.reopen("coder")
    assert [e["event"] for e in last(session)] == ["reopened"]


def test_an_edit_names_the_fields(session):
    session.edit(lambda doc: doc.update(note="x"))
    assert last(session) == [{"event": "edited", "changes": ["note"]}]


def test_an_edit_that_goes_to_work_is_a_claim_too(session):
    session.edit(lambda doc: doc["participants"][0].update(status="working", agent_id="plain"))
    assert [e["event"] for e in last(session)] == ["edited", "claimed"]


def head(entry):
    record = Record(n=7, write_id="w", content="", size=0, entry={"at": "2024-01-01T00:00:00.000Z",
                                                                 **entry})  # fmt: skip
    return Head(record, "")


def test_an_operation_of_a_later_version_shows_by_its_name():
    (event,) = cli_events.events(head({"operations": [{"op": "teleport", "id": "1"}]}))
    assert (event["event"], event["operations"]) == ("other", ["teleport"])


def test_a_refused_edit_names_where_it_lies():
    (event,) = cli_events.events(head({"operations": [{"op": "park", "id": "1", "key": "k"}]}))
    assert (event["event"], event["key"]) == ("parked", "k")


def test_a_commit_without_operations_is_an_event():
    (event,) = cli_events.events(head({}))
    assert event["event"] == "other"


def test_one_commit_is_one_line_for_people():
    entry = {
        "by": "watchdog",
        "reason": "no sign of life",
        "operations": [{"op": "reset", "id": "1"}],
        "moves": [{"participant": "coder", "old": "working", "new": "pending", "agent": "c1"}],
    }
    assert cli_events.line(cli_events.events(head(entry))) == (
        "    7  2024-01-01 00:00:00Z  watchdog: took coder back from c1 (no sign of life)"
    )


def test_all_types_are_listed(session):
    session.claim("coder", agent="c1").detach()
    assert {e["event"] for e in last(session)} <= set(cli_events.TYPES)
