"""Leases on stores: what goes beyond the conformance suite, interleaving by interleaving."""

from __future__ import annotations

import errno
import json
import random
from collections import Counter

import pytest

from tapstore import registry
from tapstore.clock import format_time_ms
from tapstore.errors import (
    AlreadyExistsError,
    FormatError,
    InvalidKeyError,
    LeaseLostError,
    LeaseUnavailableError,
    OutcomeUnknownError,
    StoreError,
)
from tapstore.locks import lease as lease_module
from tapstore.locks import records
from tapstore.locks.lease import LeaseService
from tapstore.stores.memory import MemoryStore
from tapstore.stores.wrapper import WrapperStore
from tapstore.testing.clock import ManualClock
from tapstore.testing.faults import Fault, FaultyStore, SimulatedCrash, crash, lost, refuse
from tapstore.types import CREATE, OVERWRITE, Owner

TTL = 30.0
ANNA = Owner(agent="anna", instance="a1", host="h1", pid=11)
BERT = Owner(agent="bert", instance="b1", host="h2", pid=22)
CLIO = Owner(agent="clio", instance="c1", host="h3", pid=33)
FOLDER = "locks/gpu-0/"


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def store(clock):
    return MemoryStore(clock=clock)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(records, "BLOCK", 4)
    monkeypatch.setattr(records, "KEEP", 2)
    monkeypatch.setattr(lease_module, "_COLLECT_EVERY", 2)


def service(store, clock):
    return LeaseService(store, "locks", clock=clock, rng=random.Random(1))


def acquire(service, owner=ANNA, *, ttl=TTL, wait=0):
    return service.acquire("gpu-0", owner, ttl=ttl, wait=wait)


def cycle(service, times, owner=CLIO):
    for _ in range(times):
        service.release(acquire(service, owner))


def files(store, kind=""):
    return [info.key.removeprefix(FOLDER) for info in store.list(FOLDER + kind)]


class Counting(WrapperStore):
    def __init__(self, inner):
        super().__init__(inner)
        self.calls = Counter()

    def get(self, key, *, start=0, end=None):
        self.calls["get"] += 1
        return self.inner.get(key, start=start, end=end)

    def put(self, key, data, mode=CREATE):
        self.calls[mode.value] += 1
        return self.inner.put(key, data, mode)

    def list(self, prefix="", *, start_after=""):
        self.calls["list"] += 1
        return self.inner.list(prefix, start_after=start_after)


# What it costs


def test_to_acquire_again_costs_one_create_and_two_looks(store, clock):
    counting = Counting(store)
    one = service(counting, clock)
    cycle(one, 1)
    counting.calls.clear()
    acquire(one)
    assert counting.calls == {"create": 1, "get": 2}


def test_to_release_costs_one_create(store, clock):
    counting = Counting(store)
    one = service(counting, clock)
    lease = acquire(one)
    counting.calls.clear()
    one.release(lease)
    assert counting.calls == {"create": 1}


@pytest.mark.usefixtures("small_blocks")
def test_old_numbers_do_not_pile_up(store, clock):
    cycle(service(store, clock), 200)
    assert len(files(store, "grant-")) <= 8
    assert len(files(store)) <= 200 // 4 + 16


@pytest.mark.usefixtures("small_blocks")
def test_a_folder_where_nothing_can_be_removed_stays_usable(store, clock):
    faulty = FaultyStore(store, Fault("delete", times=10_000, before=refuse(errno.EACCES)))
    one = service(faulty, clock)
    cycle(one, 20)
    assert acquire(one).generation == 21
    with pytest.raises(StoreError):
        one.collect("gpu-0")


def test_collecting_says_how_many_numbers_it_removed(store, clock, monkeypatch):
    monkeypatch.setattr(lease_module, "_COLLECT_EVERY", 10_000)
    cycle(service(store, clock), 170)
    assert service(store, clock).collect("gpu-0") == 99
    assert service(store, clock).collect("gpu-0") == 0


# Renewed at the last moment


def renew_just_before_the_end(store, clock):
    """Bert sees anna stale; before he can say so she renews, and both succeed."""
    anna = service(store, clock)
    held = [acquire(anna)]

    def renew(_):
        held.append(anna.renew(held[-1]))

    faulty = FaultyStore(store, Fault("put", "*/released-*", before=renew))
    return anna, held, service(faulty, clock.other_host())


def test_who_renewed_at_the_last_moment_is_waited_for(store, clock):
    _, held, bert = renew_just_before_the_end(store, clock)
    acquire(bert, BERT, wait=TTL * 4)
    assert len(held) == 2
    assert clock.monotonic() >= held[-1].expires


def test_who_renewed_at_the_last_moment_is_waited_for_by_all(store, clock):
    _, held, bert = renew_just_before_the_end(store, clock)
    with pytest.raises(LeaseUnavailableError):
        acquire(bert, BERT, wait=TTL + 1)
    assert len(held) == 2
    with pytest.raises(LeaseUnavailableError, match="may rely"):
        acquire(service(store, clock), CLIO)


def test_who_renewed_at_the_last_moment_learns_it_at_the_next(store, clock):
    anna, held, bert = renew_just_before_the_end(store, clock)
    with pytest.raises(LeaseUnavailableError):
        acquire(bert, BERT, wait=TTL + 1)
    with pytest.raises(LeaseLostError, match="bert"):
        anna.renew(held[-1])


def test_one_look_is_enough_long_after_a_renewal_at_the_last_moment(store, clock):
    _, held, bert = renew_just_before_the_end(store, clock)
    with pytest.raises(LeaseUnavailableError):
        acquire(bert, BERT, wait=TTL + 1)
    clock.advance(TTL * 2)
    assert acquire(service(store, clock), CLIO).generation > held[-1].generation


# Ghosts


@pytest.mark.usefixtures("small_blocks")
def test_a_contender_that_slept_until_its_number_was_collected_gets_nothing(store, clock):
    others = service(store, clock)
    cycle(others, 1)
    held = []

    def sleep_long(_):
        cycle(others, 20)
        held.append(acquire(others))

    sleeper = service(FaultyStore(store, Fault("put", "*/grant-*", before=sleep_long)), clock)
    with pytest.raises(LeaseUnavailableError, match="anna"):
        acquire(sleeper, BERT)
    assert "grant-000000000002" not in files(store)
    assert others.renew(held[0]).generation == 22


@pytest.mark.usefixtures("small_blocks")
def test_a_contender_that_slept_gets_its_turn_with_a_higher_number(store, clock):
    others = service(store, clock)
    cycle(others, 1)
    fault = Fault("put", "*/grant-*", before=lambda _: cycle(others, 20))
    assert acquire(service(FaultyStore(store, fault), clock), BERT).generation == 22


class Blind(WrapperStore):
    """Listings that show nothing, as they came on an NFS mount while others were writing."""

    def list(self, prefix="", *, start_after=""):
        del prefix, start_after
        return iter(())


@pytest.mark.usefixtures("small_blocks")
def test_a_listing_that_shows_nothing_lets_nobody_in(store, clock):
    others = service(store, clock)
    cycle(others, 20)
    acquire(others)
    with pytest.raises(LeaseUnavailableError, match="anna"):
        acquire(service(Blind(store), clock), BERT)


@pytest.mark.usefixtures("small_blocks")
def test_a_listing_that_shows_nothing_keeps_nobody_out(store, clock):
    cycle(service(store, clock), 20)
    assert acquire(service(Blind(store), clock), BERT).generation == 21


@pytest.mark.usefixtures("small_blocks")
def test_a_waiting_contender_whose_number_was_collected_goes_on(store, clock):
    others = service(store, clock)
    held = acquire(others)

    def move_on():
        others.release(held)
        cycle(others, 20)

    clock.after(5, move_on)
    assert acquire(service(store, clock), BERT, wait=20).generation == 22


@pytest.mark.usefixtures("small_blocks")
def test_a_renewal_that_slept_until_its_number_was_collected_says_lost(store, clock):
    holder = service(store, clock)
    lease = acquire(holder)
    others = service(store, clock)

    def sleep_long(_):
        others.force_release("gpu-0", lease.generation)
        cycle(others, 20)

    faulty = FaultyStore(store, Fault("put", "*/beat-*", before=sleep_long))
    with pytest.raises(LeaseLostError):
        service(faulty, clock).renew(lease)


@pytest.mark.usefixtures("small_blocks")
def test_a_zombie_is_lost_at_every_moment_of_the_collection(store, clock):
    holder = service(store, clock)
    lease = acquire(holder)
    holder.force_release("gpu-0", lease.generation)
    removed = []

    def renew(key):
        removed.append(key)
        with pytest.raises(LeaseLostError):
            holder.renew(lease)

    cycle(service(FaultyStore(store, Fault("delete", times=10**9, after=renew)), clock), 20)
    assert len(removed) > 2


def test_a_zombie_leaves_nothing_in_a_folder_that_is_gone(store, clock):
    holder = service(store, clock)
    lease = acquire(holder)
    for info in list(store.list(FOLDER)):
        store.delete(info.key)
    with pytest.raises(LeaseLostError, match="gone"):
        holder.renew(lease)
    assert files(store) == []


def make_again(store):
    for info in list(store.list(FOLDER)):
        store.delete(info.key)


def test_what_one_knew_of_a_removed_folder_lets_nobody_into_the_new_one(store, clock):
    ghost = service(store, clock)
    cycle(ghost, 5)
    make_again(store)
    held = acquire(service(store, clock), BERT)
    with pytest.raises(LeaseUnavailableError, match="bert"):
        acquire(ghost)
    assert service(store, clock).renew(held).generation == 1


def test_a_ghost_of_a_removed_folder_cannot_end_a_grant_of_the_new_one(store, clock):
    ghost = service(store, clock)
    old = acquire(ghost)
    make_again(store)
    new = acquire(service(store, clock), BERT)
    ghost.release(old)
    assert service(store, clock).renew(new).generation == old.generation


# One look


def test_one_look_takes_nobody_over_whose_own_clock_says_that_it_is_alive(store, clock):
    acquire(service(store, clock.other_host(ahead=3600)))
    clock.advance(TTL * 4)
    with pytest.raises(LeaseUnavailableError):
        acquire(service(store, clock), BERT)


def test_one_look_takes_nobody_over_whom_the_store_heard_of_just_now(clock):
    wall = ManualClock()
    store = MemoryStore(clock=wall)  # the clock of the store stands still
    acquire(service(store, clock))
    clock.advance(TTL * 4)
    with pytest.raises(LeaseUnavailableError):
        acquire(service(store, clock), BERT)


def test_who_looks_once_now_and_then_needs_no_wall_clock(clock):
    store = MemoryStore(clock=ManualClock())
    acquire(service(store, clock))
    bert = service(store, clock.other_host())
    with pytest.raises(LeaseUnavailableError):
        acquire(bert, BERT)
    clock.advance(TTL)
    assert acquire(bert, BERT).generation == 2


def test_the_time_that_a_look_takes_is_not_held_against_the_holder(clock):
    store = MemoryStore(clock=ManualClock())
    acquire(service(store, clock))
    slow = Fault("get", "*/beat-*", nth=2, before=lambda _: clock.advance(15))
    bert = service(FaultyStore(store, slow), clock)
    with pytest.raises(LeaseUnavailableError):
        acquire(bert, BERT)
    clock.advance(TTL - 10)
    with pytest.raises(LeaseUnavailableError):
        acquire(bert, BERT)


def test_a_wait_that_ends_before_the_ttl_looks_at_ages_too(store, clock):
    acquire(service(store, clock))
    clock.advance(TTL * 2)
    before = clock.monotonic()
    acquire(service(store, clock), BERT, wait=TTL / 3)
    assert clock.monotonic() == before


def test_a_wait_for_ever_looks_at_no_wall_clock(store, clock):
    acquire(service(store, clock))
    clock.advance(TTL * 2)
    before = clock.monotonic()
    acquire(service(store, clock), BERT, wait=None)
    assert clock.monotonic() >= before + TTL


# Lost replies


def test_a_grant_whose_reply_was_lost_is_ours(store, clock):
    faulty = FaultyStore(store, Fault("put", "*/grant-*", after=lost))
    assert acquire(service(faulty, clock)).generation == 1


def test_a_grant_that_a_client_repeated_against_itself_is_ours(store, clock):
    def repeat(key):
        raise AlreadyExistsError(key)

    faulty = FaultyStore(store, Fault("put", "*/grant-*", after=repeat))
    assert acquire(service(faulty, clock)).generation == 1


def test_a_grant_of_which_nothing_is_known_is_nobodys(store, clock):
    faulty = FaultyStore(store, Fault("put", "*/grant-*", times=3, after=lost))
    # Neither can it be read: else it would be found to be ours.
    hidden = FaultyStore(
        faulty, Fault("get", "*/grant-*", nth=2, times=9, before=refuse(errno.EIO))
    )
    with pytest.raises(StoreError):
        acquire(service(hidden, clock))
    assert acquire(service(store, clock), BERT).generation == 2


def test_a_request_that_may_still_be_on_its_way_is_unknown_and_ended_beforehand(store, clock):
    faulty = FaultyStore(store, Fault("put", "*/grant-*", times=3, before=lost))
    with pytest.raises(OutcomeUnknownError):
        acquire(service(faulty, clock))
    (end,) = files(store, "released-")
    assert end.startswith("released-000000000001-")


def test_a_renewal_whose_reply_was_lost_is_repeated(store, clock):
    faulty = FaultyStore(store, Fault("put", "*/beat-*", after=lost))
    one = service(faulty, clock)
    assert one.renew(acquire(one)).expires == clock.monotonic() + TTL


def test_a_release_whose_reply_was_lost_is_a_release(store, clock):
    one = service(FaultyStore(store, Fault("put", "*/released-*", after=lost)), clock)
    one.release(acquire(one))
    assert acquire(service(store, clock), BERT).generation == 2


def test_a_failure_after_the_grant_gives_it_back(store, clock):
    faulty = FaultyStore(store, Fault("get", "*/floor-*", nth=2, before=refuse(errno.EIO)))
    with pytest.raises(StoreError):
        acquire(service(faulty, clock))
    assert acquire(service(store, clock), BERT).generation == 2


def test_a_lease_counts_from_before_a_slow_grant(store, clock):
    slow = Fault("put", "*/grant-*", after=lambda _: clock.advance(TTL / 3))
    started = clock.monotonic()
    assert acquire(service(FaultyStore(store, slow), clock)).expires == started + TTL


def test_a_lease_that_expired_while_it_was_granted_is_not_returned(store, clock):
    slow = Fault("put", "*/grant-*", after=lambda _: clock.advance(TTL + 1))
    lease = acquire(service(FaultyStore(store, slow), clock))
    assert lease.generation == 2
    assert lease.expires > clock.monotonic()


# Crashes

STEPS = 40


def one_life(store, clock):
    """Take over from somebody who died, renew, release, and collect old numbers."""
    others = service(store.inner, clock)
    cycle(others, 7)
    acquire(others)
    clock.advance(TTL * 2)
    one = service(store, clock)
    for _ in range(2):
        one.release(one.renew(acquire(one, BERT)))


@pytest.mark.parametrize("step", range(1, STEPS))
@pytest.mark.usefixtures("small_blocks")
def test_after_a_crash_before_any_request_the_next_contender_goes_on(store, clock, step):
    dying = FaultyStore(store, Fault("*", nth=step, times=10**9, before=crash))
    try:
        one_life(dying, clock)
    except SimulatedCrash:
        pass
    known = max(int(name.split("-")[1]) for name in files(store, "grant-"))
    lease = acquire(service(store, clock), CLIO, wait=TTL * 3)
    assert lease.generation == known + 1


@pytest.mark.usefixtures("small_blocks")
def test_the_crashes_come_at_every_request_of_a_life(store, clock):
    seen = []
    one_life(FaultyStore(store, Fault("*", times=10**9, before=seen.append)), clock)
    assert len(seen) < STEPS
    kinds = {key.removeprefix(FOLDER).partition("-")[0] for key in seen}
    assert kinds >= {"grant", "beat", "released", "floor"}


# What others put there

NOT_A_GRANT = {
    "empty": b"",
    "null": b"null",
    "list": b"[]",
    "object": b"{}",
    "binary": b"\xff\x00\xfe",
    "text": b"locked by me",
}


def grant_with(**changes):
    grant = {
        "format": 1, "name": "gpu-0", "generation": 1, "token": "ab" * 16, "ttl_seconds": 30,
        "owner": {"agent": "x", "instance": "y"}, "at": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    return json.dumps({**grant, **changes}).encode()


NOT_A_GRANT |= {
    "truncated": grant_with()[:-9],
    "another number": grant_with(generation=2),
    "no ttl": grant_with(ttl_seconds=0),
    "endless": grant_with(ttl_seconds=1e300),
    "no token": grant_with(token=""),
    "a path for a token": grant_with(token="../../../etc"),  # noqa: S106
    "no time": grant_with(at="yesterday"),
    "no owner": grant_with(owner=None),
}


@pytest.mark.parametrize("case", NOT_A_GRANT)
def test_what_is_no_grant_is_named_and_not_granted(store, clock, case):
    store.put(f"{FOLDER}grant-000000000001", NOT_A_GRANT[case])
    with pytest.raises(FormatError, match=r"grant-000000000001.*--generation 1"):
        acquire(service(store, clock), wait=TTL * 9)


@pytest.mark.parametrize("case", NOT_A_GRANT)
def test_what_is_no_grant_can_be_ended_by_force(store, clock, case):
    store.put(f"{FOLDER}grant-000000000001", NOT_A_GRANT[case])
    service(store, clock).force_release("gpu-0", 1)
    assert acquire(service(store, clock)).generation == 2


def test_a_grant_like_those_would_be_one(store, clock):
    store.put(f"{FOLDER}grant-000000000001", grant_with())
    assert service(store, clock).inspect("gpu-0").owner.agent == "x"


def test_a_grant_of_a_newer_version_is_left_alone(store, clock):
    store.put(f"{FOLDER}grant-000000000001", grant_with(format=2, surprise=True))
    one = service(store, clock)
    for call in (lambda: acquire(one), lambda: one.force_release("gpu-0", 1)):
        with pytest.raises(FormatError, match="upgrade"):
            call()
    assert files(store) == ["grant-000000000001"]


def test_a_number_that_nobody_reaches_is_named(store, clock):
    store.put(f"{FOLDER}grant-999999999999", grant_with(generation=999999999999))
    with pytest.raises(FormatError, match="by hand"):
        acquire(service(store, clock))


def test_other_files_in_the_folder_do_not_matter(store, clock):
    for name in ("README", "grant-1", "grant-x", "beat-000000000001", "released-000000000001-zz"):
        store.put(FOLDER + name, b"")
    assert acquire(service(store, clock)).generation == 1


def test_an_end_that_says_nothing_is_an_end_after_a_ttl(store, clock):
    lease = acquire(service(store, clock))
    store.put(f"{FOLDER}released-000000000001-{lease.token[:8]}", b"")
    before = clock.monotonic()
    assert acquire(service(store, clock), BERT, wait=TTL * 2).generation == 2
    assert clock.monotonic() >= before + TTL


def test_a_beat_that_says_nothing_keeps_nothing_alive(store, clock):
    lease = acquire(service(store, clock))
    store.put(f"{FOLDER}beat-000000000001-{lease.token[:8]}", b"", OVERWRITE)
    assert acquire(service(store, clock), BERT, wait=TTL * 2).generation == 2


def test_a_floor_that_somebody_else_made_costs_numbers_and_no_more(store, clock):
    lease = acquire(one := service(store, clock))
    store.put(f"{FOLDER}floor-000000000100", b"")
    assert one.renew(lease).generation == 1
    with pytest.raises(LeaseUnavailableError):
        acquire(service(store, clock), BERT)
    one.release(lease)
    assert acquire(service(store, clock), BERT).generation == 100


# Words and ways in


def test_a_record_says_who_and_why_to_who_looks_into_the_folder(store, clock):
    service(store, clock).acquire("gpu-0", ANNA, ttl=TTL, reason="training")
    record = json.loads(store.get(f"{FOLDER}grant-000000000001").data)
    assert record.pop("token")
    assert record == {
        "format": 1, "name": "gpu-0", "generation": 1, "ttl_seconds": 30.0, "reason": "training",
        "owner": {"agent": "anna", "instance": "a1", "host": "h1", "pid": 11},
        "at": format_time_ms(clock.time()),
    }  # fmt: skip


def test_a_lease_never_lies_where_a_lock_file_could(store, clock):
    service(store, clock).acquire("tapfile.lock", ANNA, ttl=TTL)
    assert list(store.children("locks/")) == ["tapfile%2Elock/"]


def test_o_excl_opens_it(store, clock):
    opened = registry.open_locks("o_excl", store, "locks", scope="s1", clock=clock)
    assert isinstance(opened, LeaseService)


def test_o_excl_takes_no_address(store, clock):
    with pytest.raises(InvalidKeyError, match="neither host nor path"):
        registry.open_locks("o_excl://somewhere", store, "locks", scope="s1", clock=clock)
