"""Who is alive is told from who is not, also in awkward moments."""

import shutil
import sys
import threading

import pytest

import tapstore
from tapstore.sessions import heartbeats
from tapstore.sessions.config import new_id
from tapstore.sessions.watchdog import Watchdog
from tapstore.stores.memory import MemoryStore
from tapstore.stores.wrapper import WrapperStore
from tapstore.tapfile.model import Grant, Participant, Tapfile
from tapstore.testing.clock import ManualClock
from tapstore.testing.faults import Fault, FaultyStore, lost
from tapstore.types import OVERWRITE


@pytest.fixture
def session(tmp_path):
    with tapstore.create(
        str(tmp_path / "s"), roles={"coder": 1, "reviewer": 2}, phase="start"
    ) as session:
        yield session


class SlowLock:
    """A `tapfile.lock` that one waits for until `free` is set."""

    def __init__(self):
        self.wanted, self.free = threading.Event(), threading.Event()

    def acquire(self, wait):  # noqa: ARG002
        self.wanted.set()
        return not self.free.wait(30)

    def is_ours(self):
        return False

    def release(self):
        pass


def test_heartbeats_go_on_while_another_thread_waits_to_commit(session):
    claim = session.claim("coder", agent="a")
    session.state._view._lock = lock = SlowLock()
    commit = threading.Thread(target=session.set_phase, args=("next",))
    commit.start()
    lock.wanted.wait(10)
    beat = threading.Thread(target=claim.heartbeat)
    beat.start()
    beat.join(10)
    in_time = not beat.is_alive()
    lock.free.set()
    commit.join()
    beat.join()
    claim.release()
    assert in_time


def test_a_heartbeat_right_after_the_claim_was_completed_is_no_loss(session):
    told = []
    claim = session.claim("coder", agent="a", on_lost=told.append)
    commit = session.state.commit

    def commit_and_beat(*operations):
        snapshot = commit(*operations)
        claim.heartbeat()  # as the thread would if it were due now
        return snapshot

    session.state.commit = commit_and_beat
    claim.complete()
    assert not claim.lost.is_set()
    assert told == []


def test_a_heartbeat_after_a_refused_completion_still_notices_the_loss(session):
    claim = session.claim("coder", agent="a")
    with pytest.raises(tapstore.InvalidKeyError):
        claim.complete(phase=" ")
    claim.heartbeat()
    session.reset("coder")
    with pytest.raises(tapstore.ClaimLostError):
        claim.heartbeat()
    claim.detach()


def test_a_claim_whose_heartbeats_fail_is_lost_as_a_claim(session):
    claim = session.claim("coder", agent="a", ttl=0.2)
    session.state.store = FaultyStore(session.store, Fault("*", "*", times=999, before=lost))
    assert claim.lost.wait(10)
    with pytest.raises(tapstore.ClaimLostError):
        claim.check()
    session.state.store = session.store
    claim.detach()


# The judgement


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def watched(clock):
    """On a store whose clock is that of this host."""
    url = f"memory://{new_id()}/s"
    with tapstore.create(url, roles=["coder"], phase="start", clock=clock) as session:
        yield session


def silent_claim(session, ttl=30.0):
    claim = session.claim("coder", agent="a", ttl=ttl)
    claim.detach()
    return claim


def beat(session, claim, clock, count=1, store=None):
    store = session.store if store is None else store
    heartbeats.write(store, agent="a", claim=claim.id, count=count, clock=clock)


def health(session):
    return [judgement.health.value for judgement in session.judge()]


class Stops(WrapperStore):
    """The observer is stopped for a while right after it has read a heartbeat."""

    def __init__(self, inner, clock):
        super().__init__(inner)
        self.clock, self.seconds = clock, 0.0

    def get(self, key, *, start=0, end=None):
        got = super().get(key, start=start, end=end)
        self.clock.advance(self.seconds)
        return got


def test_a_claim_is_stale_once_its_heartbeat_stayed_the_same_for_its_ttl(watched, clock):
    claim = silent_claim(watched)
    beat(watched, claim, clock.other_host(ahead=3600))  # by its own clock it is never old
    assert health(watched) == ["alive"]
    clock.advance(29.9)
    assert health(watched) == ["alive"]
    clock.advance(0.2)
    assert health(watched) == ["stale"]


def test_any_other_heartbeat_makes_it_alive_again(watched, clock):
    claim = silent_claim(watched)
    beat(watched, claim, clock)
    assert health(watched) == ["alive"]
    clock.advance(29)
    beat(watched, claim, clock, count=2)
    assert health(watched) == ["alive"]
    clock.advance(29)
    assert health(watched) == ["alive"]
    clock.advance(2)
    assert health(watched) == ["stale"]


def test_one_look_is_enough_if_both_clocks_say_so(watched, clock):
    claim = silent_claim(watched)
    beat(watched, claim, clock)
    clock.advance(30.1)
    assert health(watched) == ["stale"]


@pytest.mark.parametrize("ahead", [20, 3600])
def test_one_look_is_not_enough_if_the_claimants_clock_says_no(watched, clock, ahead):
    claim = silent_claim(watched)
    beat(watched, claim, clock.other_host(ahead=ahead))
    clock.advance(35)
    assert health(watched) == ["alive"]


def test_one_look_is_not_enough_if_the_clock_of_the_store_says_no(watched, clock):
    claim = silent_claim(watched)
    beat(watched, claim, clock.other_host(ahead=-3600))
    assert health(watched) == ["alive"]


def test_one_look_judges_nobody_where_host_and_store_are_far_apart(clock):
    store = MemoryStore(clock=clock.other_host(ahead=-301))
    participant = Participant(
        role="coder", agent_id="a", status="working",
        claim=Grant(id="c", fence=1, since="2001-01-01T00:00:00Z", ttl_seconds=1),
    )  # fmt: skip
    tapfile = Tapfile(session_id="s", participants=(participant,))
    observer = heartbeats.Observer(store, clock=clock, default_ttl=60)
    assert observer.judge(tapfile)[0].health is heartbeats.Health.ALIVE
    clock.advance(1)
    assert observer.judge(tapfile)[0].health is heartbeats.Health.STALE


@pytest.mark.parametrize("data", [b"garbage", b"", b"{}"])
def test_garbage_for_a_heartbeat_keeps_nobody_alive_for_ever(watched, clock, data):
    claim = silent_claim(watched)
    watched.store.put(heartbeats.key("a", claim.id), data, OVERWRITE)
    assert health(watched) == ["alive"]
    clock.advance(31)
    assert health(watched) == ["stale"]


def test_the_heartbeat_of_another_claim_is_no_excuse(watched, clock):
    claim = silent_claim(watched)
    beat(watched, claim, clock.other_host(ahead=3600))
    data = watched.store.get(heartbeats.key("a", claim.id)).data
    forged = data.replace(claim.id.encode(), b"another")
    watched.store.put(heartbeats.key("a", claim.id), forged, OVERWRITE)
    clock.advance(31)
    assert health(watched) == ["stale"]


def test_a_claim_without_a_ttl_has_that_of_the_session(watched, clock):
    grant = Grant(id="c", fence=1, since="2099-01-01T00:00:00Z")
    participant = Participant(role="coder", agent_id="a", status="working", claim=grant)
    tapfile = Tapfile(session_id="s", participants=(participant,))
    observer = heartbeats.Observer(watched.store, clock=clock, default_ttl=60)
    seen = []
    for _ in range(3):
        seen.append(observer.judge(tapfile)[0].health.value)
        clock.advance(30)
    assert seen == ["alive", "alive", "stale"]


def test_an_observer_that_was_stopped_while_it_looked_judges_nobody(watched, clock):
    claim = silent_claim(watched)
    store = Stops(watched.store, clock)
    observer = heartbeats.Observer(store, clock=clock, default_ttl=60)
    beat(watched, claim, clock)
    tapfile = watched.tapfile
    observer.judge(tapfile)
    clock.advance(10)
    store.seconds = 3600
    clock.after(15, lambda: beat(watched, claim, clock, count=2))
    assert observer.judge(tapfile)[0].health is heartbeats.Health.ALIVE


def test_a_watchdog_that_was_stopped_after_it_looked_resets_nobody(watched, clock):
    silent_claim(watched)
    clock.advance(40)
    watchdog = Watchdog(watched.state, clock=clock)
    judge = watchdog.judge

    def judge_and_stop():
        judgements = judge()
        clock.advance(16)
        return judgements

    watchdog.judge = judge_and_stop
    assert list(watchdog.sweep()) == []
    assert watched.tapfile.slots("coder")[0].status == "working"
    watchdog.judge = judge
    assert len(list(watchdog.sweep())) == 1


def external(heartbeat, *, renewed=True):
    grant = Grant(id="e", fence=2, external=True, renewed=renewed)
    participant = Participant(
        role="coder", agent_id="p", status="working", claim=grant, heartbeat=heartbeat,
        last_activity="2001-01-01T00:00:00Z",
    )  # fmt: skip
    return Tapfile(session_id="s", participants=(participant,))


def test_a_plain_agent_whose_clock_is_hours_behind_is_judged_by_watching_only(watched, clock):
    observer = heartbeats.Observer(watched.store, clock=clock, default_ttl=60)
    seen = []
    for heartbeat in ("2001-01-01T00:00:10Z", "2001-01-01T00:01:00Z", "2001-01-01T00:01:00Z"):
        seen.append(observer.judge(external(heartbeat))[0].health.value)
        clock.advance(60)
    assert seen == ["alive", "alive", "stale"]


def test_a_plain_agent_that_never_promised_a_heartbeat_is_never_judged(watched, clock):
    observer = heartbeats.Observer(watched.store, clock=clock, default_ttl=60)
    for _ in range(3):
        (judgement,) = observer.judge(external(None, renewed=False))
        assert judgement.health is heartbeats.Health.UNJUDGED
        clock.advance(3600)


def test_threads_of_a_process_may_judge_at_once(watched, clock):
    def claims(generation):
        return Tapfile(
            session_id="s",
            participants=tuple(
                Participant(
                    role=f"r{number}", agent_id="a", status="working",
                    claim=Grant(id=f"{generation}-{number}", fence=1, ttl_seconds=60),
                )
                for number in range(100)
            ),
        )  # fmt: skip

    observer = heartbeats.Observer(watched.store, clock=clock, default_ttl=60)
    old, new = claims("old"), claims("new")
    errors = []

    def judge():
        try:
            for _ in range(20):
                observer.judge(old)
                observer.judge(new)
        except RuntimeError as exc:
            errors.append(exc)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=judge) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert errors == []


def test_a_first_heartbeat_that_is_not_due_yet_is_not_missed():
    """The time of the grant in the Tapfile has no fraction of a second."""
    clock = ManualClock(wall=1_700_000_000.9)
    with tapstore.create(f"memory://{new_id()}/s", roles=["coder"], clock=clock) as session:
        silent_claim(session, ttl=0.9)
        clock.advance(0.2)
        assert health(session) == ["alive"]


# The reset


@pytest.fixture
def judged(watched, clock):
    """A watchdog that has judged a claim stale, and has not reset it yet."""
    claim = silent_claim(watched)
    clock.advance(40)
    watchdog = Watchdog(watched.state, clock=clock)
    (judgement,) = watchdog.judge()
    assert judgement.health is heartbeats.Health.STALE
    watchdog.judge = lambda: [judgement]
    return watchdog, claim


def test_a_claim_that_ended_since_it_was_judged_is_not_reset(watched, judged):
    watched.reset("coder")
    assert list(judged[0].sweep()) == []
    assert len(list(watched.log())) == 3


def test_a_reset_does_not_hit_the_next_claim(watched, judged):
    watched.reset("coder")
    silent_claim(watched)
    assert list(judged[0].sweep()) == []
    assert watched.tapfile.slots("coder")[0].status == "working"


def test_several_watchdogs_reset_once(watched, judged):
    assert len(watched.sweep()) == 1
    assert list(judged[0].sweep()) == []


def test_a_role_whose_claimants_keep_dying_fails(clock):
    with tapstore.create(
        f"memory://{new_id()}/s", roles=["coder"], max_attempts=2, clock=clock
    ) as session:
        for status in ("pending", "failed"):
            silent_claim(session)
            clock.advance(40)
            assert len(session.sweep()) == 1
            coder = session.tapfile.slots("coder")[0]
            assert coder.status == status
            assert "no sign of life from a for 3" in coder.reason
            assert "(ttl 30 s)" in coder.reason


def test_a_claim_is_ended_once(session):
    claim = session.claim("coder", agent="a")
    claim.release()
    rev = session.state.peek().rev
    for end in (claim.complete, claim.release, lambda: claim.fail("?")):
        with pytest.raises(tapstore.ClaimLostError, match="ended here"):
            end()
    assert session.state.peek().rev == rev


def test_no_heartbeat_file_is_left_of_a_claim_that_ended(session):
    claim = session.claim("coder", agent="a")
    claim.heartbeat()
    assert len(list(session.store.list(".tap/heartbeats/"))) == 1
    claim.complete()
    assert list(session.store.list(".tap/heartbeats/")) == []


def test_a_claim_is_lost_at_once_with_its_session(session):
    claim = session.claim("coder", agent="a")
    shutil.rmtree(session.store.root)
    with pytest.raises(tapstore.ClaimLostError, match="went with its session"):
        claim.heartbeat()
    claim.detach()


def test_who_waits_for_a_role_does_not_wake_the_others_who_wait(session):
    """Each attempt to commit would take tapfile.lock, and file notifications tell of that."""
    holder = session.claim("coder", agent="a")
    attempts = []
    commit = session.state.commit

    def count(*operations):
        attempts.append(operations)
        return commit(*operations)

    session.state.commit = count
    with pytest.raises(tapstore.AlreadyClaimedError, match="claimed by a"):
        session.claim("coder", agent="b", wait=0.3)
    assert len(attempts) == 1
    threading.Timer(0.1, holder.release).start()
    session.claim("coder", agent="b", wait=20).release()


def test_the_wait_for_a_role_ends_when_there_is_nothing_to_wait_for(session):
    claim = session.claim("coder", agent="a")
    threading.Timer(0.1, claim.complete).start()
    with pytest.raises(tapstore.NotAllowedError, match="reopen coder"):
        session.claim("coder", agent="b", wait=20)
