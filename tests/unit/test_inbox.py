"""Tasks are taken once, never lost, and kept or set aside; on a store that a test can move."""

import json
import warnings

import pytest

import tapstore
from tapstore.errors import FormatError, NotAllowedError
from tapstore.sessions import notices
from tapstore.sessions.config import new_id
from tapstore.tasks import inbox, standing
from tapstore.tasks.inbox import Inbox, Standing
from tapstore.tasks.work import WorkFilter, seek
from tapstore.testing.clock import ManualClock
from tapstore.types import OVERWRITE

KEY = "inbox/coder/job.json"
CODER = WorkFilter(role="coder")


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def session(clock):
    url = f"memory://{new_id()}/s1"
    with tapstore.create(url, roles={"coder": 2, "reviewer": 1}, phase="p", clock=clock) as session:
        yield session


def drop(session, document, key=KEY):
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    session.store.put(key, data, OVERWRITE)


def standings(session, role="coder"):
    return {seen.key: seen.standing for seen in Inbox(session.state, role).look()}


def names(session, folder="inbox/coder/"):
    return {info.key.removeprefix(folder) for info in session.store.list(folder)}


def take(session, agent="a1"):
    work = seek(session, CODER, agent=agent)
    assert work is not None
    return work


def test_a_dropped_task_is_pending_until_it_is_taken(session):
    drop(session, {"requirement": "x"})
    assert standings(session) == {KEY: Standing.WAITING}
    work = take(session)
    assert work.task.key == KEY
    assert standings(session) == {KEY: Standing.TAKEN}
    work.release()


def test_two_slots_share_two_tasks(session):
    drop(session, {"n": 1})
    drop(session, {"n": 2}, "inbox/coder/other.json")
    first, second = take(session, "a1"), take(session, "a2")
    assert {first.task.document["n"], second.task.document["n"]} == {1, 2}
    first.release()
    second.release()


def test_two_claims_that_saw_one_task_take_it_once(session):
    drop(session, {})
    (task,) = Inbox(session.state, "coder").pending()
    claims = [session.claim("coder", agent=name) for name in ("a1", "a2")]
    taken = [
        Inbox(session.state, "coder").take(task, claim=c.id, fence=c.token, agent=c.agent)
        for c in claims
    ]
    assert taken == [True, False]
    for claim in claims:
        claim.release()


def test_the_slot_without_a_task_is_given_back(session):
    drop(session, {})
    work = take(session, "a1")
    assert seek(session, CODER, agent="a2") is None
    assert [p.status for p in session.tapfile.slots("coder")] == ["working", "pending"]
    work.release()


def test_a_completed_task_is_kept_as_done(session):
    drop(session, b'{"requirement": "x"}\n')
    take(session).complete()
    assert names(session) == {".done/job.json"}
    assert session.store.get("inbox/coder/.done/job.json").data == b'{"requirement": "x"}\n'


def test_the_result_goes_where_the_task_wants_it(session):
    drop(session, {"output_artifact_name": "x.py", "output_path": "artifacts/one/y.py"})
    work = take(session)
    work.add("x.py", b"1")
    work.add("other.txt", b"2")
    work.complete()
    found = {a.name: (a.phase, a.path) for a in session.tapfile.artifacts}
    assert found == {
        "x.py": ("one", "artifacts/one/y.py"),
        "other.txt": ("p", "artifacts/p/other.txt"),
    }


def test_a_released_task_is_taken_again_and_the_attempt_does_not_count(session):
    drop(session, {})
    for _ in range(5):
        work = take(session)
        assert work.task.attempt == 1
        work.release()


def test_a_failed_task_waits_for_the_role_to_be_reopened(session):
    drop(session, {})
    take(session, "a1").fail("broken")
    assert standings(session) == {KEY: Standing.WAITING}
    session.reopen("coder")
    work = take(session, "a1")
    assert work.task.attempt == 2
    work.release()


def test_a_task_is_set_aside_after_its_last_attempt(session):
    drop(session, {})
    for _ in range(3):
        take(session).fail("broken")
        session.reopen("coder")
    assert seek(session, CODER, agent="a1") is None
    assert names(session) == {".failed/job.json", ".failed/job.json.reason"}
    reason = session.store.get("inbox/coder/.failed/job.json.reason").data.decode()
    assert "attempt 3 of 3, the last" in reason


def test_a_task_of_a_dead_agent_is_taken_by_the_next(session, clock):
    drop(session, {})
    dead = take(session, "a1")
    dead.claim.detach()
    assert standings(session) == {KEY: Standing.TAKEN}
    clock.advance(62)
    work = take(session, "a2")
    assert (work.task.key, work.task.attempt) == (KEY, 2)
    with pytest.raises(tapstore.ClaimLostError):
        session.publish("late.py", b"", claim=dead.claim)
    work.complete()
    assert names(session) == {".done/job.json"}


def test_a_task_that_kills_its_agents_is_set_aside(session, clock):
    drop(session, {})
    for _ in range(3):
        take(session).claim.detach()
        clock.advance(62)
    assert seek(session, CODER, agent="a2") is None
    assert ".failed/job.json" in names(session)


def test_what_the_agent_could_not_finish_is_finished_by_who_looks_next(session):
    drop(session, {})
    work = take(session)
    work.claim.complete()  # and no more: it died here
    assert standings(session) == {KEY: Standing.FINISHED}
    assert Inbox(session.state, "coder").pending() == []
    assert names(session) == {".done/job.json"}


def test_a_finished_task_is_not_done_again_after_a_reopening(session):
    drop(session, {})
    take(session).claim.complete()
    session.reopen("coder")
    assert seek(session, CODER, agent="a1") is None


def test_the_same_file_dropped_again_is_a_new_task(session, clock):
    for _ in range(3):
        drop(session, {"requirement": "x"})
        work = take(session)
        assert work.task.attempt == 1
        work.complete()
        session.reopen("coder")
        clock.advance(1)
    assert names(session) == {".done/job.json"}


def test_a_file_that_failed_for_good_is_tried_again_when_it_is_dropped_again(session, clock):
    drop(session, {})
    for _ in range(3):
        take(session).fail("broken")
        session.reopen("coder")
    assert seek(session, CODER, agent="a1") is None
    clock.advance(1)
    drop(session, {})
    work = take(session)
    assert work.task.attempt == 1
    work.release()


def test_the_line_end_that_a_script_appends_later_makes_no_second_task(session, clock):
    drop(session, b'{"requirement": "x"}')
    work = take(session)
    clock.advance(1)
    drop(session, b'{"requirement": "x"}\n')
    assert standings(session) == {KEY: Standing.TAKEN}
    work.complete()
    assert names(session) == {".done/job.json"}


def test_another_task_written_over_one_that_is_worked_on_is_not_lost(session):
    drop(session, {"n": 1})
    work = take(session, "a1")
    drop(session, {"n": 2})
    work.complete()
    other = take(session, "a2")
    assert other.task.document == {"n": 2}
    other.complete()
    assert names(session) >= {".done/job.json"}


def test_other_content_under_a_name_that_is_kept_gets_the_next_name(session):
    for n in (1, 2):
        drop(session, {"n": n})
        take(session).complete()
        session.reopen("coder")
    assert names(session) == {".done/job.json", ".done/job~2.json"}


@pytest.mark.parametrize("data", [b"", b"{", b'{"task_id": "x"', b"\xff", b"[1]", b"not json"])
def test_what_does_not_parse_rests_and_is_then_set_aside(session, clock, data):
    drop(session, data)
    assert standings(session) == {KEY: Standing.RESTING}
    assert seek(session, CODER, agent="a1") is None
    assert names(session) == {"job.json"}
    clock.advance(standing.REST_SECONDS)
    assert seek(session, CODER, agent="a1") is None
    assert names(session) == {".failed/job.json", ".failed/job.json.reason"}
    assert session.store.get("inbox/coder/.failed/job.json").data == data


def test_a_half_written_file_becomes_a_task_when_it_is_finished(session, clock):
    drop(session, b'{"requirement":')
    assert seek(session, CODER, agent="a1") is None
    clock.advance(1)
    drop(session, b'{"requirement": "x"}')
    take(session).release()


def test_yaml_is_read_when_it_has_rested(session, clock):
    key = "inbox/coder/job.yaml"
    drop(session, b"requirement: x\n", key)
    assert standings(session) == {key: Standing.RESTING}
    clock.advance(standing.REST_SECONDS)
    work = take(session)
    assert work.task.requirement == "x"
    work.release()


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"session_id": "other"}, "it is for session other, but this is s1"),
        ({"role": "reviewer"}, "names the role reviewer"),
        ({"output_path": "../x"}, "'..'"),
        ({"output_artifact_name": "a/b"}, "'/'"),
        ({"task_id": "x\ty"}, "control characters"),
    ],
)
def test_what_can_not_be_done_is_set_aside_with_the_reason(session, clock, document, reason):
    drop(session, document)
    clock.advance(standing.REST_SECONDS)
    assert seek(session, CODER, agent="a1") is None
    note = session.store.get("inbox/coder/.failed/job.json.reason").data.decode()
    assert reason in note
    assert "Drop it into the inbox again" in note


def test_a_task_is_free_in_the_choice_of_its_id(session):
    drop(session, {"task_id": "not the session's id"})
    take(session).release()


def test_a_task_in_the_folder_of_all_names_its_role(session):
    drop(session, {"role": "coder"}, "inbox/job.json")
    assert standings(session, "reviewer") == {}
    take(session).complete()
    assert names(session, "inbox/") == {".done/job.json"}


@pytest.mark.parametrize("document", [{}, {"role": "nobody"}])
def test_a_task_for_no_role_is_set_aside_by_whoever_looks(session, clock, document):
    drop(session, document, "inbox/job.json")
    clock.advance(standing.REST_SECONDS)
    seek(session, WorkFilter(role="reviewer"), agent="r1")
    note = session.store.get("inbox/.failed/job.json.reason").data.decode()
    assert "coder, reviewer" in note


def test_a_large_file_stays_and_a_note_says_why(session):
    drop(session, b"{" + b" " * (1 << 20) + b"}")
    assert seek(session, CODER, agent="a1") is None
    assert names(session) == {"job.json", ".failed/job.json.reason"}


def test_dot_and_temporary_names_are_not_read(session, clock):
    for name in (".job.json", "job.json.tmp", "job.tmp", "x.signal"):
        drop(session, {}, f"inbox/coder/{name}")
    clock.advance(60)
    assert standings(session) == {}


def test_the_longest_names_are_kept_too(session, clock):
    name = "x" * 195 + ".json"
    drop(session, b"{", f"inbox/coder/{name}")
    clock.advance(standing.REST_SECONDS)
    seek(session, CODER, agent="a1")
    kept = names(session)
    assert len(kept) == 2
    assert all(key.startswith(".failed/xxx") for key in kept)


def test_records_of_a_session_that_was_deleted_mean_nothing_to_the_next(session, clock):
    drop(session, {"n": 1})
    take(session).complete()
    url = session.url
    for info in list(session.store.list()):
        session.store.delete(info.key)
    with tapstore.create(url, roles=["coder"], clock=clock) as again:
        drop(again, {"n": 1})
        take(again).complete()


# Sending


def test_a_sent_task_is_read_at_once(session):
    key = inbox.send(session.store, session.tapfile, "coder", {"requirement": "x"})
    work = take(session)
    assert (work.task.key, work.task.id) == (key, "s1")
    work.release()


def test_sending_to_nobody_lists_the_roles(session):
    with pytest.raises(NotAllowedError, match="coder, reviewer"):
        inbox.send(session.store, session.tapfile, "codr", {})


def test_what_could_not_be_done_is_not_sent(session):
    with pytest.raises(FormatError, match="invalid key"):
        inbox.send(session.store, session.tapfile, "coder", {"output_path": "../x"})
    assert names(session) == set()


def test_a_delivery_is_done_once_however_often_it_arrives(session, clock):
    inbox.drop(session.store, "coder", {"n": 1}, delivery="d1")
    take(session).complete()
    session.reopen("coder")
    clock.advance(60)
    inbox.drop(session.store, "coder", {"n": 1}, delivery="d1")
    assert seek(session, CODER, agent="a1") is None
    assert [n for n in names(session) if not n.startswith(".")] == []


def test_a_delivery_that_was_set_aside_is_tried_again_when_it_is_dropped_again(session, clock):
    key = inbox.drop(session.store, "coder", {"n": 1}, delivery="d1")
    for _ in range(3):
        take(session).fail("broken")
        session.reopen("coder")
    assert seek(session, CODER, agent="a1") is None
    clock.advance(1)
    (kept,) = [n for n in names(session) if n.endswith(".json")]
    drop(session, session.store.get(f"inbox/coder/{kept}").data, key)
    take(session).release()


# Signals


def signals(session, folder):
    return [n for n in names(session, folder) if n.endswith(".signal")]


def test_completing_signals_each_consumer_once(session):
    claim = session.claim("coder", agent="a1")
    claim.publish("x.py", b"1", consumers=["reviewer", "agent:r 2"])
    claim.publish("y.py", b"2", consumers=["role:reviewer"])
    claim.complete()
    notices.notify(session.store, session.tapfile, claim=claim.id, role="coder", agent="a1")
    (name,) = signals(session, "inbox/reviewer/")
    assert name == f"completed-coder-{claim.id}.signal"
    assert signals(session, "inbox/r%202/") == [name]
    said = json.loads(session.store.get(f"inbox/reviewer/{name}").data)
    assert [a["name"] for a in said["artifacts"]] == ["x.py", "y.py"]


def test_a_second_round_signals_again(session):
    for _ in range(2):
        claim = session.claim("coder", agent="a1")
        claim.publish("x.py", b"1", consumers=["reviewer"])
        claim.complete()
        session.reopen("coder")
    assert len(signals(session, "inbox/reviewer/")) == 2


def test_a_session_may_do_without_signals(clock):
    url = f"memory://{new_id()}/s"
    with tapstore.create(url, roles=["a"], notify_consumers=False, clock=clock) as session:
        claim = session.claim("a", agent="a1")
        claim.publish("x", b"", consumers=["b"])
        claim.complete()
        assert signals(session, "inbox/") == []


def test_a_block_that_forgets_its_work_gives_it_back(session):
    drop(session, {})
    with pytest.warns(UserWarning, match="ended without"), take(session):
        pass
    with warnings.catch_warnings():
        assert standings(session) == {KEY: Standing.WAITING}
