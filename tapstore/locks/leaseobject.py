"""Named leases on any store with a compare-and-set: `locks="store"`.

A lease is one object, and each transition one conditional write of it, so whatever somebody did
meanwhile makes the write fail.  Of any number of contenders at most one is granted a generation,
generations rise strictly, and a holder that stops renewing is taken over after its ttl.  No wall
clock decides that alone.  docs/spec/locks.md has the format and why it is safe.

Not promised: an order among those who wait; re-entrancy (who asks twice waits for itself); that a
holder that is stopped, forced, or whose monotonic clock stands still while its host sleeps,
notices before it looks.  What a lease protects should check the generation.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Literal, TypeGuard

from msgspec import structs

from tapstore import failures
from tapstore.abc import Clock, LockService, Store
from tapstore.clock import SYSTEM_CLOCK, format_time, format_time_ms
from tapstore.errors import FormatError, InvalidKeyError, NotFoundError, TapstoreError
from tapstore.keys import mask_url
from tapstore.locks import records, words
from tapstore.locks.current import Garbled, LeaseObject, Seen
from tapstore.locks.records import Current, How
from tapstore.locks.waiting import Observer, Patience, is_old
from tapstore.types import Holder, Lease, Owner

_RACES = 3
"""How many races somebody who does not wait may lose."""


class LeaseObjectService(LockService):
    """Leases below `prefix`."""

    def __init__(
        self,
        store: Store,
        prefix: str = ".tap/locks",
        *,
        clock: Clock = SYSTEM_CLOCK,
        first_poll_seconds: float = 0.02,
        longest_poll_seconds: float = 0.5,
        rng: random.Random | None = None,
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._clock = clock
        self._polls = (first_poll_seconds, longest_poll_seconds)
        self._rng = rng or random.Random()
        self._observer = Observer(clock)
        self._known: dict[str, Seen] = {}
        """What we saw or wrote last.  However old it is, a write that builds on it is safe."""

    # Contract

    def acquire(
        self, name: str, owner: Owner, *, ttl: float, wait: float | None = 0, reason: str = ""
    ) -> Lease:
        records.check_ttl(ttl)
        first, longest = self._polls
        patience = Patience(wait, first=first, longest=longest, clock=self._clock, rng=self._rng)
        place = self._object(name)
        looked = self._clock.monotonic()
        seen = self._known.get(name)
        if seen is None or seen.is_held:
            seen = self._look(place)
        races = 0
        while True:
            before = seen
            if seen is None or (left := self._until_free(seen, looked, patience)) <= 0:
                if patience.over and races >= _RACES:
                    raise words.restless(name, self._store.url)
                looked = self._clock.monotonic()
                taken = self._take(place, seen, owner, ttl, reason)
                if isinstance(taken, Lease):
                    return taken
                seen = taken
                races += 1
            elif patience.over:
                raise words.unavailable(_holder(seen), owner, ended=False)
            else:
                patience.pause(at_most=left)
                looked = self._clock.monotonic()
                seen = self._look(place)
            if _generation(seen) != _generation(before):
                patience.hurry()

    def renew(self, lease: Lease) -> Lease:
        started = self._clock.monotonic()
        place = self._object(lease.name)
        # A renewal of an earlier call that is found to have landed is worth nothing: others may
        # have seen its nonce long ago.  Only one that is drawn after `started` counts from there.
        nonce = records.new_nonce()
        seen = self._known.get(lease.name)
        if not _is_granted(seen, lease):
            seen = self._look(place)
        while _is_granted(seen, lease):
            since = format_time_ms(seen.since)
            record = structs.replace(seen.record, nonce=nonce, at=self._now(), since=since)
            seen = self._replace(place, seen, record)
            if seen is not None and seen.record == record:
                return replace(lease, expires=started + record.ttl_seconds)
        raise words.lost(lease, _why(lease, seen))

    def release(self, lease: Lease) -> None:
        place = self._object(lease.name)
        seen = self._known.get(lease.name)
        if not _is_granted(seen, lease):
            seen = self._look(place)
        # Once more if a renewal of our own, that was still under way, came first.
        while _is_granted(seen, lease):
            seen = self._replace(place, seen, self._over(seen.record, "released"))

    def inspect(self, name: str) -> Holder | None:
        seen = self._look(self._object(name))
        return _holder(seen) if seen is not None and seen.is_held else None

    def names(self) -> Iterator[str]:
        names = map(records.name_in, self._store.children(f"{self._prefix}/"))
        for name in sorted(name for name in names if name is not None):
            try:
                held = self.inspect(name) is not None
            except FormatError:
                held = True  # `inspect` tells what is wrong; until that is settled nobody gets it
            if held:
                yield name

    def force_release(self, name: str, generation: int) -> None:
        """End exactly this grant, whoever holds it.

        Where the record cannot be read, nobody knows its generation: what is given counts as that.
        """
        place = self._object(name)
        seen = place.read()
        while True:
            if isinstance(seen, Garbled):
                record = self._lost_record(name, generation)
            elif seen is None or not seen.is_held:
                raise NotFoundError(f"nobody holds the lease {name!r} in {self._store.url}")
            elif seen.record.generation != generation:
                present = seen.record.generation
                raise words.other_generation(name, generation, present, _holder(seen))
            else:
                record = self._over(seen.record, "forced")
            seen = place.replace(seen, record)
            if isinstance(seen, Seen) and seen.record == record:
                return

    # The object, which has to be readable

    def _look(self, place: LeaseObject) -> Seen | None:
        return self._note(place, place.read())

    def _replace(self, place: LeaseObject, seen: Seen | None, record: Current) -> Seen | None:
        return self._note(place, place.replace(seen, record))

    def _note(self, place: LeaseObject, seen: Seen | Garbled | None) -> Seen | None:
        if isinstance(seen, Garbled):
            remedy = (
                f"`{words.command(place.name, 'N')}`, where N is at least the highest generation "
                "that was ever granted: the next one is N + 1"
            )
            raise words.unreadable(place.name, seen.fault, remedy)
        if seen is None:
            self._known.pop(place.name, None)
        else:
            self._known[place.name] = seen
        return seen

    # Taking over

    def _until_free(self, seen: Seen, looked: float, patience: Patience) -> float:
        """Seconds until it is stale, as far as we can see; 0 if it was given back."""
        if not seen.is_held:
            return 0.0
        record = seen.record
        ttl = record.ttl_seconds
        left = ttl - self._observer.unchanged_for(record.name, record.nonce, looked=looked)
        if left > max(0.0, patience.left) and is_old(
            seen=seen.modified, at=record.at, ttl=ttl, clock=self._clock, store=self._store
        ):
            return 0.0
        return left

    def _take(
        self, place: LeaseObject, seen: Seen | None, owner: Owner, ttl: float, reason: str
    ) -> Lease | Seen | None:
        """Try to get the next generation; if somebody came first, what is there now."""
        started = self._clock.monotonic()
        generation, follows = _next(seen)
        record = Current(
            format=records.FORMAT,
            name=place.name,
            generation=generation,
            state="held",
            token=records.new_token(),
            nonce=records.new_nonce(),
            owner=owner,
            ttl_seconds=ttl,
            at=self._now(),
            reason=reason,
            follows=follows,
        )
        try:
            taken = self._replace(place, seen, record)
            if taken is None or taken.record != record:
                return taken
            lease = Lease(
                name=place.name,
                generation=generation,
                token=record.token,
                owner=owner,
                ttl_seconds=ttl,
                expires=started + ttl,
                reason=reason,
            )
            if self._clock.monotonic() >= lease.expires:
                self.release(lease)
                return self._look(place)
        except BaseException:
            # If not even that can be done, the grant ends by its ttl, should it ever arrive.
            with suppress(TapstoreError):
                self._withdraw(place, seen, record)
            raise
        return lease

    def _withdraw(self, place: LeaseObject, seen: Seen | None, record: Current) -> None:
        """End a grant of which nobody knows whether it is there, or still under way."""
        over = self._over(record, "released")
        now = place.read()
        # In the place of what it was to replace, the grant cannot arrive any more.
        while _has_arrived(now, record) or (now and now.version) == (seen and seen.version):
            now = place.replace(now, over)

    # What is written

    def _over(self, record: Current, state: Literal["released", "forced"]) -> Current:
        return structs.replace(record, state=state, nonce=records.new_nonce(), at=self._now())

    def _lost_record(self, name: str, generation: int) -> Current:
        """Of a grant of which nothing is known."""
        return Current(
            format=records.FORMAT,
            name=name,
            generation=generation,
            state="forced",
            token=records.new_token(),
            nonce=records.new_nonce(),
            owner=Owner(agent="unknown", instance=""),
            ttl_seconds=records.MAX_TTL_SECONDS,
            at=self._now(),
        )

    def _object(self, name: str) -> LeaseObject:
        return LeaseObject(self._store, self._prefix, name)

    def _now(self) -> str:
        return format_time_ms(self._clock.time())


def _is_granted(seen: Seen | None, lease: Lease) -> TypeGuard[Seen]:
    """Whether the lease is what is held there."""
    return seen is not None and seen.is_held and seen.record.token == lease.token


def _has_arrived(now: Seen | Garbled | None, record: Current) -> bool:
    return isinstance(now, Seen) and now.is_held and now.record.token == record.token


def _generation(seen: Seen | None) -> int:
    return 0 if seen is None else seen.record.generation


def _next(seen: Seen | None) -> tuple[int, How | None]:
    """The generation to come, and how the one before it ended."""
    if seen is None:
        return 1, None
    state = seen.record.state
    return seen.record.generation + 1, "expired" if state == "held" else state


def _holder(seen: Seen) -> Holder:
    record = seen.record
    return Holder(
        name=record.name,
        generation=record.generation,
        owner=record.owner,
        ttl_seconds=record.ttl_seconds,
        since=seen.since,
        beat=seen.modified,
        reason=record.reason,
    )


def _why(lease: Lease, seen: Seen | None) -> str:
    """Why the lease is not what is held there."""
    if seen is None:
        return "its record is gone"
    record = seen.record
    if record.token == lease.token and record.state != "held":
        return words.how_it_ended(record.state, record.at, None)
    if record.generation <= lease.generation:
        return f"the record, of generation {record.generation}, has another token"
    if record.generation == lease.generation + 1 and record.follows == "expired":
        return words.how_it_ended("expired", format_time(seen.since), record.owner)
    return f"it ended, and generation {record.generation} was granted to {record.owner.agent}"


def open_service(
    store: Store, prefix: str, *, url: str, scope: str, clock: Clock
) -> LeaseObjectService:
    """The entry point `store` of `tapstore.locks`."""
    del scope  # the leases lie in the session
    if url != "store":
        raise InvalidKeyError(
            f"invalid lock service {mask_url(url)!r}: 'store' keeps its leases in the session "
            "itself and takes neither host nor path"
        )
    if not store.capabilities.update:
        raise failures.unsupported(
            store.url,
            "update",
            "locks='store' needs a compare-and-set; use locks='o_excl', for which exclusive "
            "creation is enough, or a server: locks='redis://host:6379/0'",
        )
    return LeaseObjectService(store, prefix, clock=clock)
