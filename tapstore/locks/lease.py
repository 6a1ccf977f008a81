"""Named leases on any store that can create exclusively: `locks="o_excl"`.

Of any number of contenders at most one is granted a generation, generations rise strictly, and a
holder that stops renewing is taken over after its ttl.  What it rests on is `put(CREATE)`; no
listing grants anything, and no wall clock does so alone.  docs/spec/locks.md has the format and
why it is safe.

Not promised: an order among those who wait; re-entrancy (who asks twice waits for itself); that a
holder that is stopped, forced, or whose monotonic clock stands still while its host sleeps,
notices before it looks.  What a lease protects should check the generation.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from tapstore.abc import Clock, LockService, Store
from tapstore.clock import SYSTEM_CLOCK, format_time_ms
from tapstore.errors import (
    FormatError,
    InvalidKeyError,
    LeaseUnavailableError,
    NotFoundError,
    StoreError,
    TapstoreError,
)
from tapstore.keys import mask_url
from tapstore.locks import records, words
from tapstore.locks.folder import Ended, Head, Issued, LeaseFolder, Sign
from tapstore.locks.records import End, Grant, How
from tapstore.locks.waiting import Observer, Patience, is_old
from tapstore.types import Holder, Lease, Owner

_COLLECT_EVERY = 25
"""Grants between two looks for old numbers; each removes up to twice as many."""

_RACES = 3
"""How many races somebody who does not wait may lose."""


@dataclass(frozen=True, slots=True)
class _Free:
    """Number n is to be had."""

    n: int
    after: str
    """Id of the grant n - 1; empty if there is none."""


@dataclass(frozen=True, slots=True)
class _Held:
    """A grant that its holder may rely on.

    With `ended` it is over, but may have been renewed just before that.
    """

    issued: Issued
    grant: Grant
    sign: Sign
    looked: float
    """Monotonic time before the look at `sign`."""

    ended: Ended | None = None


class LeaseService(LockService):
    """Leases below `prefix`."""

    def __init__(
        self,
        store: Store,
        prefix: str = ".tap/locks",
        *,
        clock: Clock = SYSTEM_CLOCK,
        first_poll_seconds: float = 0.002,
        longest_poll_seconds: float = 0.5,
        rng: random.Random | None = None,
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._clock = clock
        self._polls = (first_poll_seconds, longest_poll_seconds)
        self._rng = rng or random.Random()
        self._observer = Observer(clock)
        self._hints: dict[str, int] = {}
        """Numbers that were seen; to start looking from."""
        self._freed: dict[str, _Free] = {}
        """What our own last release left, unless somebody was there first."""

    # Contract

    def acquire(
        self, name: str, owner: Owner, *, ttl: float, wait: float | None = 0, reason: str = ""
    ) -> Lease:
        records.check_ttl(ttl)
        first, longest = self._polls
        patience = Patience(wait, first=first, longest=longest, clock=self._clock, rng=self._rng)
        folder = self._folder(name)
        state = self._freed.pop(name, None) or self._find(folder)
        races = 0
        while True:
            if isinstance(state, _Free):
                lease, state = self._take(folder, state, owner, ttl, reason)
                if lease is not None:
                    return lease
                races += 1
                if patience.over and (races >= _RACES or isinstance(state, _Held)):
                    raise self._refusal(name, state, owner)
                continue
            left = self._until_over(name, state, patience)
            if left <= 0:
                state = self._pass_on(folder, state, owner)
            elif patience.over:
                raise self._refusal(name, state, owner)
            else:
                patience.pause(at_most=left)
                before = state.issued
                state = self._look(folder, Head(before.n, before), again=True)
                if isinstance(state, _Held) and state.issued.n != before.n:
                    patience.hurry()

    def renew(self, lease: Lease) -> Lease:
        started = self._clock.monotonic()
        folder = self._folder(lease.name)
        n, grant_id = lease.generation, records.id_of(lease.token)
        # The look before the beat keeps a zombie from writing into a folder that was removed, or
        # beside a number that was collected.
        if self._is_granted(folder, lease):
            folder.beat(n, grant_id, self._now())
            # End before grant: who collects removes the grant before its end, so a holder that
            # finds neither an end nor its grant missing was not over when its beat was written.
            ended = folder.ended(n, grant_id)
            if ended is None and self._is_granted(folder, lease):
                return replace(lease, expires=started + lease.ttl_seconds)
        raise words.lost(lease, _why(folder.ended(n, grant_id)))

    def release(self, lease: Lease) -> None:
        folder = self._folder(lease.name)
        n, grant_id = lease.generation, records.id_of(lease.token)
        if folder.end(grant_id, self._end(n, "released", by=lease.owner)):
            self._freed[lease.name] = _Free(n + 1, grant_id)
        if n % _COLLECT_EVERY == 0:
            # In a folder of several users one may not remove another's files.  That is no reason
            # to fail the release; they stay, `collect` says why, and the next one tries again.
            with suppress(StoreError):
                folder.collect(n, limit=2 * _COLLECT_EVERY, at=self._now())

    def inspect(self, name: str) -> Holder | None:
        state = self._find(self._folder(name))
        if isinstance(state, _Free):
            return None
        return _holder(state.issued, state.grant, state.sign.seen)

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
        folder = self._folder(name)
        issued = folder.head(self._hints.get(name, 0)).issued
        if issued is None or folder.ended(issued.n, issued.id) is not None:
            raise NotFoundError(f"nobody holds the lease {name!r} in {self._store.url}")
        if issued.n != generation:
            grant = issued.record
            holder = None if grant is None else _holder(issued, grant, issued.since)
            raise words.other_generation(name, generation, issued.n, holder)
        folder.end(issued.id, self._end(issued.n, "forced"))

    def collect(self, name: str) -> int:
        """Remove the files of old grants now; return how many there were.

        Happens by itself now and then, except that errors stay silent there.
        """
        folder = self._folder(name)
        total = 0
        head = folder.head(self._hints.get(name, 0)).n
        while removed := folder.collect(head, limit=2 * _COLLECT_EVERY, at=self._now()):
            total += removed
        return total

    # Looking

    def _find(self, folder: LeaseFolder) -> _Free | _Held:
        return self._look(folder, folder.head(self._hints.get(folder.names.name, 0)))

    def _look(self, folder: LeaseFolder, head: Head, *, again: bool = False) -> _Free | _Held:
        """What can be said of the newest grant; `again` if it was that a moment ago."""
        name, issued = folder.names.name, head.issued
        if issued is None:
            return _Free(head.n + 1, "")
        self._hints[name] = issued.n
        free = _Free(issued.n + 1, issued.id)
        looked = self._clock.monotonic()
        ended = folder.ended(issued.n, issued.id)
        if ended is not None and again:
            return self._look(folder, folder.newest(issued))
        if issued.record is None:
            if ended is None:
                remedy = f"`{words.command(name, issued.n)}`"
                raise words.unreadable(name, issued.fault, remedy)
            return free
        if ended is not None and ended.is_final:
            return free
        # After the look at the end: a renewal that was confirmed saw none, so it is seen here.
        beat = folder.sign(issued)
        if again and beat is None and not folder.is_there(issued):
            # So long ago that it has been collected, or the folder was removed.
            self._hints.pop(name, None)
            return self._find(folder)
        sign = beat or Sign("", issued.since, issued.record.at)
        if ended is not None and ended.was_judged_on(sign):
            return free
        return _Held(issued, issued.record, sign, looked, ended)

    # Taking over

    def _until_over(self, name: str, held: _Held, patience: Patience) -> float:
        """Seconds until the grant is stale, or its end settled, as far as we can see."""
        ttl, ended = held.grant.ttl_seconds, held.ended
        if ended is None:
            state, seen, at = held.sign.nonce, held.sign.seen, held.sign.at
        else:
            state, seen, at = "ended", ended.seen, ended.at
        state = f"{held.issued.n}/{held.issued.id}/{state}"
        left = ttl - self._observer.unchanged_for(name, state, looked=held.looked)
        if left > max(0.0, patience.left) and is_old(
            seen=seen, at=at, ttl=ttl, clock=self._clock, store=self._store
        ):
            return 0.0
        return left

    def _pass_on(self, folder: LeaseFolder, held: _Held, by: Owner) -> _Free | _Held:
        """End what is stale, or go on after an end that is settled."""
        issued = held.issued
        if held.ended is not None:
            return _Free(issued.n + 1, issued.id)
        folder.end(issued.id, self._end(issued.n, "expired", by=by, nonce=held.sign.nonce))
        return self._look(folder, Head(issued.n, issued), again=True)

    def _take(
        self, folder: LeaseFolder, free: _Free, owner: Owner, ttl: float, reason: str
    ) -> tuple[Lease | None, _Free | _Held]:
        """Try to get a number; without success also say what is to be seen now."""
        name, n = folder.names.name, free.n
        started = self._clock.monotonic()
        grant = Grant(
            format=records.FORMAT,
            name=name,
            generation=n,
            token=records.new_token(),
            owner=owner,
            ttl_seconds=ttl,
            at=self._now(),
            reason=reason,
        )
        try:
            created = folder.grant(grant)
            self._hints[name] = n
            if not created:
                return None, self._find(folder)
            if folder.is_closed(n):
                # We were paused before the create, and n had been granted, ended and collected.
                folder.retract(n)
                return None, self._look(folder, folder.above(n))
            if free.after and folder.ended(n - 1, free.after) is None:
                if folder.is_closed(n - 1):
                    # Paused for so long that even this grant of ours is over.
                    folder.end(grant.id, self._end(n, "released", by=owner))
                else:
                    # The folder was removed and made again: its numbers are others now.
                    folder.retract(n)
                    self._hints.pop(name, None)
                return None, self._find(folder)
            if self._clock.monotonic() >= started + ttl:
                folder.end(grant.id, self._end(n, "released", by=owner))
                return None, self._find(folder)
        except BaseException:
            # Nobody will hold it, even if it is only on its way.  If not even that can be said, it
            # ends by its ttl.
            with suppress(TapstoreError):
                folder.end(grant.id, self._end(n, "released", by=owner))
            raise
        self._observer.forget(name)
        return Lease(
            name=name,
            generation=n,
            token=grant.token,
            owner=owner,
            ttl_seconds=ttl,
            expires=started + ttl,
            reason=reason,
        ), free

    # Words

    def _folder(self, name: str) -> LeaseFolder:
        return LeaseFolder(self._store, self._prefix, name)

    def _now(self) -> str:
        return format_time_ms(self._clock.time())

    def _end(self, n: int, how: How, *, by: Owner | None = None, nonce: str | None = None) -> End:
        return End(format=records.FORMAT, generation=n, how=how, at=self._now(), by=by, nonce=nonce)

    def _refusal(self, name: str, state: _Free | _Held, asker: Owner) -> LeaseUnavailableError:
        if isinstance(state, _Free):
            return words.restless(name, self._store.url)
        holder = _holder(state.issued, state.grant, state.sign.seen)
        return words.unavailable(holder, asker, ended=state.ended is not None)

    def _is_granted(self, folder: LeaseFolder, lease: Lease) -> bool:
        issued = folder.issued(lease.generation)
        record = None if issued is None else issued.record
        return record is not None and record.token == lease.token


def _holder(issued: Issued, grant: Grant, beat: float) -> Holder:
    return Holder(
        name=grant.name,
        generation=issued.n,
        owner=grant.owner,
        ttl_seconds=grant.ttl_seconds,
        since=issued.since,
        beat=beat,
        reason=grant.reason,
    )


def _why(ended: Ended | None) -> str:
    if ended is None:
        return "its record is gone"
    end = ended.record
    return "somebody ended it" if end is None else words.how_it_ended(end.how, end.at, end.by)


def open_service(store: Store, prefix: str, *, url: str, scope: str, clock: Clock) -> LeaseService:
    """The entry point `o_excl` of `tapstore.locks`."""
    del scope  # the leases lie in the session
    if url != "o_excl":
        raise InvalidKeyError(
            f"invalid lock service {mask_url(url)!r}: 'o_excl' keeps its leases in the session "
            "itself and takes neither host nor path"
        )
    return LeaseService(store, prefix, clock=clock)
