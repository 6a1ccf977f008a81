"""Lease objects: what goes beyond the conformance suite, interleaving by interleaving."""

from __future__ import annotations

import errno
import json
import random
from collections import Counter
from contextlib import suppress

import pytest

import tapstore
from tapstore import registry
from tapstore.clock import format_time_ms
from tapstore.errors import (
    AlreadyExistsError,
    ConflictError,
    FormatError,
    InvalidKeyError,
    LeaseLostError,
    LeaseUnavailableError,
    OutcomeUnknownError,
    UnsupportedOperationError,
)
from tapstore.locks.leaseobject import LeaseObjectService
from tapstore.stores.local import LocalStore
from tapstore.stores.memory import MemoryStore
from tapstore.stores.readback import ReadBackStore
from tapstore.stores.wrapper import WrapperStore
from tapstore.testing.clock import ManualClock
from tapstore.testing.faults import Fault, FaultyStore, SimulatedCrash, crash, lost, refuse
from tapstore.types import CREATE, OVERWRITE, Owner, Update

TTL = 30.0
ANNA = Owner(agent="anna", instance="a1", host="h1", pid=11)
BERT = Owner(agent="bert", instance="b1", host="h2", pid=22)
CLIO = Owner(agent="clio", instance="c1", host="h3", pid=33)
KEY = "locks/gpu-0/lease"


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def store(clock):
    return MemoryStore(clock=clock)


def service(store, clock):
    return LeaseObjectService(store, "locks", clock=clock, rng=random.Random(1))


def acquire(service, owner=ANNA, *, ttl=TTL, wait=0):
    return service.acquire("gpu-0", owner, ttl=ttl, wait=wait)


def stored(store):
    return json.loads(store.get(KEY).data)


class Counting(WrapperStore):
    def __init__(self, inner):
        super().__init__(inner)
        self.calls = Counter()

    def get(self, key, *, start=0, end=None):
        self.calls["get"] += 1
        return self.inner.get(key, start=start, end=end)

    def put(self, key, data, mode=CREATE):
        self.calls["update" if isinstance(mode, Update) else mode.value] += 1
        return self.inner.put(key, data, mode)

    def calls_of(self, action):
        self.calls.clear()
        action()
        return dict(self.calls)


class Late(WrapperStore):
    """A network on which the next `delay` writes arrive when `land` says so, if ever."""

    def __init__(self, inner):
        super().__init__(inner)
        self.delay = 0
        self._under_way = []

    def put(self, key, data, mode=CREATE):
        if self.delay:
            self.delay -= 1
            self._under_way.append((key, data, mode))
            raise OutcomeUnknownError(f"no reply for {key!r}")
        return self.inner.put(key, data, mode)

    def land(self):
        """Return how many of the requests had an effect."""
        landed = 0
        for request in self._under_way:
            with suppress(ConflictError):
                self.inner.put(*request)
                landed += 1
        self._under_way.clear()
        return landed


def unknown(late, action):
    """Call `action` on a network that gives no reply at all."""
    late.delay = 1000
    with pytest.raises(OutcomeUnknownError):
        action()
    late.delay = 0


# What it costs


def test_a_first_acquire_costs_one_look_and_one_create(store, clock):
    counting = Counting(store)
    one = service(counting, clock)
    assert counting.calls_of(lambda: acquire(one)) == {"get": 1, "create": 1}


def test_to_acquire_what_we_released_costs_one_update(store, clock):
    counting = Counting(store)
    one = service(counting, clock)
    one.release(acquire(one))
    assert counting.calls_of(lambda: acquire(one)) == {"update": 1}


def test_to_renew_and_to_release_cost_one_update_each(store, clock):
    counting = Counting(store)
    one = service(counting, clock)
    lease = acquire(one)
    for _ in range(2):
        assert counting.calls_of(lambda: one.renew(lease)) == {"update": 1}
    assert counting.calls_of(lambda: one.release(lease)) == {"update": 1}


def test_another_process_with_the_token_looks_first(store, clock):
    lease = acquire(service(store, clock))
    counting = Counting(store)
    one = service(counting, clock)
    assert counting.calls_of(lambda: one.renew(lease)) == {"get": 1, "update": 1}
    counting = Counting(store)
    one = service(counting, clock)
    assert counting.calls_of(lambda: one.release(lease)) == {"get": 1, "update": 1}


def test_who_finds_it_taken_meanwhile_looks_once(store, clock):
    counting = Counting(store)
    one = service(counting, clock)
    one.release(acquire(one))
    acquire(service(store, clock), BERT)

    def refused():
        with pytest.raises(LeaseUnavailableError, match="bert"):
            acquire(one)

    assert counting.calls_of(refused) == {"update": 1, "get": 1}


# Somebody came first


def test_who_renewed_just_before_it_was_taken_over_keeps_it(store, clock):
    anna = service(store, clock)
    held = [acquire(anna)]
    late = Fault("put", before=lambda _: held.append(anna.renew(held[-1])))
    with pytest.raises(LeaseUnavailableError, match="anna"):
        acquire(service(FaultyStore(store, late), clock), BERT, wait=TTL + 1)
    assert len(held) == 2
    assert anna.renew(held[-1]).generation == 1


def test_who_released_just_before_it_was_taken_over_is_followed(store, clock):
    anna = service(store, clock)
    lease = acquire(anna)
    early = Fault("put", before=lambda _: anna.release(lease))
    taken = acquire(service(FaultyStore(store, early), clock), BERT, wait=TTL + 1)
    assert taken.generation == 2
    assert stored(store)["follows"] == "released"


def test_of_two_who_take_over_one_gets_it(store, clock):
    acquire(service(store, clock))
    clock.advance(TTL * 2)
    clio = Fault("put", before=lambda _: acquire(service(store, clock), CLIO))
    with pytest.raises(LeaseUnavailableError, match="clio"):
        acquire(service(FaultyStore(store, clio), clock), BERT)


def test_who_does_not_wait_is_refused_after_some_lost_races(store, clock):
    others = service(store, clock)

    def come_first(_):
        others.release(acquire(others, CLIO))

    racing = FaultyStore(store, Fault("put", times=1000, before=come_first))
    with pytest.raises(LeaseUnavailableError, match="changes hands"):
        acquire(service(racing, clock), BERT)


def test_force_hits_a_holder_that_renews_meanwhile(store, clock):
    anna = service(store, clock)
    lease = acquire(anna)
    renewing = FaultyStore(store, Fault("put", before=lambda _: anna.renew(lease)))
    service(renewing, clock).force_release("gpu-0", 1)
    with pytest.raises(LeaseLostError, match="force"):
        anna.renew(lease)


def test_what_one_saw_held_is_looked_at_again(store, clock):
    anna, bert = service(store, clock), service(store, clock)
    lease = acquire(anna)
    assert bert.inspect("gpu-0") is not None
    anna.release(lease)
    assert acquire(bert, BERT).generation == 2


# One look


def test_one_look_takes_nobody_over_whose_own_clock_says_that_it_is_alive(store, clock):
    acquire(service(store, clock.other_host(ahead=3600)))
    clock.advance(TTL * 4)
    with pytest.raises(LeaseUnavailableError):
        acquire(service(store, clock), BERT)


def test_one_look_takes_nobody_over_whom_the_store_heard_of_just_now(clock):
    store = MemoryStore(clock=ManualClock())  # the clock of the store stands still
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
    slow = Fault("get", nth=2, before=lambda _: clock.advance(15))
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


def repeat(key):
    """What a client says that has repeated its request against itself."""
    raise ConflictError(key)


def repeated_create(key):
    raise AlreadyExistsError(key)


NOISES = {
    "lost request": {"before": lost},
    "lost reply": {"after": lost},
    "repeated by the client": {"after": repeat},
    "two lost requests": {"before": lost, "times": 2},
}


@pytest.fixture(params=NOISES)
def noisy(request, store):
    """A store where the n-th write, and no other, meets trouble."""
    return lambda nth: FaultyStore(store, Fault("put", nth=nth, **NOISES[request.param]))


def test_a_grant_is_ours_whatever_becomes_of_the_reply(noisy, store, clock):
    one = service(noisy(1), clock)
    lease = acquire(one)
    assert (lease.generation, stored(store)["generation"]) == (1, 1)
    assert service(store, clock).renew(lease).owner == ANNA


def test_a_take_over_is_ours_whatever_becomes_of_the_reply(noisy, store, clock):
    acquire(service(store, clock))
    clock.advance(TTL * 2)
    lease = acquire(service(noisy(1), clock), BERT)
    assert service(store, clock).renew(lease).generation == stored(store)["generation"] == 2


def test_a_renewal_counts_whatever_becomes_of_the_reply(noisy, store, clock):
    one = service(noisy(2), clock)
    lease = acquire(one)
    before = stored(store)["nonce"]
    clock.advance(TTL / 2)
    assert one.renew(lease).expires == clock.monotonic() + TTL
    assert stored(store)["nonce"] != before


def test_a_release_is_one_whatever_becomes_of_the_reply(noisy, store, clock):
    one = service(noisy(2), clock)
    one.release(acquire(one))
    assert acquire(service(store, clock), BERT).generation == 2


def test_force_is_force_whatever_becomes_of_the_reply(noisy, store, clock):
    acquire(service(store, clock))
    service(noisy(1), clock).force_release("gpu-0", 1)
    assert stored(store)["state"] == "forced"


def test_a_create_that_a_client_repeated_against_itself_is_ours(store, clock):
    faulty = FaultyStore(store, Fault("put", after=repeated_create))
    assert acquire(service(faulty, clock)).generation == 1


@pytest.mark.parametrize("nth", range(1, 5))
def test_below_a_store_that_reads_back_it_is_the_same(store, clock, nth):
    faulty = FaultyStore(store, Fault("put", nth=nth, after=lost))
    one = service(ReadBackStore(faulty, clock=clock), clock)
    for generation in (1, 2):
        lease = acquire(one)
        assert lease.generation == generation
        one.release(one.renew(lease))
    assert stored(store)["state"] == "released"


def test_a_grant_that_cannot_be_read_back_is_withdrawn(store, clock):
    faulty = FaultyStore(
        store,
        Fault("put", after=lost),
        Fault("get", nth=2, before=refuse(errno.EIO)),
    )
    with pytest.raises(OutcomeUnknownError):
        acquire(service(faulty, clock))
    assert acquire(service(store, clock), BERT).generation == 2


def test_a_refusal_after_a_doubt_is_a_doubt(store, clock):
    faulty = FaultyStore(
        store,
        Fault("put", nth=2, before=lost),
        Fault("put", nth=3, before=refuse(errno.EAGAIN)),
    )
    one = service(faulty, clock)
    lease = acquire(one)
    with pytest.raises(OutcomeUnknownError):
        one.renew(lease)


def test_a_refusal_that_cannot_be_read_back_is_a_doubt(store, clock):
    faulty = FaultyStore(
        store,
        Fault("put", nth=2, after=repeat),
        Fault("get", nth=2, before=refuse(errno.EIO)),
    )
    one = service(faulty, clock)
    lease = acquire(one)
    with pytest.raises(OutcomeUnknownError):
        one.renew(lease)


def test_an_interrupted_grant_is_withdrawn(store, clock):
    def interrupt(_):
        raise KeyboardInterrupt

    faulty = FaultyStore(store, Fault("put", after=interrupt))
    with pytest.raises(KeyboardInterrupt):
        acquire(service(faulty, clock))
    assert acquire(service(store, clock), BERT).generation == 2


def test_a_lease_counts_from_before_a_slow_grant(store, clock):
    slow = Fault("put", after=lambda _: clock.advance(TTL / 3))
    started = clock.monotonic()
    assert acquire(service(FaultyStore(store, slow), clock)).expires == started + TTL


def test_a_renewal_counts_from_before_a_slow_reply(store, clock):
    slow = Fault("put", nth=2, after=lambda _: clock.advance(TTL / 3))
    one = service(FaultyStore(store, slow), clock)
    lease = acquire(one)
    started = clock.monotonic()
    assert one.renew(lease).expires == started + TTL


def test_a_lease_that_expired_while_it_was_granted_is_not_returned(store, clock):
    slow = Fault("put", after=lambda _: clock.advance(TTL + 1))
    lease = acquire(service(FaultyStore(store, slow), clock))
    assert lease.generation == 2
    assert lease.expires > clock.monotonic()


# Late requests


def test_a_grant_that_arrives_after_it_was_withdrawn_is_refused(store, clock):
    late = Late(store)
    late.delay = 3
    with pytest.raises(OutcomeUnknownError):
        acquire(service(late, clock))
    assert late.land() == 0
    assert acquire(service(store, clock), BERT).generation == 2


def test_a_take_over_that_arrives_after_it_was_withdrawn_is_refused(store, clock):
    acquire(service(store, clock))
    clock.advance(TTL * 2)
    late = Late(store)
    late.delay = 3
    with pytest.raises(OutcomeUnknownError):
        acquire(service(late, clock), BERT)
    assert late.land() == 0
    assert service(store, clock).inspect("gpu-0") is None


def test_a_take_over_that_arrives_after_a_renewal_is_refused(store, clock):
    anna, late = service(store, clock), Late(store)
    lease = acquire(anna)
    clock.advance(TTL * 2)
    unknown(late, lambda: acquire(service(late, clock), BERT))
    lease = anna.renew(lease)
    assert late.land() == 0
    assert anna.renew(lease).generation == 1


def test_a_take_over_that_arrives_when_its_contender_has_given_up_ends_by_its_ttl(store, clock):
    anna, late = service(store, clock), Late(store)
    lease = acquire(anna)
    clock.advance(TTL * 2)
    unknown(late, lambda: acquire(service(late, clock), BERT))
    assert late.land() == 1
    with pytest.raises(LeaseLostError, match="bert"):
        anna.renew(lease)
    assert acquire(anna, wait=TTL * 2).generation == 3


def test_a_renewal_that_arrives_after_the_release_is_refused(store, clock):
    late = Late(store)
    one = service(late, clock)
    lease = acquire(one)
    unknown(late, lambda: one.renew(lease))
    one.release(lease)
    assert late.land() == 0
    assert one.inspect("gpu-0") is None


def test_a_renewal_that_arrives_just_before_the_release_does_not_stop_it(store, clock):
    late = Late(store)
    landing = FaultyStore(late, Fault("put", nth=5, before=lambda _: landed.append(late.land())))
    landed = []
    one = service(landing, clock)
    lease = acquire(one)
    unknown(late, lambda: one.renew(lease))
    one.release(lease)
    assert landed == [1]
    assert one.inspect("gpu-0") is None


def test_a_renewal_that_arrives_late_does_not_stop_the_next_one(store, clock):
    late = Late(store)
    one = service(late, clock)
    lease = acquire(one)
    unknown(late, lambda: one.renew(lease))
    assert late.land() == 1
    clock.advance(TTL / 2)
    assert one.renew(lease).expires == clock.monotonic() + TTL


def test_an_earlier_renewal_that_arrived_does_not_count_as_a_later_one(store, clock):
    """Others may have seen it for long; who relied on it from now on might not be alone."""
    late = Late(store)
    one = service(late, clock)
    lease = acquire(one)
    unknown(late, lambda: one.renew(lease))
    assert late.land() == 1
    clock.advance(TTL / 2)
    unknown(late, lambda: one.renew(lease))


def test_a_release_that_arrives_after_a_take_over_is_refused(store, clock):
    late = Late(store)
    one = service(late, clock)
    lease = acquire(one)
    unknown(late, lambda: one.release(lease))
    clock.advance(TTL * 2)
    new = acquire(service(store, clock), BERT)
    assert late.land() == 0
    assert service(store, clock).renew(new).owner == BERT


def test_a_release_that_arrives_after_a_renewal_is_refused(store, clock):
    late = Late(store)
    one = service(late, clock)
    lease = acquire(one)
    unknown(late, lambda: one.release(lease))
    lease = one.renew(lease)
    assert late.land() == 0
    assert one.renew(lease).generation == 1


# Crashes

STEPS = 12


def one_life(store, clock):
    """Take over from somebody who died, renew and release, twice."""
    acquire(service(store.inner, clock))
    clock.advance(TTL * 2)
    one = service(store, clock)
    for _ in range(2):
        one.release(one.renew(acquire(one, BERT)))


@pytest.mark.parametrize("step", range(1, STEPS))
def test_after_a_crash_before_any_request_the_next_contender_goes_on(store, clock, step):
    dying = FaultyStore(store, Fault("*", nth=step, times=10**9, before=crash))
    with suppress(SimulatedCrash):
        one_life(dying, clock)
    known = stored(store)["generation"]
    assert acquire(service(store, clock), CLIO, wait=TTL * 3).generation == known + 1


def test_the_crashes_come_at_every_request_of_a_life(store, clock):
    seen = []
    one_life(FaultyStore(store, Fault("*", times=10**9, before=seen.append)), clock)
    assert 6 < len(seen) < STEPS


# What others put there


def record_with(**changes):
    record = {
        "format": 1, "name": "gpu-0", "generation": 7, "state": "held", "token": "ab" * 16,
        "nonce": "ab" * 8, "owner": {"agent": "x", "instance": "y"}, "ttl_seconds": 30,
        "at": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    return json.dumps({**record, **changes}).encode()


NO_RECORDS = {
    "empty": b"",
    "null": b"null",
    "list": b"[]",
    "object": b"{}",
    "binary": b"\xff\x00\xfe",
    "text": b"locked by me",
    "truncated": record_with()[:-9],
    "no generation": record_with(generation=0),
    "half a generation": record_with(generation=1.5),
    "no ttl": record_with(ttl_seconds=0),
    "no token": record_with(token=""),
    "no time": record_with(at="yesterday"),
    "no beginning": record_with(since="yesterday"),
    "no state": record_with(state="lost"),
    "no owner": record_with(owner=None),
    "another lease": record_with(name="gpu-1"),
}


@pytest.mark.parametrize("case", NO_RECORDS)
def test_what_is_no_record_is_named_and_not_granted(store, clock, case):
    store.put(KEY, NO_RECORDS[case])
    with pytest.raises(FormatError, match=r"gpu-0/lease.*tapstore locks release gpu-0"):
        acquire(service(store, clock), wait=TTL * 9)


@pytest.mark.parametrize("case", NO_RECORDS)
def test_what_is_no_record_is_replaced_by_force_and_numbers_go_on(store, clock, case):
    store.put(KEY, NO_RECORDS[case])
    service(store, clock).force_release("gpu-0", 41)
    assert acquire(service(store, clock)).generation == 42


def test_a_record_like_those_would_be_one(store, clock):
    store.put(KEY, record_with())
    assert service(store, clock).inspect("gpu-0").generation == 7


def test_a_record_of_a_newer_version_is_left_alone(store, clock):
    store.put(KEY, data := record_with(format=2, surprise=True))
    one = service(store, clock)
    for call in (lambda: acquire(one), lambda: one.force_release("gpu-0", 7)):
        with pytest.raises(FormatError, match="upgrade"):
            call()
    assert store.get(KEY).data == data


def test_a_holder_whose_record_was_overwritten_is_told_so(store, clock):
    one = service(store, clock)
    lease = acquire(one)
    store.put(KEY, b"mine!", OVERWRITE)
    for call in (one.renew, one.release):
        with pytest.raises(FormatError, match="locks release"):
            call(lease)
    assert store.get(KEY).data == b"mine!"


def test_a_holder_whose_record_is_gone_is_told_so(store, clock):
    one = service(store, clock)
    lease = acquire(one)
    store.delete(KEY)
    with pytest.raises(LeaseLostError, match="gone"):
        one.renew(lease)
    one.release(lease)
    assert list(store.list()) == []


def test_what_one_knew_of_a_removed_object_ends_no_grant_of_the_new_one(store, clock):
    ghost = service(store, clock)
    old = acquire(ghost)
    store.delete(KEY)
    new = acquire(service(store, clock), BERT)
    ghost.release(old)
    with pytest.raises(LeaseLostError, match="another token"):
        ghost.renew(old)
    assert service(store, clock).renew(new).generation == old.generation


def test_what_one_knew_of_a_removed_object_does_not_keep_one_out(store, clock):
    one = service(store, clock)
    one.release(acquire(one))
    store.delete(KEY)
    assert acquire(one).owner == ANNA


# Words and ways in


def test_a_record_says_who_and_why_to_who_looks_into_the_folder(store, clock):
    service(store, clock).acquire("gpu-0", ANNA, ttl=TTL, reason="training")
    record = stored(store)
    assert record.pop("token")
    assert record.pop("nonce")
    assert record == {
        "format": 1, "name": "gpu-0", "generation": 1, "state": "held", "ttl_seconds": 30.0,
        "owner": {"agent": "anna", "instance": "a1", "host": "h1", "pid": 11},
        "at": format_time_ms(clock.time()), "reason": "training",
    }  # fmt: skip


def test_since_when_it_is_held_is_the_store_s_time_in_every_process(clock):
    store = MemoryStore(clock=clock.other_host(ahead=500))
    lease = acquire(service(store, clock))
    granted = store.now()
    for _ in range(3):
        clock.advance(TTL / 3)
        service(store, clock).renew(lease)
    holder = service(store, clock).inspect("gpu-0")
    assert holder.since == pytest.approx(granted, abs=0.002)
    assert holder.beat == store.now()


def test_who_lost_it_is_told_to_whom(store, clock):
    anna, bert = service(store, clock), service(store, clock)
    lease = acquire(anna)
    anna.force_release("gpu-0", 1)
    bert.release(acquire(bert, BERT))
    with pytest.raises(LeaseLostError, match="generation 2 was granted to bert"):
        anna.renew(lease)


def test_a_lease_never_lies_where_a_lock_file_could(store, clock):
    service(store, clock).acquire("tapfile.lock", ANNA, ttl=TTL)
    assert [info.key for info in store.list()] == ["locks/tapfile%2Elock/lease"]


def test_store_opens_it(store, clock):
    opened = registry.open_locks("store", store, "locks", scope="s1", clock=clock)
    assert isinstance(opened, LeaseObjectService)


def test_store_takes_no_address(store, clock):
    with pytest.raises(InvalidKeyError, match="neither host nor path"):
        registry.open_locks("store://somewhere", store, "locks", scope="s1", clock=clock)


def test_a_place_that_cannot_compare_and_set_is_refused(tmp_path):
    with pytest.raises(UnsupportedOperationError, match=r"'update'.*o_excl.*redis://"):
        registry.open_locks("store", LocalStore(tmp_path), "locks", scope="s1")


def test_a_session_that_could_not_lock_is_not_created(tmp_path):
    with pytest.raises(UnsupportedOperationError, match="'update'"):
        tapstore.create(tmp_path, roles=["coder"], locks="store")
    assert not (tmp_path / ".tap/session").exists()


def test_a_session_remembers_it():
    url = "memory://lease-objects/s"
    tapstore.create(url, roles=["coder"], locks="store")
    session = tapstore.open(url)
    with session.lock("gpu-0", ttl=30) as guard:
        assert session.locks.inspect("gpu-0").generation == guard.generation
    assert [info.key for info in session.store.list(".tap/locks/")] == [".tap/locks/gpu-0/lease"]
