"""The conformance suite of `LockService`: every sentence of the contract is a test.

Needs pytest.  Who writes a lock service subclasses `LockServiceTests` in a test module and
overrides the fixture `place`:

    class TestMyLocks(LockServiceTests):
        manual_clock = False        # the service has a clock of its own: time is real,
        ttl = 0.5                   # so it had better be short

        @pytest.fixture
        def place(self):
            return MyLockPlace()

There are always two clients at least, each with the clocks of a host of its own.
"""

from __future__ import annotations

import random
import shlex
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import ClassVar

import pytest

from tapstore.abc import Clock, LockService
from tapstore.clock import SYSTEM_CLOCK
from tapstore.errors import (
    ConflictError,
    FormatError,
    InvalidKeyError,
    LeaseLostError,
    LeaseUnavailableError,
    NotFoundError,
)
from tapstore.testing.clock import ManualClock
from tapstore.testing.place import race
from tapstore.types import Lease, Owner

NAMES = ["gpu-0", "a b", "ü", "a/b", "..", ".hidden", "con", "x.lock", "tapfile.lock", "50%", "Z."]

ANNA = Owner(agent="anna", instance="a1", host="h1", pid=11)
BERT = Owner(agent="bert", instance="b1", host="h2", pid=22)


class LockPlace(ABC):
    """Where the leases of one test lie."""

    @abstractmethod
    def open(self, clock: Clock) -> LockService:
        """Return a new client that shares nothing with the others but the place."""

    @abstractmethod
    def spoil(self, name: str) -> None:
        """Put something that is no record where the newest record of a lease would be."""

    def let_pass(self, seconds: float) -> None:  # noqa: B027 - optional
        """The manual clocks were moved: move what the place has of a clock, too."""


class TimeLine:
    """Time in a test, real or not."""

    def __init__(self, place: LockPlace, clock: Clock) -> None:
        self._place = place
        self._manual = clock if isinstance(clock, ManualClock) else None
        self._timers: list[threading.Timer] = []

    def host(self) -> Clock:
        """The clocks of another host."""
        return SYSTEM_CLOCK if self._manual is None else self._manual.other_host()

    def let_pass(self, seconds: float) -> None:
        if self._manual is None:
            time.sleep(seconds)
        else:
            self._manual.advance(seconds)
            self._place.let_pass(seconds)

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        if self._manual is not None:
            self._manual.after(seconds, action)
        else:
            self._timers.append(threading.Timer(seconds, action))
            self._timers[-1].start()

    def end(self) -> None:
        for timer in self._timers:
            timer.join()


class Client:
    """A lock service, and the clock that its leases count on."""

    def __init__(self, place: LockPlace, owner: Owner, clock: Clock) -> None:
        self.service = place.open(clock)
        self.owner = owner
        self.clock = clock

    def acquire(
        self, name: str = "gpu-0", *, ttl: float, wait: float | None = 0, reason: str = ""
    ) -> Lease:
        return self.service.acquire(name, self.owner, ttl=ttl, wait=wait, reason=reason)


class LockServiceTests:
    """Subclass it; see the module."""

    manual_clock: ClassVar[bool] = True
    """The service knows no other clock than the one it is given."""

    ttl: ClassVar[float] = 30.0

    slack: ClassVar[float] = 5.0
    """So much longer than a ttl it may take until one look is enough to see that one is dead."""

    @pytest.fixture
    def clock(self) -> Clock:
        """For places that are given a clock, too."""
        return ManualClock() if self.manual_clock else SYSTEM_CLOCK

    @pytest.fixture
    def place(self) -> LockPlace:
        raise NotImplementedError("override the fixture `place`")

    @pytest.fixture
    def line(self, place: LockPlace, clock: Clock) -> Iterator[TimeLine]:
        line = TimeLine(place, clock)
        yield line
        line.end()

    @pytest.fixture
    def anna(self, place: LockPlace, line: TimeLine) -> Iterator[Client]:
        client = Client(place, ANNA, line.host())
        yield client
        client.service.close()

    @pytest.fixture
    def bert(self, place: LockPlace, line: TimeLine) -> Iterator[Client]:
        client = Client(place, BERT, line.host())
        yield client
        client.service.close()

    # Granting

    def test_a_free_lease_is_granted_as_asked(self, anna: Client) -> None:
        lease = anna.acquire("gpu-0", ttl=self.ttl, reason="training")
        assert (lease.name, lease.owner, lease.ttl_seconds, lease.reason) == (
            "gpu-0", ANNA, self.ttl, "training",
        )  # fmt: skip

    def test_a_lease_counts_from_before_it_was_asked_for(self, anna: Client) -> None:
        before = anna.clock.monotonic()
        lease = anna.acquire(ttl=self.ttl)
        assert before + self.ttl <= lease.expires <= anna.clock.monotonic() + self.ttl

    def test_a_held_lease_is_refused_to_others(self, anna: Client, bert: Client) -> None:
        anna.acquire(ttl=self.ttl)
        with pytest.raises(LeaseUnavailableError):
            bert.acquire(ttl=self.ttl)

    def test_a_held_lease_is_refused_to_its_holder(self, anna: Client) -> None:
        anna.acquire(ttl=self.ttl)
        with pytest.raises(LeaseUnavailableError, match="not re-entrant"):
            anna.acquire(ttl=self.ttl)

    def test_a_refusal_names_the_holder_and_what_helps(self, anna: Client, bert: Client) -> None:
        lease = anna.acquire("gpu 0", ttl=self.ttl, reason="training")
        with pytest.raises(LeaseUnavailableError) as caught:
            bert.acquire("gpu 0", ttl=self.ttl)
        command = f"tapstore locks release {shlex.quote('gpu 0')} --generation {lease.generation}"
        for word in ("gpu 0", "anna", "h1", "11", "training", "since", command):
            assert word in str(caught.value)

    def test_leases_with_different_names_do_not_meet(self, anna: Client, bert: Client) -> None:
        anna.acquire("gpu-0", ttl=self.ttl)
        assert bert.acquire("gpu-1", ttl=self.ttl).owner == BERT

    @pytest.mark.parametrize("name", NAMES)
    def test_any_printable_name_can_be_held(self, anna: Client, bert: Client, name: str) -> None:
        anna.acquire(name, ttl=self.ttl)
        assert list(bert.service.names()) == [name]

    @pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 121])
    def test_a_bad_name_is_refused(self, anna: Client, name: str) -> None:
        with pytest.raises(InvalidKeyError):
            anna.acquire(name, ttl=self.ttl)

    @pytest.mark.parametrize("ttl", [0, -1, float("nan"), float("inf"), 1e9])
    def test_a_ttl_that_is_no_ttl_is_refused(self, anna: Client, ttl: float) -> None:
        with pytest.raises(ValueError, match="ttl"):
            anna.acquire(ttl=ttl)

    @pytest.mark.parametrize("wait", [-1, float("nan")])
    def test_a_wait_that_is_no_wait_is_refused(self, anna: Client, wait: float) -> None:
        with pytest.raises(ValueError, match="wait"):
            anna.acquire(ttl=self.ttl, wait=wait)

    # Fencing

    def test_generations_rise_strictly_whatever_ends_them(
        self, place: LockPlace, line: TimeLine, anna: Client, bert: Client
    ) -> None:
        first = anna.acquire(ttl=self.ttl)
        anna.service.release(first)
        second = bert.acquire(ttl=self.ttl)
        anna.service.force_release("gpu-0", second.generation)
        third = anna.acquire(ttl=self.ttl)
        line.let_pass(self.ttl * 3)
        fourth = bert.acquire(ttl=self.ttl, wait=self.ttl * 2)
        bert.service.release(fourth)
        fifth = Client(place, ANNA, line.host()).acquire(ttl=self.ttl)
        generations = [lease.generation for lease in (first, second, third, fourth, fifth)]
        assert generations == sorted(set(generations))

    # Giving back

    def test_a_released_lease_can_be_had_at_once(self, anna: Client, bert: Client) -> None:
        anna.service.release(anna.acquire(ttl=self.ttl))
        assert bert.acquire(ttl=self.ttl).owner == BERT

    def test_releasing_twice_is_no_error(self, anna: Client) -> None:
        lease = anna.acquire(ttl=self.ttl)
        anna.service.release(lease)
        anna.service.release(lease)
        assert anna.service.inspect("gpu-0") is None

    def test_a_late_release_does_not_end_the_next_grant(self, anna: Client, bert: Client) -> None:
        old = anna.acquire(ttl=self.ttl)
        anna.service.release(old)
        new = bert.acquire(ttl=self.ttl)
        anna.service.release(old)
        assert bert.service.renew(new).generation == new.generation

    def test_a_release_with_another_token_ends_nothing(self, anna: Client, bert: Client) -> None:
        lease = anna.acquire(ttl=self.ttl)
        bert.service.release(replace(lease, token="0" * len(lease.token)))
        assert anna.service.renew(lease).generation == lease.generation

    def test_a_lease_can_be_released_by_another_client(self, anna: Client, bert: Client) -> None:
        bert.service.release(anna.acquire(ttl=self.ttl))
        assert anna.service.inspect("gpu-0") is None

    # Renewing

    def test_renewal_counts_from_its_own_beginning(self, line: TimeLine, anna: Client) -> None:
        lease = anna.acquire(ttl=self.ttl)
        line.let_pass(self.ttl / 4)
        before = anna.clock.monotonic()
        renewed = anna.service.renew(lease)
        assert before + self.ttl <= renewed.expires <= anna.clock.monotonic() + self.ttl

    def test_a_renewed_lease_outlives_its_first_ttl(
        self, line: TimeLine, anna: Client, bert: Client
    ) -> None:
        lease = anna.acquire(ttl=self.ttl)
        for _ in range(5):
            line.let_pass(self.ttl / 3)
            lease = anna.service.renew(lease)
            with pytest.raises(LeaseUnavailableError):
                bert.acquire(ttl=self.ttl)

    def test_renewal_with_another_token_is_refused(self, anna: Client, bert: Client) -> None:
        lease = anna.acquire(ttl=self.ttl)
        with pytest.raises(LeaseLostError):
            bert.service.renew(replace(lease, token="0" * len(lease.token)))

    def test_renewal_after_release_says_lost(self, anna: Client) -> None:
        lease = anna.acquire(ttl=self.ttl)
        anna.service.release(lease)
        with pytest.raises(LeaseLostError, match="released"):
            anna.service.renew(lease)

    def test_renewal_of_a_lease_that_never_was_says_lost(self, anna: Client) -> None:
        lease = anna.acquire(ttl=self.ttl)
        with pytest.raises(LeaseLostError):
            anna.service.renew(replace(lease, name="gpu-1"))

    # Taking over

    def test_a_holder_that_does_not_renew_is_taken_over(self, anna: Client, bert: Client) -> None:
        anna.acquire(ttl=self.ttl)
        assert bert.acquire(ttl=self.ttl, wait=self.ttl * 3).owner == BERT

    def test_nobody_is_taken_over_before_the_end_of_its_ttl(
        self, anna: Client, bert: Client
    ) -> None:
        started = bert.clock.monotonic()
        anna.acquire(ttl=self.ttl)
        bert.acquire(ttl=self.ttl, wait=self.ttl * 3)
        assert bert.clock.monotonic() - started >= self.ttl

    def test_who_waits_does_not_take_over_a_holder_that_renews(
        self, line: TimeLine, anna: Client, bert: Client
    ) -> None:
        held = [anna.acquire(ttl=self.ttl)]
        for third in range(1, 8):
            line.after(third * self.ttl / 3, lambda: held.append(anna.service.renew(held[-1])))
        with pytest.raises(LeaseUnavailableError):
            bert.acquire(ttl=self.ttl, wait=self.ttl * 2.5)

    def test_a_holder_that_died_long_ago_is_no_obstacle_to_one_look(
        self, line: TimeLine, anna: Client, bert: Client
    ) -> None:
        anna.acquire(ttl=self.ttl)
        line.let_pass(self.ttl + self.slack)
        assert bert.acquire(ttl=self.ttl, wait=0).owner == BERT

    def test_a_zombie_learns_from_its_renewal_that_it_lost(
        self, line: TimeLine, anna: Client, bert: Client
    ) -> None:
        lease = anna.acquire(ttl=self.ttl)
        line.let_pass(self.ttl * 1.5)
        bert.acquire(ttl=self.ttl, wait=self.ttl * 2)
        with pytest.raises(LeaseLostError, match="bert"):
            anna.service.renew(lease)

    def test_a_zombie_that_renews_does_not_disturb_its_successor(
        self, line: TimeLine, anna: Client, bert: Client
    ) -> None:
        old = anna.acquire(ttl=self.ttl)
        line.let_pass(self.ttl * 1.5)
        new = bert.acquire(ttl=self.ttl, wait=self.ttl * 2)
        with pytest.raises(LeaseLostError):
            anna.service.renew(old)
        assert bert.service.renew(new).owner == BERT

    def test_a_zombie_that_releases_does_not_disturb_its_successor(
        self, line: TimeLine, anna: Client, bert: Client
    ) -> None:
        old = anna.acquire(ttl=self.ttl)
        line.let_pass(self.ttl * 1.5)
        new = bert.acquire(ttl=self.ttl, wait=self.ttl * 2)
        anna.service.release(old)
        assert bert.service.renew(new).owner == BERT

    # Waiting

    def test_a_wait_ends_at_its_deadline(self, anna: Client, bert: Client) -> None:
        anna.acquire(ttl=self.ttl)
        started = bert.clock.monotonic()
        with pytest.raises(LeaseUnavailableError, match="anna"):
            bert.acquire(ttl=self.ttl, wait=self.ttl / 3)
        waited = bert.clock.monotonic() - started
        assert self.ttl / 3 <= waited <= self.ttl / 3 + 1.0

    def test_who_waits_gets_it_when_it_is_released(
        self, line: TimeLine, anna: Client, bert: Client
    ) -> None:
        ttl = self.ttl * 6  # a machine may well stand still for a short one
        lease = anna.acquire(ttl=ttl)
        line.after(self.ttl / 3, lambda: anna.service.release(lease))
        started = bert.clock.monotonic()
        bert.acquire(ttl=self.ttl, wait=ttl * 0.9)
        assert bert.clock.monotonic() - started < ttl * 0.9

    def test_a_wait_for_ever_ends_with_the_lease(
        self, line: TimeLine, anna: Client, bert: Client
    ) -> None:
        lease = anna.acquire(ttl=self.ttl)
        line.after(self.ttl / 3, lambda: anna.service.release(lease))
        assert bert.acquire(ttl=self.ttl, wait=None).owner == BERT

    # Looking

    def test_a_free_lease_has_no_holder(self, anna: Client) -> None:
        assert anna.service.inspect("gpu-0") is None

    def test_the_holder_is_visible_to_all(self, anna: Client, bert: Client) -> None:
        lease = anna.acquire(ttl=self.ttl, reason="training")
        holder = bert.service.inspect("gpu-0")
        assert holder is not None
        assert (holder.name, holder.generation, holder.owner, holder.reason) == (
            "gpu-0", lease.generation, ANNA, "training",
        )  # fmt: skip

    def test_renewal_moves_the_beat_and_not_the_beginning(
        self, line: TimeLine, anna: Client, bert: Client
    ) -> None:
        lease = anna.acquire(ttl=self.ttl)
        granted = bert.service.inspect("gpu-0")
        line.let_pass(self.ttl / 3)
        anna.service.renew(lease)
        renewed = bert.service.inspect("gpu-0")
        assert granted is not None
        assert renewed is not None
        assert renewed.beat > granted.beat
        assert renewed.since <= renewed.beat - self.ttl / 4

    def test_names_are_those_that_are_held_in_order(self, anna: Client, bert: Client) -> None:
        for name in ("c", "a", "b"):
            anna.acquire(name, ttl=self.ttl)
        anna.service.release(anna.acquire("d", ttl=self.ttl))
        assert list(bert.service.names()) == ["a", "b", "c"]

    def test_nobody_holds_anything_at_first(self, anna: Client) -> None:
        assert list(anna.service.names()) == []

    # Ending by force

    def test_force_ends_a_grant_at_once(self, anna: Client, bert: Client) -> None:
        lease = anna.acquire(ttl=self.ttl)
        bert.service.force_release("gpu-0", lease.generation)
        assert bert.acquire(ttl=self.ttl).owner == BERT

    def test_a_holder_that_was_forced_learns_it_from_its_renewal(
        self, anna: Client, bert: Client
    ) -> None:
        lease = anna.acquire(ttl=self.ttl)
        bert.service.force_release("gpu-0", lease.generation)
        with pytest.raises(LeaseLostError, match="force"):
            anna.service.renew(lease)

    def test_force_hits_no_other_generation(self, anna: Client, bert: Client) -> None:
        old = anna.acquire(ttl=self.ttl)
        anna.service.release(old)
        new = anna.acquire(ttl=self.ttl)
        with pytest.raises(ConflictError, match="anna"):
            bert.service.force_release("gpu-0", old.generation)
        assert anna.service.renew(new).generation == new.generation

    def test_force_on_a_free_lease_finds_nobody(self, anna: Client) -> None:
        with pytest.raises(NotFoundError):
            anna.service.force_release("gpu-0", 1)
        anna.service.release(lease := anna.acquire(ttl=self.ttl))
        with pytest.raises(NotFoundError):
            anna.service.force_release("gpu-0", lease.generation)

    # What others may have put there

    def test_what_is_no_record_is_not_granted(self, place: LockPlace, anna: Client) -> None:
        place.spoil("gpu-0")
        with pytest.raises(FormatError, match="gpu-0"):
            anna.acquire(ttl=self.ttl)

    def test_what_is_no_record_does_not_hide_other_leases(
        self, place: LockPlace, anna: Client
    ) -> None:
        anna.acquire("a", ttl=self.ttl)
        place.spoil("gpu-0")
        assert list(anna.service.names()) == ["a", "gpu-0"]

    # Several at once, in real time

    def test_of_many_at_once_exactly_one_is_granted(self, place: LockPlace) -> None:
        clients = [
            Client(place, Owner(agent=f"a{i}", instance=str(i)), SYSTEM_CLOCK) for i in range(8)
        ]
        results = race([lambda c=c: c.acquire(ttl=60) for c in clients])  # type: ignore[misc]
        granted = [result for result in results if isinstance(result, Lease)]
        refused = [result for result in results if isinstance(result, LeaseUnavailableError)]
        assert (len(granted), len(refused)) == (1, 7)

    def test_those_who_hold_it_in_turn_never_overlap(self, place: LockPlace) -> None:
        held: list[tuple[float, float, int]] = []

        def work(number: int) -> None:
            client = Client(place, Owner(agent=f"a{number}", instance=str(number)), SYSTEM_CLOCK)
            rng = random.Random(number)
            for _ in range(6):
                lease = client.acquire(ttl=60, wait=60)
                began = time.monotonic()
                time.sleep(rng.uniform(0, 0.002))
                held.append((began, time.monotonic(), lease.generation))
                client.service.release(lease)

        race([lambda n=n: work(n) for n in range(6)])  # type: ignore[misc]
        held.sort()
        assert len(held) == 36
        for (_, end, generation), (begin, _, following) in pairwise(held):
            assert end <= begin
            assert generation < following
