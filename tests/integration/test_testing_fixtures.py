"""The test kit's fixtures are what they are said to be."""

import errno
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

import tapstore
from tapstore.errors import AlreadyExistsError, ClaimLostError, OutcomeUnknownError, StoreError
from tapstore.testing.agents import claim, complete, die, fail, heartbeat, publish, release
from tapstore.testing.faults import Fault, SimulatedCrash, crash_at, lost, refuse, slow, throttle
from tapstore.testing.stale import StaleListings

PLACES = ["tapstore_memory", "tapstore_folder", "tapstore_tmpfs", "tapstore_moto"]


@pytest.fixture(params=PLACES)
def place(request):
    return request.getfixturevalue(request.param)


def test_a_session_is_made_and_found_by_another_agent(tapstore_place):
    tapstore_place.create(roles=["coder"], phase="one")
    tapstore_place.open().set_phase("two")
    assert tapstore_place.open().phase == "two"


@pytest.mark.parametrize("number", [1, 2])
def test_each_test_has_its_place_for_itself(place, number):
    place.create(roles=["coder"], phase=f"{number}")
    with pytest.raises(AlreadyExistsError):
        place.create(roles=["coder"])
    place.create("another", roles=["coder"])


@pytest.mark.parametrize("fixture", ["tapstore_folder", "tapstore_tmpfs", "tapstore_moto"])
def test_another_program_reaches_the_place_through_its_environment(request, fixture):
    place = request.getfixturevalue(fixture)
    session = place.create(roles=["coder"], phase="one")
    subprocess.run(
        [sys.executable, "-m", "tapstore", "phase", "two"],
        env={**os.environ, **place.environment, "TAPSTORE_URL": place.url_of()},
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    assert session.phase == "two"


def test_of_many_that_create_on_moto_exactly_one_wins(tapstore_moto):
    store = tapstore_moto.store()
    clients, rounds = 6, 5
    barrier = threading.Barrier(clients)

    def contend(number):
        won = []
        for each in range(rounds):
            barrier.wait(60)
            try:
                store.put(f"race/{each}", b"%d" % number)
                won.append(each)
            except AlreadyExistsError:
                pass
        return won

    with ThreadPoolExecutor(clients) as pool:
        wins = [each for won in pool.map(contend, range(clients)) for each in won]
    assert sorted(wins) == list(range(rounds))


def test_a_session_uses_valkey_as_its_lock_service(tapstore_moto, tapstore_redis):
    session = tapstore_moto.create(roles=["coder"], locks=tapstore_redis.url)
    with session.lock("gpu-0", ttl=30), tapstore_redis.client() as client:
        assert client.dbsize() > 0
    assert session.config.locks == tapstore_redis.url


@pytest.mark.parametrize("number", [1, 2])
def test_each_test_finds_valkey_empty(tapstore_redis, number):
    with tapstore_redis.client() as client:
        assert client.dbsize() == 0
        client.set("left", number)


# Faults


def test_a_lost_reply_is_looked_up_and_counted_once(place):
    place.create(roles=["coder"], phase="one")
    session = place.open(faults=[Fault("put", times=3, after=lost)])
    session.set_phase("two", reason="once")
    assert [entry.reason for entry in session.log()].count("once") == 1


def test_without_what_copes_with_it_a_lost_reply_is_an_unknown_outcome(place):
    store = place.store(faults=[Fault("put", after=lost)])
    with pytest.raises(OutcomeUnknownError):
        store.inner.inner.put("key", b"data")


def test_throttling_is_waited_for_as_long_as_the_place_asks_to(place, tapstore_clock):
    store = place.store(faults=[Fault("head", before=throttle(7.0))], clock=tapstore_clock)
    store.put("key", b"data")
    began = tapstore_clock.monotonic()
    store.head("key")
    assert tapstore_clock.monotonic() - began == 7.0


def test_a_slow_call_takes_its_time_by_the_clock_that_is_given(place, tapstore_clock):
    store = place.store(faults=[Fault("get", before=slow(20, tapstore_clock))])
    store.put("key", b"data")
    began = tapstore_clock.monotonic()
    assert store.get("key").data == b"data"
    assert tapstore_clock.monotonic() - began == 20


def test_a_refusal_leaves_the_session_as_it_was(place):
    place.create(roles=["coder"], phase="one")
    session = place.open(faults=[Fault("put", times=99, before=refuse(errno.ENOSPC))])
    with pytest.raises(StoreError, match="No space left"):
        session.set_phase("two")
    assert place.open().phase == "one"


def test_a_crash_at_each_step_leaves_the_old_phase_or_the_new_one(tapstore_folder):
    phases = []
    for step in count(1):
        name = f"crash-{step}"
        session = tapstore_folder.create(name, roles=["coder"], phase="one")
        try:
            tapstore_folder.open(name, faults=[crash_at(step)]).set_phase("two")
        except SimulatedCrash:
            phases.append(session.phase)
            session.set_phase("three")  # the next one goes on
        else:
            break
    assert phases == sorted(phases)
    assert set(phases) == {"one", "two"}


def test_a_session_does_not_rely_on_listings(place):
    views = []

    def stale(store):
        views.append(StaleListings(store))
        return views[-1]

    other = place.create(roles=["coder"], phase="one")
    session = place.open(wrap=stale)
    assert session.phase == "one"
    for view in views:
        view.freeze()
    other.set_phase("two")
    assert session.phase == "two"


def test_a_frozen_listing_shows_what_was_there(place):
    store = StaleListings(place.store())
    for key in ("a/1", "a/2", "b"):
        store.put(key, b"")
    store.freeze()
    store.put("c", b"")
    store.delete("a/1")
    assert [info.key for info in store.list()] == ["a/1", "a/2", "b"]
    assert [info.key for info in store.list("a/", start_after="a/1")] == ["a/2"]
    assert list(store.children()) == ["a/", "b"]
    store.thaw()
    assert [info.key for info in store.list()] == ["a/2", "b", "c"]


# Agents


@pytest.fixture
def session(place):
    return place.create(roles=["coder", "reviewer"], phase="coding")


def test_a_script_is_done_step_by_step(session, tapstore_agent):
    steps = [
        claim(),
        heartbeat(),
        publish("a.py", b"1", type="code", consumers=["reviewer"]),
        complete(phase="review"),
    ]
    agent = tapstore_agent(session, "coder", steps)
    agent.run(until=3)
    assert [p.agent_id for p in session.tapfile.participants] == ["coder-1", ""]
    assert session.artifacts["a.py"].read_bytes() == b"1"
    agent.run()
    assert (agent.done, session.phase) == (4, "review")


def test_scripts_can_fail_and_give_back(session, tapstore_agent):
    tapstore_agent(session, "coder", [claim(), fail("no idea")]).run()
    tapstore_agent(session, "reviewer", [claim(), release()]).run()
    assert [p.status for p in session.tapfile.participants] == ["failed", "pending"]


def test_an_agent_that_died_keeps_its_role_until_somebody_takes_it_back(session, tapstore_agent):
    dead = tapstore_agent(session, "coder", [claim(), die(), complete()], agent="dead")
    dead.run(until=2)
    with pytest.raises(tapstore.AlreadyClaimedError, match="dead"):
        session.claim("coder", agent="next")
    session.reset("coder", by="me")
    tapstore_agent(session, "coder", [claim()], agent="next").run()


def test_a_zombie_is_refused_and_damages_nothing(session, tapstore_agent):
    dead = tapstore_agent(session, "coder", [claim(), die(), complete(phase="wrong")], agent="dead")
    dead.run(until=2)
    session.reset("coder", by="me")
    tapstore_agent(session, "coder", [claim(), complete(phase="right")], agent="next").run()
    with pytest.raises(ClaimLostError):
        dead.run()
    assert session.phase == "right"


def test_a_zombie_whose_role_nobody_took_back_may_end_its_work(session, tapstore_agent):
    tapstore_agent(session, "coder", [claim(), die(), complete(phase="late")]).run()
    assert session.phase == "late"


def test_the_dead_are_found_out_as_time_passes(tapstore_memory, tapstore_clock, tapstore_agent):
    session = tapstore_memory.create(roles=["coder"], claim_ttl=60, clock=tapstore_clock)
    tapstore_agent(session, "coder", [claim(), die()]).run()
    assert session.sweep() == []
    tapstore_clock.advance(61)
    assert [p.label for p in session.sweep()] == ["coder"]


def test_a_script_without_a_claim_says_so(session, tapstore_agent):
    with pytest.raises(RuntimeError, match=r"lacks a claim\(\)"):
        tapstore_agent(session, "coder", [complete()]).run()
