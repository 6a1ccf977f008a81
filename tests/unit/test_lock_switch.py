"""The lock service of a session is changed while agents hold leases, wait, are paused or die."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

import tapstore
from tapstore.errors import (
    ConflictError,
    FormatError,
    LeaseLostError,
    LeaseUnavailableError,
    NotAllowedError,
    NotFoundError,
    StoreError,
)
from tapstore.sessions.lockrecords import LockRecords
from tapstore.sessions.lockservice import GENERATION_BITS
from tapstore.stores.memory import MemoryStore
from tapstore.testing.clock import ManualClock
from tapstore.testing.faults import Fault, FaultyStore, SimulatedCrash, crash, lost
from tapstore.types import Owner
from tests.unit import elsewhere

TTL = 30.0


class Client:
    """One process of one host, with the session open."""

    def __init__(self, name: str, store, clock: ManualClock, *faults: Fault) -> None:
        self.owner = Owner(agent=name, instance=name, host=f"host-{name}", pid=1)
        self.session = tapstore.open(FaultyStore(store, *faults), clock=clock.other_host())
        self.locks = self.session.locks

    def acquire(self, lease: str = "gpu", *, wait: float | None = 0, ttl: float = TTL):
        return self.locks.acquire(lease, self.owner, ttl=ttl, wait=wait)

    def switch(self, locks: str = "store", **options):
        return self.session.switch_locks(locks, agent=self.owner.agent, **{"wait": 0, **options})


class World:
    """A session in memory, made with `o_excl`, and whoever opens it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(clock=self.clock)
        tapstore.create(self.store, roles=["coder"], locks="o_excl", clock=self.clock)
        self.records = LockRecords(self.store, tapstore.open(self.store).config)

    def client(self, name: str, *faults: Fault) -> Client:
        return Client(name, self.store, self.clock, *faults)

    @property
    def in_force(self) -> tuple[int, bool]:
        fresh = LockRecords(self.store, tapstore.open(self.store).config)
        number = fresh.newest()
        return number, fresh.is_open(number)


@pytest.fixture
def world() -> World:
    return World()


# The service in force


def test_everybody_goes_to_the_new_service_at_the_next_acquire(world):
    anna, bert = world.client("anna"), world.client("bert")
    anna.locks.release(anna.acquire())
    bert.switch()
    anna.acquire()
    assert (anna.locks.name, world.client("carl").locks.name) == ("store", "store")
    assert list(world.store.list(f".tap/{anna.session.config.incarnation}/leases/000001/gpu/"))


def test_a_lease_in_the_new_service_excludes_one_who_knew_only_the_old(world):
    anna, bert = world.client("anna"), world.client("bert")
    bert.locks.release(bert.acquire())  # has looked, and believes in the old one
    anna.switch()
    anna.acquire()
    with pytest.raises(LeaseUnavailableError, match="anna"):
        bert.acquire()


def test_nothing_is_granted_in_the_new_service_that_is_held_in_the_old(world):
    anna, bert = world.client("anna"), world.client("bert")
    lease = anna.acquire()
    with pytest.raises(LeaseUnavailableError, match=r"'gpu' by anna on host-anna"):
        bert.switch()
    with pytest.raises(LeaseUnavailableError, match="anna"):
        bert.acquire()
    anna.locks.release(lease)
    assert bert.acquire().generation >> GENERATION_BITS == 1


def test_other_leases_can_be_had_while_one_is_still_held_in_the_old(world):
    anna, bert = world.client("anna"), world.client("bert")
    anna.acquire("gpu")
    with pytest.raises(LeaseUnavailableError):
        bert.switch()
    assert bert.acquire("disk").generation >> GENERATION_BITS == 1
    assert world.in_force == (1, False)


def test_a_lease_that_was_held_before_is_renewed_and_released(world):
    anna, bert = world.client("anna"), world.client("bert")
    lease = anna.acquire()
    with pytest.raises(LeaseUnavailableError):
        bert.switch()
    for _ in range(4):
        world.clock.advance(TTL / 2)
        lease = anna.locks.renew(lease)
    anna.locks.release(lease)
    assert bert.acquire().owner == bert.owner


def test_the_first_who_comes_after_the_last_holder_opens_the_new_service(world):
    anna, bert = world.client("anna"), world.client("bert")
    lease = anna.acquire("gpu")
    with pytest.raises(LeaseUnavailableError):
        bert.switch()
    anna.locks.release(lease)
    world.client("carl").acquire("disk")
    assert world.in_force == (1, True)


def test_a_switch_waits_for_who_gives_back_in_time(world):
    anna, bert = world.client("anna"), world.client("bert")
    lease = anna.acquire()
    world.clock.after(5, lambda: anna.locks.release(lease))
    assert bert.switch(wait=20).how == "drained"


def test_a_holder_that_died_delays_a_switch_for_its_ttl(world):
    anna, bert = world.client("anna"), world.client("bert")
    anna.acquire()
    assert bert.switch(wait=TTL * 2).how == "drained"


def test_who_waits_in_the_old_service_gets_its_lease_from_the_new_one(world):
    anna, bert, carl = (world.client(name) for name in ("anna", "bert", "carl"))
    bert.locks.release(bert.acquire("other"))
    lease = anna.acquire()

    def switch() -> None:
        with pytest.raises(LeaseUnavailableError):
            carl.switch()

    world.clock.after(2, switch)
    world.clock.after(5, lambda: anna.locks.release(lease))
    assert bert.acquire(wait=20).generation >> GENERATION_BITS == 1


def test_generations_rise_over_a_switch(world):
    anna = world.client("anna")
    generations = []
    for service in ("store", "o_excl", "store"):
        for _ in range(3):
            lease = anna.acquire()
            generations.append(lease.generation)
            anna.locks.release(lease)
        anna.switch(service)
    assert generations == sorted(set(generations))


def test_before_any_switch_generations_are_those_of_the_service(world):
    assert world.client("anna").acquire().generation == 1


def test_going_back_to_a_former_service_meets_none_of_its_leases(world):
    anna, bert = world.client("anna"), world.client("bert")
    old = anna.acquire("gpu")
    anna.switch("store", wait=0, force=True)
    anna.switch("o_excl")
    bert.acquire("gpu")
    anna.locks.release(old)
    with pytest.raises(LeaseLostError):
        anna.locks.renew(old)
    with pytest.raises(LeaseUnavailableError):
        anna.acquire("gpu")


def test_who_holds_what_is_seen_in_both_services(world):
    anna, bert = world.client("anna"), world.client("bert")
    anna.acquire("gpu")
    with pytest.raises(LeaseUnavailableError):
        bert.switch()
    bert.acquire("disk")
    assert list(anna.locks.names()) == ["disk", "gpu"]
    holders = [anna.locks.inspect(name) for name in ("gpu", "disk")]
    assert [(h.owner.agent, h.generation >> GENERATION_BITS) for h in holders] == [
        ("anna", 0), ("bert", 1),
    ]  # fmt: skip


def test_the_command_that_a_refusal_names_ends_that_very_grant(world):
    anna, bert = world.client("anna"), world.client("bert")
    anna.switch()
    lease = anna.acquire()
    with pytest.raises(LeaseUnavailableError) as caught:
        bert.acquire()
    assert f"tapstore locks release gpu --generation {lease.generation}`" in str(caught.value)
    bert.locks.force_release("gpu", lease.generation)
    assert bert.acquire().owner == bert.owner


def test_a_generation_of_a_service_that_never_was_is_refused(world):
    with pytest.raises(NotFoundError, match="number 7"):
        world.client("anna").locks.force_release("gpu", 7 << GENERATION_BITS)


# Ending by force, and what is gone


def test_force_ends_what_is_held_after_the_wait(world):
    anna, bert = world.client("anna"), world.client("bert")
    lease = anna.acquire()
    assert bert.switch(force=True).how == "forced"
    with pytest.raises(LeaseLostError, match="force"):
        anna.locks.renew(lease)
    bert.acquire()


@pytest.fixture
def server():
    with elsewhere.installed() as server:
        yield server


@pytest.fixture
def on_server(world, server):
    """The session uses the service `elsewhere://a`."""
    world.client("setup").switch("elsewhere://a")
    assert server.urls
    return world


def test_an_old_service_that_does_not_answer_is_named_with_the_way_out(on_server, server):
    on_server.client("anna").acquire()
    bert = on_server.client("bert")
    server.away.add("a")
    way_out = r"elsewhere://a is gone for good: `tapstore locks switch store --old-is-gone`"
    with pytest.raises(StoreError, match=way_out):
        bert.switch()
    with pytest.raises(StoreError, match=way_out):
        bert.acquire()


def test_an_old_service_that_is_gone_is_waited_for_and_not_asked(on_server, server):
    bert = on_server.client("bert")
    server.away.add("a")
    before = bert.session.clock.monotonic()
    assert bert.switch(old_is_gone=True, wait=45).how == "unasked"
    assert bert.session.clock.monotonic() == before + 45
    bert.acquire()


def test_who_believes_in_a_service_that_is_gone_goes_to_the_new_one(on_server, server):
    anna = on_server.client("anna")
    anna.locks.release(anna.acquire())
    server.away.add("a")
    on_server.client("bert").switch(old_is_gone=True)
    assert anna.acquire().generation >> GENERATION_BITS == 2


def test_a_new_service_that_does_not_answer_changes_nothing(on_server, server):
    server.away.add("b")
    with pytest.raises(StoreError):
        on_server.client("bert").switch("elsewhere://b")
    assert on_server.in_force == (1, True)
    on_server.client("anna").acquire()


def test_an_unfinished_switch_is_finished_before_the_next(on_server):
    bert = on_server.client("bert")
    on_server.client("anna").acquire()
    with pytest.raises(LeaseUnavailableError):
        bert.switch("elsewhere://b")
    with pytest.raises(ConflictError, match="`tapstore locks switch elsewhere://b`"):
        bert.switch("store")


def test_who_is_refused_in_the_old_service_looks_for_a_newer_one(world):
    anna, bert = world.client("anna"), world.client("bert")
    bert.locks.release(bert.acquire())
    anna.acquire()
    world.client("carl").switch(old_is_gone=True)
    assert bert.acquire().generation >> GENERATION_BITS == 1


# Two who switch


@pytest.mark.usefixtures("server")
def test_the_second_of_two_switches_to_different_services_is_told_of_the_first(world):
    raced: list[Client] = []

    def first(_: str) -> None:
        if not raced:
            raced.append(world.client("bert"))
            raced[0].switch("store")

    anna = world.client("anna", Fault("put", ".tap/*/locks/000001", before=first))
    with pytest.raises(ConflictError, match="switched to store by bert"):
        anna.switch("elsewhere://b")
    assert world.in_force == (1, True)


def test_two_switches_to_the_same_service_are_one(world):
    def first(_: str) -> None:
        world.client("bert").switch("store")

    anna = world.client("anna", Fault("put", ".tap/*/locks/000001", before=first))
    anna.switch("store")
    assert world.in_force == (1, True)


def test_a_service_that_the_place_cannot_have_is_refused_before_anything_changes(tmp_path):
    with tapstore.create(str(tmp_path / "s")) as session:
        with pytest.raises(tapstore.UnsupportedOperationError, match="compare-and-set"):
            session.switch_locks("store")
        assert (session.locks.name, session.locks.look()) == ("o_excl", 0)


def test_a_session_in_a_folder_goes_from_one_place_of_leases_to_another(tmp_path, server):
    with tapstore.create(str(tmp_path / "s")) as session, tapstore.open(session.url) as other:
        with other.lock("gpu", ttl=30):
            pass
        for service in ("elsewhere://a", "o_excl"):
            session.switch_locks(service)
            with other.lock("gpu", ttl=30), pytest.raises(LeaseUnavailableError):
                session.lock("gpu", ttl=30)
        assert server.urls
        assert list((tmp_path / "s" / ".tap").glob("*/leases/000002/gpu/grant-*"))
        assert ".tap/*/leases/" in (tmp_path / "s" / ".gitignore").read_text().split()


def test_where_commits_rest_on_the_lock_service_it_cannot_be_changed(world):
    session = world.client("anna").session
    session.config = replace(session.config, exclusion="locks")
    with pytest.raises(NotAllowedError, match="commits rest on its lock service"):
        session.switch_locks("store")


# What paused contenders and switchers that died leave behind


def test_a_contender_that_was_paused_between_grant_and_look_steps_back(world):
    """The grant in the old service is there; then others switch, and wait for it in vain."""
    took: list[object] = []

    def meanwhile(_: str) -> None:
        bert = world.client("bert")
        assert bert.switch(wait=TTL * 2).how == "drained"
        took.append(bert.acquire(ttl=TTL * 10))

    anna = world.client("anna", Fault("get", ".tap/*/locks/000001", nth=2, before=meanwhile))
    with pytest.raises(LeaseUnavailableError, match="bert"):
        anna.acquire()
    assert took


def test_a_contender_that_was_paused_after_its_look_has_lost_its_lease(world):
    anna, bert = world.client("anna"), world.client("bert")
    lease = anna.acquire()
    bert.switch(wait=TTL * 2)
    bert.acquire()
    assert anna.session.clock.monotonic() >= lease.expires
    with pytest.raises(LeaseLostError):
        anna.locks.renew(lease)


def test_a_look_that_takes_longer_than_the_ttl_grants_nothing(world):
    slow = Fault("get", ".tap/*/locks/000001", nth=2, before=lambda _: world.clock.advance(TTL + 1))
    anna = world.client("anna", slow)
    lease = anna.acquire(wait=None)
    assert (lease.generation, lease.expires > anna.session.clock.monotonic()) == (2, True)


def test_a_holder_that_renewed_just_before_it_was_ended_is_not_overlooked(world):
    """Its lease is over, but it may rely on it for a ttl more; who ended it has died."""
    anna = world.client("anna")
    lease = [anna.acquire()]
    carl = world.client(
        "carl",
        Fault(
            "put",
            ".tap/locks/gpu/released-*",
            before=lambda _: lease.append(anna.locks.renew(lease[0])),
            after=crash,
        ),
    )
    with pytest.raises(SimulatedCrash):
        carl.acquire(wait=TTL * 2)
    bert = world.client("bert")
    with pytest.raises(LeaseUnavailableError, match="anna"):
        bert.switch()
    with pytest.raises(LeaseUnavailableError, match="anna"):
        bert.acquire()
    bert.acquire(wait=TTL * 2)
    assert anna.session.clock.monotonic() >= lease[-1].expires


def steps_of_a_switch() -> list[tuple[str, int]]:
    """Each request of a switch at which it can die: before it, or right after it."""
    seen: list[str] = []
    world = World()
    world.client("anna", Fault("*", times=10**6, before=seen.append)).switch()
    assert len(seen) > 10
    return [(moment, nth) for nth in range(2, len(seen) + 1) for moment in ("before", "after")]


@pytest.mark.parametrize(("moment", "nth"), steps_of_a_switch())
def test_a_switcher_that_dies_at_any_step_stops_nobody_and_lets_nobody_in_twice(moment, nth):
    world = World()
    anna = world.client("anna")
    lease = anna.acquire()
    dying = world.client("dying", Fault("*", nth=nth, **{moment: crash}))
    try:
        dying.switch()
    except (SimulatedCrash, LeaseUnavailableError):
        pass
    bert = world.client("bert")
    with pytest.raises(LeaseUnavailableError, match="anna"):
        bert.acquire()
    bert.locks.release(bert.acquire("disk"))
    anna.locks.release(anna.locks.renew(lease))
    bert.locks.release(bert.acquire(wait=TTL * 2))
    assert bert.switch(wait=TTL * 2).locks == "store"
    assert world.in_force == (1, True)


@pytest.mark.parametrize("name", ["000001", "000001-open"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_lost_reply_leaves_a_switch_that_can_be_repeated(world, name, moment):
    anna = world.client("anna", Fault("put", f".tap/*/locks/{name}", **{moment: lost}))
    with pytest.raises(tapstore.OutcomeUnknownError):
        anna.switch()
    anna.switch()
    assert world.in_force == (1, True)


def test_a_listing_that_lacks_our_own_lease_opens_nothing(world):
    """As a stale one on NFS does."""

    class Forgetful(FaultyStore):
        def children(self, prefix=""):
            return iter(()) if prefix == ".tap/locks/" else super().children(prefix)

    world.client("anna").acquire()
    session = tapstore.open(Forgetful(world.store), clock=world.clock.other_host())
    with pytest.raises(StoreError, match="does not show the leases"):
        session.switch_locks("store", wait=5)
    assert world.in_force == (1, False)


def test_what_somebody_else_wrote_in_place_of_a_record_is_refused(world):
    world.store.put(f"{tapstore.open(world.store).config.prefix}/locks/000001", b"?")
    with pytest.raises(FormatError, match="locks/000001 is damaged"):
        world.client("anna").acquire()


# What it costs


def test_while_somebody_holds_on_for_long_an_acquire_stays_cheap(world):
    seen: list[str] = []
    anna, bert = (
        world.client("anna"),
        world.client("bert", Fault("*", times=10**6, before=seen.append)),
    )
    anna.acquire("gpu", ttl=3600)
    with pytest.raises(LeaseUnavailableError):
        bert.switch()
    bert.locks.release(bert.acquire("disk"))
    seen.clear()
    bert.locks.release(bert.acquire("disk"))
    assert [key for key in seen if key.startswith(".tap/locks/")] == []


def test_a_wait_that_makes_no_sense_is_refused(world):
    for wait in (-1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="wait must be"):
            world.client("anna").acquire(wait=wait)


def test_a_warm_acquire_costs_one_read_more(world):
    seen: list[str] = []
    anna = world.client("anna", Fault("*", times=10**6, before=seen.append))
    for switched in ("o_excl", "store"):
        anna.switch(switched)
        anna.locks.release(anna.acquire())
        seen.clear()
        anna.locks.release(anna.acquire())
        assert len([key for key in seen if "/locks/0" in key]) == 1
