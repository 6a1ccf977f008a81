"""A session as its users see it, on the places that the core brings."""

import threading
import warnings
from dataclasses import replace

import pytest

import tapstore
from tapstore.sessions.claim import ClaimNotEndedWarning
from tapstore.sessions.config import new_id
from tapstore.stores.memory import MemoryStore


@pytest.fixture(params=["memory", "create-only memory", "local"])
def url(request, tmp_path, monkeypatch):
    if request.param == "local":
        return str(tmp_path / "s")
    if request.param == "create-only memory":
        capabilities = replace(MemoryStore.capabilities, update=False)
        monkeypatch.setattr(MemoryStore, "capabilities", capabilities)
    return f"memory://{new_id()}/s"


@pytest.fixture
def session(url):
    with tapstore.create(url, roles={"coder": 1, "reviewer": 2}, phase="start") as session:
        yield session


@pytest.mark.usefixtures("session")
def test_a_session_is_created_once(url):
    with pytest.raises(tapstore.AlreadyExistsError, match="there is a session at"):
        tapstore.create(url, roles=["x"])


def test_opening_what_is_not_there_says_how_to_make_it(tmp_path):
    with pytest.raises(tapstore.SessionNotFoundError, match="tapstore init"):
        tapstore.open(str(tmp_path))


def test_what_one_commits_the_other_sees(session, url):
    with tapstore.open(url) as other:
        session.set_phase("next")
        assert other.phase == "next"


def test_eight_threads_race_for_a_role_and_one_wins(session):
    winners, losers = [], []
    barrier = threading.Barrier(8)

    def race(number):
        barrier.wait()
        try:
            winners.append(session.claim("coder", agent=f"a{number}"))
        except tapstore.AlreadyClaimedError:
            losers.append(number)

    threads = [threading.Thread(target=race, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(winners), len(losers)) == (1, 7)
    winners[0].release()


def test_the_pipeline_of_coder_and_reviewer(session):
    with session.claim("coder", agent="coder-01") as claim:
        claim.publish("x.py", b"print(1)\n", type="code", consumers=["reviewer"])
        claim.complete(phase="awaiting_review")
    session.wait_for(phase="awaiting_review", completed="coder", timeout=5)
    with session.claim("reviewer", agent="r1") as claim:
        code = session.artifacts["x.py"].read_text()
        report = session.stage("report.txt", code.upper().encode(), claim=claim)
        claim.complete(phase="done", publish=[report])
    assert session.artifacts["report.txt"].read_bytes() == b"PRINT(1)\n"
    assert [entry.operations for entry in session.log()] == [
        (), ("claim",), ("publish",), ("complete",), ("claim",), ("complete",),
    ]  # fmt: skip


def test_an_exception_fails_the_claim_with_its_reason(session):
    with pytest.raises(RuntimeError), session.claim("coder", agent="a"):
        raise RuntimeError("model is down")
    coder = session.tapfile.slots("coder")[0]
    assert (coder.status, coder.reason) == ("failed", "RuntimeError: model is down")


def test_ctrl_c_releases_the_claim(session):
    with pytest.raises(KeyboardInterrupt), session.claim("coder", agent="a"):
        raise KeyboardInterrupt
    assert session.tapfile.slots("coder")[0].status == "pending"


def test_a_block_that_ends_without_a_result_warns_and_releases(session):
    with pytest.warns(ClaimNotEndedWarning), session.claim("coder", agent="a"):
        pass
    assert session.tapfile.slots("coder")[0].status == "pending"


def test_a_claim_that_was_reset_is_refused_and_leaves_nothing(session):
    claim = session.claim("coder", agent="a")
    session.reset("coder", reason="test")
    with pytest.raises(tapstore.ClaimLostError):
        claim.publish("x", b"zombie")
    with pytest.raises(tapstore.ClaimLostError):
        claim.complete()
    assert len(session.artifacts) == 0


def test_what_the_winner_published_is_not_damaged_by_the_zombie(session):
    zombie = session.claim("coder", agent="a")
    session.reset("coder")
    with session.claim("coder", agent="b") as winner:
        winner.publish("x", b"winner")
        with pytest.raises(tapstore.ClaimLostError):
            zombie.publish("x", b"zombie")
        winner.complete()
    zombie.detach()
    assert session.artifacts["x"].read_bytes() == b"winner"


def test_a_token_that_is_not_the_holders_resets_nothing(session):
    claim = session.claim("coder", agent="a")
    with pytest.raises(tapstore.ClaimLostError, match=f"under token {claim.token}"):
        session.reset("coder", token=claim.token + 1)
    claim.release()


def test_claim_tokens_rise(session):
    tokens = []
    for _ in range(3):
        claim = session.claim("coder", agent="a")
        tokens.append(claim.token)
        claim.release()
    assert tokens == sorted(set(tokens))


def test_a_claim_is_resumed_by_its_id(session, url):
    claim = session.claim("coder", agent="a")
    claim.detach()
    with tapstore.open(url) as other:
        other.resume_claim(claim.id).complete(phase="next")
    assert session.tapfile.slots("coder")[0].status == "completed"
    with pytest.raises(tapstore.ClaimLostError):
        session.resume_claim(claim.id)


def test_waiting_for_what_does_not_come_says_what_is_the_case(session):
    with pytest.raises(tapstore.WaitTimeoutError, match="the phase is 'start', not 'other'"):
        session.wait_for(phase="other", timeout=0.01)


def test_a_waiting_claim_gets_the_role_when_it_is_released(session):
    first = session.claim("coder", agent="a")
    threading.Timer(0.1, first.release).start()
    second = session.claim("coder", agent="b", wait=10)
    assert second.agent == "b"
    second.release()


def test_a_signal_is_given_once_and_wakes_who_waits(session):
    session.signal("go", {"n": 1}, by="me")
    session.wait_for(signal="go", timeout=5)
    assert session.read_signal("go")["data"] == {"n": 1}
    assert session.signals() == ["go"]
    with pytest.raises(tapstore.AlreadyExistsError):
        session.signal("go")


def test_edits_of_two_threads_are_both_there(session):
    session.edit(lambda d: d.update(counter=0))

    def count():
        for _ in range(10):
            session.edit(lambda d: d.update(counter=d["counter"] + 1))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert session.tapfile.extra["counter"] == 40


@pytest.mark.usefixtures("session")
def test_another_lock_service_than_the_session_remembers_is_refused(url):
    with pytest.raises(
        tapstore.NotAllowedError, match=r"locks='(o_excl|store)', not 'redis://\*\*\*@h'"
    ):
        tapstore.open(url, locks="redis://:secret@h")


def test_the_schema_of_the_session_is_checked_in_each_commit(url):
    schema = b'{"properties": {"budget": {"type": "integer", "maximum": 10}}}'
    with tapstore.create(url, roles=["coder"], schema=schema, fields={"budget": 1}) as session:
        with pytest.raises(tapstore.FormatError, match="budget"):
            session.edit(lambda d: d.update(budget=11))
        assert session.tapfile.extra["budget"] == 1


def test_declared_phases_hold_for_everybody(url):
    with tapstore.create(url, roles=["coder"], phases=["a", "b"]) as session:
        assert session.phase == "a"
        with session.claim("coder", agent="x") as claim:
            with pytest.raises(tapstore.NotAllowedError, match="in order: a, b"):
                claim.complete(phase="c")
            claim.complete(phase="b")


def test_a_named_lock_is_held_by_one(session):
    with session.lock("gpu", ttl=30, agent="a") as guard:
        assert guard.lease.generation >= 1
        with pytest.raises(tapstore.LeaseUnavailableError, match="a"):
            session.lock("gpu", ttl=30, agent="b")
    with session.lock("gpu", ttl=30, agent="b") as second:
        assert second.lease.generation > guard.lease.generation


def test_a_deleted_session_is_an_error_and_never_empty(tmp_path):
    import shutil

    session = tapstore.create(str(tmp_path / "s"), roles=["coder"])
    shutil.rmtree(tmp_path / "s")
    with pytest.raises(tapstore.SessionNotFoundError):
        _ = session.tapfile
    with pytest.raises(tapstore.SessionNotFoundError):
        session.set_phase("x")


def test_a_session_made_again_under_its_name_is_not_touched_by_the_old(tmp_path):
    import shutil

    old = tapstore.create(str(tmp_path / "s"), roles=["coder"], phase="old")
    shutil.rmtree(tmp_path / "s")
    with tapstore.create(str(tmp_path / "s"), roles=["coder"], phase="new") as new:
        with pytest.raises(tapstore.SessionNotFoundError, match="made in its place"):
            old.set_phase("ghost")
        assert new.phase == "new"
        assert b"ghost" not in (tmp_path / "s" / ".tap" / "Tapfile").read_bytes()


def test_a_heartbeat_shows_in_the_next_commit(session):
    claim = session.claim("coder", agent="a", ttl=30)
    claim.heartbeat()
    session.set_phase("x")
    assert session.tapfile.slots("coder")[0].heartbeat is not None
    claim.release()


def test_no_warning_where_the_claim_was_ended(session):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with session.claim("coder", agent="a") as claim:
            claim.complete()


def test_watch_yields_each_commit_from_a_revision(session):
    session.set_phase("a")
    session.set_phase("b")
    seen = [entry.phase for entry in session.watch(after=1, timeout=0)]
    assert seen == [("start", "a"), ("a", "b")]
