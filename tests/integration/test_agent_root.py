"""Agents and tasks in all sessions below one place."""

import errno
import json
import logging
import os
import shutil
import warnings

import pytest

import tapstore
from tapstore.agents import AgentSpec, Ending, Worker, WorkFilter
from tapstore.errors import FormatError, InvalidKeyError, NotAllowedError, StoreError
from tapstore.roots.root import SessionFailedWarning, root
from tapstore.sessions.claim import ClaimNotEndedWarning
from tapstore.sessions.config import new_id
from tapstore.tasks.standing import REST_SECONDS
from tapstore.testing.clock import ManualClock
from tapstore.types import CREATE, OVERWRITE

TEMPLATE = b"roles: [coder, reviewer]\nphases: [start, done]\nclaim_ttl_seconds: 5\n"


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def base(clock):
    with root(f"memory://{new_id()}/team", clock=clock) as base:
        yield base


def make(base, place, *, roles=("coder", "reviewer"), **options):
    return base.create(place, roles=roles, phase="p", **options)


def offer(session, consumer="reviewer"):
    claim = session.claim("coder", agent="c1")
    claim.publish("x.py", b"1", consumers=[consumer])
    claim.complete()


def agent(base, handler, role="reviewer"):
    return Worker(base, AgentSpec(agent="r1", work=WorkFilter(role=role)), handler)


def do_nothing(_work):
    pass


# Finding sessions


@pytest.fixture
def private(tmp_path, monkeypatch):
    """A root with a folder that we may not look into, and a session behind it."""
    (tmp_path / "lost+found" / ".tap" / "session").mkdir(parents=True)
    listed = os.scandir

    def scandir(path):
        if "lost+found" in os.fspath(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with root(tmp_path) as base:
        make(base, "shared")
        yield base


def test_a_folder_of_somebody_else_hides_no_session(private, caplog):
    offer(private.session("shared"))
    assert agent(private, do_nothing).run_once(wait=5).session_id == "shared"
    assert "lost+found" in caplog.text


def test_a_session_that_may_be_in_there_is_not_called_missing(private):
    with pytest.raises(StoreError, match=r"lost\+found"):
        private.session("other")


def test_sessions_are_found_at_any_depth_up_to_the_bound(base):
    for place in ("a", "b/c", "b/d/e/f"):
        make(base, place)
    tapstore.create(f"{base.url}/b/d/e/f2/too-deep", roles=["x"], clock=base.clock).close()
    assert list(base.places()) == ["a", "b/c", "b/d/e/f"]


def test_nothing_is_looked_for_inside_a_session(base):
    session = make(base, "a")
    session.store.put("artifacts/p/.tap/session", b"{}", CREATE)
    session.store.put("inner/.tap/session", b"{}", CREATE)
    assert list(base.places()) == ["a"]


def test_folders_that_are_no_sessions_are_passed_by(base):
    make(base, "a")
    for key in ("inbox/coder/x.json", "notes/readme", ".cache/x/.tap/session", "odd/.tap/other"):
        base.store.put(key, b"{}", CREATE)
    assert list(base.places()) == ["a"]


def test_a_session_is_a_root_of_itself(clock):
    url = f"memory://{new_id()}/s"
    with tapstore.create(url, roles=["coder"], clock=clock), root(url, clock=clock) as itself:
        assert [s.id for s in itself.sessions()] == ["s"]


def test_sessions_made_later_are_seen(base):
    make(base, "a")
    seen = base.watch(timeout=10)
    assert next(seen).id == "a"
    make(base, "x/b")
    assert next(seen).id == "b"
    assert list(seen) == []


def test_a_session_made_again_under_its_name_is_another_one(base, clock):
    make(base, "a")
    seen = base.watch(timeout=10)
    first = next(seen)
    for info in list(first.store.list()):
        first.store.delete(info.key)
    base.forget("a")
    with tapstore.create(first.url, roles=["x"], clock=clock):
        assert next(seen).config.incarnation != first.config.incarnation


@pytest.mark.parametrize("place", ["../a", "/a", "a/../../b", "", "inbox", "x/.y", "1/2/3/4/5"])
def test_no_session_is_made_where_it_would_not_be_found(base, place):
    with pytest.raises(InvalidKeyError):
        make(base, place)


def test_two_sessions_of_one_id_are_told_apart_by_their_places(base):
    make(base, "a/s")
    make(base, "b/s")
    with pytest.raises(NotAllowedError, match="2 sessions 's'"):
        base.session("s")


# Work across sessions


def test_a_task_for_one_of_two_sessions_of_an_id_is_set_aside(base, clock):
    base.store.put(".tapstore/template.yaml", TEMPLATE)
    make(base, "a/s")
    make(base, "b/s")
    drop(base, {"task_id": "s"})
    clock.advance(REST_SECONDS)
    deliver(base)
    assert list(base.places()) == ["a/s", "b/s"]
    assert "2 sessions" in base.store.get("inbox/coder/.failed/job.json.reason").data.decode()


def test_work_of_all_sessions_comes_up_in_turn(base):
    for place in ("a", "b", "c"):
        offer(make(base, place))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = []
        for work in base.work(role="reviewer", agent="r1", timeout=5):
            found.append(work.session.id)
            work.complete()
    assert found == ["a", "b", "c"]


def test_work_that_was_not_ended_is_released_with_a_warning(base):
    session = make(base, "a")
    offer(session)
    pieces = base.work(role="reviewer", agent="r1")
    assert next(pieces).session.id == "a"
    with pytest.warns(ClaimNotEndedWarning):
        pieces.close()  # as when a loop over it is left
    assert session.tapfile.slots("reviewer")[0].status == "pending"


def test_an_agent_serves_sessions_that_are_made_while_it_works(base):
    offer(make(base, "a"))

    def handler(work):
        if work.session.id == "a":
            offer(make(base, "b"))

    assert agent(base, handler).run(idle=5) == 2


def test_sessions_without_the_role_are_passed_by(base):
    make(base, "a", roles=["other"])
    offer(make(base, "b"))
    outcome = agent(base, do_nothing).run_once(wait=5)
    assert outcome.session_id == "b"


def test_a_session_that_fails_does_not_keep_the_others_waiting(base, caplog):
    make(base, "a")
    base.store.put("a/.tap/session", b"damaged", OVERWRITE)
    offer(make(base, "b"))
    with root(base.url, clock=base.clock) as fresh, caplog.at_level(logging.WARNING):
        outcome = agent(fresh, do_nothing).run_once(wait=5)
    assert outcome.ending is Ending.COMPLETED
    assert ".tap/session is damaged" in caplog.text


def test_a_session_that_fails_is_told_and_looked_at_less_and_less_often(base, caplog):
    make(base, "a")
    base.store.put("a/.tap/Tapfile", b"damaged", OVERWRITE)
    with root(base.url, clock=base.clock) as fresh, caplog.at_level(logging.WARNING):
        assert agent(fresh, do_nothing).run(idle=100) == 0
    assert 5 <= len(caplog.records) <= 9


def test_iterating_over_work_warns_of_a_session_that_fails(base):
    make(base, "a")
    base.store.put("a/.tap/session", b"damaged", OVERWRITE)
    with (
        root(base.url, clock=base.clock) as fresh,
        pytest.warns(SessionFailedWarning, match="damaged"),
    ):
        assert list(fresh.work(role="reviewer", agent="r1", timeout=1)) == []


# The inbox of a root


def drop(base, document, key="inbox/coder/job.json"):
    base.store.put(key, json.dumps(document).encode(), OVERWRITE)


def deliver(base):
    for key in list(base.tasks()):
        base.deliver(key)


def names(base):
    return {info.key for info in base.store.list("inbox/")}


def test_a_task_for_a_session_goes_there(base):
    session = make(base, "deep/a")
    drop(base, {"task_id": "a", "requirement": "x"})
    seen = []
    agent(base, lambda work: seen.append((work.session.id, work.requirement)), "coder").run(idle=5)
    assert seen == [("a", "x")]
    assert names(base) == set()
    assert len(list(session.store.list("inbox/coder/.done/"))) == 1


def test_a_task_that_can_not_be_delivered_yet_keeps_no_other_waiting(tmp_path, caplog):
    with root(tmp_path) as base:
        make(base, "a")
        make(base, "b")
        (tmp_path / "a" / "inbox" / "coder").rmdir()
        (tmp_path / "a" / "inbox" / "coder").touch()
        drop(base, {"task_id": "a"}, "inbox/coder/1.json")
        drop(base, {"task_id": "b"}, "inbox/coder/2.json")
        assert agent(base, do_nothing, "coder").run_once(wait=5).session_id == "b"
        assert names(base) == {"inbox/coder/1.json"}
    assert "a file is where a folder should be" in caplog.text


def test_a_task_for_an_unknown_session_starts_one_from_the_template(base):
    base.store.put(".tapstore/template.yaml", TEMPLATE)
    drop(base, {"task_id": "new one/1", "requirement": "x"})
    outcome = agent(base, do_nothing, "coder").run_once(wait=5)
    assert outcome.session_id == "new one/1"
    session = base.session("new one/1")
    assert session.url == f"{base.url}/new%20one%2F1"
    assert session.tapfile.phases == ("start", "done")
    assert session.config.claim_ttl_seconds == 5


def test_an_explicit_session_id_goes_before_the_task_id(base):
    make(base, "a")
    drop(base, {"session_id": "a", "task_id": "7"})
    outcome = agent(base, do_nothing, "coder").run_once(wait=5)
    assert (outcome.session_id, outcome.task_id) == ("a", "7")


@pytest.mark.parametrize(
    ("document", "key", "reason"),
    [
        ({"task_id": "x"}, "inbox/coder/job.json", "no session 'x'"),
        ({"requirement": "x"}, "inbox/coder/job.json", "names no session"),
        ({"task_id": "a"}, "inbox/job.json", "names no role"),
        ({"task_id": "a"}, "inbox/nobody/job.json", "no role 'nobody'"),
        ({"task_id": "a", "role": "reviewer"}, "inbox/coder/job.json", "names the role reviewer"),
        ({"task_id": "a", "output_path": "/x"}, "inbox/coder/job.json", "absolute"),
    ],
)
def test_what_can_not_be_delivered_is_set_aside_with_the_reason(base, clock, document, key, reason):
    make(base, "a")
    drop(base, document, key)
    deliver(base)
    clock.advance(REST_SECONDS)
    deliver(base)
    folder = key.rpartition("/")[0]
    assert names(base) == {f"{folder}/.failed/job.json", f"{folder}/.failed/job.json.reason"}
    assert reason in base.store.get(f"{folder}/.failed/job.json.reason").data.decode()


def test_a_template_with_an_unknown_field_is_an_error_that_names_it(base, clock):
    base.store.put(".tapstore/template.json", b'{"roles": ["coder"], "rolls": 1}')
    drop(base, {"task_id": "x"})
    clock.advance(REST_SECONDS)
    deliver(base)
    reason = base.store.get("inbox/coder/.failed/job.json.reason").data.decode()
    assert "template.json" in reason
    assert "rolls" in reason


def test_a_task_that_arrives_twice_is_done_once(base):
    session = make(base, "a")
    drop(base, {"task_id": "a"})
    deliver(base)
    (delivered,) = session.store.list("inbox/coder/")
    content = session.store.get(delivered.key).data
    assert agent(base, do_nothing, "coder").run(idle=5) == 1
    # As if who delivered it had died before the file was removed, and another one had gone on.
    session.store.put(delivered.key, content, CREATE)
    session.reopen("coder")
    assert agent(base, do_nothing, "coder").run(idle=5) == 0


def test_a_task_that_is_copied_again_with_its_time_is_delivered_again(tmp_path):
    with root(tmp_path / "root") as base:
        session = make(base, "a")
        (tmp_path / "job.json").write_text('{"task_id": "a"}')
        folder = tmp_path / "root" / "inbox" / "coder"
        folder.mkdir(parents=True)
        for count in range(1, 20):
            # Sooner or later it gets the inode that the one before had.
            shutil.copy2(tmp_path / "job.json", folder)
            deliver(base)
            assert len(list(session.store.list("inbox/coder/"))) == count


def test_delivering_goes_on_after_a_crash_before_the_removal(base, monkeypatch):
    session = make(base, "a")
    drop(base, {"task_id": "a"})
    with monkeypatch.context() as patched:
        patched.setattr("tapstore.tasks.removal.remove", lambda *_: None)
        deliver(base)
        deliver(base)
    deliver(base)
    assert len(list(session.store.list("inbox/coder/"))) == 1
    assert names(base) == set()


def test_a_sent_task_names_its_session(base):
    with pytest.raises(FormatError, match="session_id"):
        base.send("coder", {"requirement": "x"})
    make(base, "a")
    base.send("coder", {"session_id": "a", "requirement": "x"})
    assert agent(base, do_nothing, "coder").run(idle=5) == 1
