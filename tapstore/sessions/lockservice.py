"""The lock service of a session: whichever is in force, also while it is being switched.

Of all who ask for a lease, in whatever service they believe, at most one is granted it at a time,
and generations rise over a switch, too.  A grant counts only if no newer service was named before
a look *afterwards*; and none is made in a new service before the same lease was free in the old
one.  Leases granted before are renewed and released where they are.  docs/adr/0011-switching-
locks.md has the interleavings.

Not promised: more than the service in force promises; a turn in its queue to who waits in another.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from typing import TypeVar

from tapstore import registry
from tapstore.abc import Bell, Clock, LockService, Store
from tapstore.errors import (
    LeaseUnavailableError,
    NotAllowedError,
    OutcomeUnknownError,
    StoreError,
    TapstoreError,
    UnsupportedOperationError,
)
from tapstore.keys import mask_url, same_service, shell_word, without_password
from tapstore.sessions import lockswitch
from tapstore.sessions.config import SessionConfig
from tapstore.sessions.lockrecords import LockRecords, in_force
from tapstore.types import Holder, Lease, Owner

T = TypeVar("T")

GENERATION_BITS = 52
"""Those of a service itself; above them stands the number of the service.

Redis counts in microseconds since 1970, which take 51.
"""

_TRY_EVERY_SECONDS = 5.0
"""A switch that waits for somebody who holds a lease for hours must not cost each acquire."""

_GENERATION = re.compile(r"(?<=generation )\d+")


class SessionLocks(LockService):
    """What `Session.locks` is."""

    def __init__(
        self, store: Store, config: SessionConfig, *, given: str | None = None, clock: Clock
    ) -> None:
        """`given`: a URL of the opener's own; used, with its credentials, for that service."""
        self.records = LockRecords(store, config)
        self.clock = clock
        self._store = store
        self._given = [] if given is None else [given]
        self._services: dict[int, LockService] = {}
        self._known: int | None = None
        self._free: set[tuple[int, str]] = set()
        """Leases that were seen to be free in a service after the next one was named."""
        self._next_try = -math.inf

    # Which one

    @property
    def name(self) -> str:
        """Name or URL of the service in force, without a password."""
        return self.records.service(self.look())

    @property
    def former(self) -> str | None:
        """The service before, if leases may still be held there: the switch is not finished."""
        number = self.look()
        return None if self.records.is_open(number) else self.records.service(number - 1)

    def look(self) -> int:
        """The number of the service in force."""
        self._known = self.records.newest()
        return self._known

    def give(self, url: str) -> None:
        """Use this URL, with its credentials if it has any, for the service that it names."""
        self._given.insert(0 if "@" in url else len(self._given), url)

    def service(self, number: int) -> LockService:
        """One of the services, opened when it is first asked for."""
        found = self._services.get(number)
        if found is None:
            # No mutex: one that another thread held during a fork would stay held in the child.
            found = self._services.setdefault(
                number, self.open(self.records.service(number), number)
            )
        return found

    def open(self, url: str, number: int) -> LockService:
        """Open what is, or may become, the service of this number."""
        return registry.open_locks(
            next((given for given in self._given if same_service(given, url)), url),
            self._store,
            self.records.prefix(number),
            scope=self.records.scope(number),
            clock=self.clock,
        )

    # Contract

    def bell(self) -> Bell | None:
        return self.service(self.look()).bell()

    def acquire(
        self, name: str, owner: Owner, *, ttl: float, wait: float | None = 0, reason: str = ""
    ) -> Lease:
        if wait is not None and not (math.isfinite(wait) and wait >= 0):
            raise ValueError(f"wait must be None (for ever) or 0 or more seconds, not {wait!r}")
        end = math.inf if wait is None else self.clock.monotonic() + wait

        def left() -> float | None:
            return None if end == math.inf else max(0.0, end - self.clock.monotonic())

        number = self.look() if self._known is None else self._known
        while True:
            try:
                self._leave_former(number, name, owner, ttl=ttl, left=left)
                lease = self.ask(
                    number,
                    lambda service: service.acquire(
                        name, owner, ttl=ttl, wait=left(), reason=reason
                    ),
                )
            except (StoreError, OutcomeUnknownError, LeaseUnavailableError):
                # A service that has been switched away from may be gone, or held for ever.
                newest = self.look()
                if newest == number:
                    raise
                number = newest
                continue
            newest = self._look_after(number, lease)
            if newest == number and self.clock.monotonic() < lease.expires:
                return _outer(number, lease)
            # Whoever opens the new service waits until we have given this back, or died.
            with suppress(TapstoreError):
                self.service(number).release(lease)
            number = newest

    def renew(self, lease: Lease) -> Lease:
        number, inner = _inner(lease)
        return _outer(number, self.ask(number, lambda service: service.renew(inner)))

    def release(self, lease: Lease) -> None:
        number, inner = _inner(lease)
        self.ask(number, lambda service: service.release(inner))

    def inspect(self, name: str) -> Holder | None:
        for number in self._asked():
            holder = self.ask(number, lambda service: service.inspect(name))
            if holder is not None:
                return replace(holder, generation=_outer_generation(number, holder.generation))
        return None

    def names(self) -> Iterator[str]:
        held = [self.ask(number, lambda service: list(service.names())) for number in self._asked()]
        return (name for name, _ in groupby(heapq.merge(*held)))

    def force_release(self, name: str, generation: int) -> None:
        number, generation = _split(generation)
        self.look()
        self.ask(number, lambda service: service.force_release(name, generation))

    def close(self) -> None:
        for service in self._services.values():
            service.close()

    # While it is being switched

    def free(self, number: int, name: str, owner: Owner, *, ttl: float, wait: float | None) -> None:
        """Wait until nobody who counts holds `name` in a service that is no longer in force.

        Who is granted it there from now on steps back: so once it was free, it is for good.
        Raises `LeaseUnavailableError`.
        """
        if (number, name) in self._free:
            return
        # To be granted it proves more than a look: that its holder may not rely on it any more.
        lease = self.ask(
            number,
            lambda service: service.acquire(
                name, owner, ttl=ttl, wait=wait, reason="the session goes to another lock service"
            ),
        )
        self._free.add((number, name))
        with suppress(TapstoreError):  # else it ends by its ttl
            self.ask(number, lambda service: service.release(lease))

    def _leave_former(
        self,
        number: int,
        name: str,
        owner: Owner,
        *,
        ttl: float,
        left: Callable[[], float | None],
    ) -> None:
        if self.records.is_open(number):
            return
        self.free(number - 1, name, owner, ttl=ttl, wait=left())
        if self.clock.monotonic() >= self._next_try:
            # Who began the switch may have died: whoever comes next goes on with it.  What stops
            # him there is no reason to refuse him what he came for.
            with suppress(TapstoreError):
                lockswitch.finish(self, number, owner, wait=0)
            self._next_try = self.clock.monotonic() + _TRY_EVERY_SECONDS

    def _look_after(self, number: int, lease: Lease) -> int:
        try:
            return self.look()
        except BaseException:
            with suppress(TapstoreError):
                self.service(number).release(lease)
            raise

    def _asked(self) -> list[int]:
        """The services in which somebody may hold something that counts."""
        number = self.look()
        return [number] if self.records.is_open(number) else [number, number - 1]

    def ask(self, number: int, question: Callable[[LockService], T]) -> T:
        """What a service answers, with generations as everybody outside of it knows them."""
        try:
            return question(self.service(number))
        except TapstoreError as exc:
            message = self._retold(number, exc)
            if message == str(exc):
                raise
            other = type(exc)(message)
            if isinstance(other, OSError) and isinstance(exc, OSError):
                other.errno = exc.errno
            raise other from exc

    def _retold(self, number: int, exc: TapstoreError) -> str:
        message = str(exc)
        if number:
            # The commands that it names have to work.
            message = _GENERATION.sub(
                lambda found: str(_outer_generation(number, int(found.group()))), message
            )
        if isinstance(exc, StoreError) and number < (self._known or 0):
            gone, url = mask_url(self.records.service(number)), self.records.service(number + 1)
            message += (
                f".  {self.records.where} is being switched away from it; if {gone} is gone for "
                f"good: `tapstore locks switch {shell_word(url)} --old-is-gone`"
            )
        return message


def check_same(store: Store, config: SessionConfig, locks: str) -> None:
    """Raise `NotAllowedError` if a session uses another lock service than `locks`."""
    used = in_force(store, config)
    if same_service(used, locks):
        return
    shown, other = mask_url(used), mask_url(locks)
    if shown == other:
        # What differs is what may hide a credential.
        shown, other = (without_password(url).partition("?")[2] or "no" for url in (used, locks))
        shown, other = f"the options {shown}", f"the options {other} in {mask_url(locks)}"
    switch = (
        "all who open it must use the same: leave `locks` out, or change it for all with "
        "`tapstore locks switch URL`"
        if config.exclusion == "place"
        else "its commits rest on that, so it cannot be changed: leave `locks` out"
    )
    raise NotAllowedError(
        f"session {config.session_id} uses locks={shown!r}, not {other!r}; {switch}"
    )


def _split(generation: int) -> tuple[int, int]:
    return generation >> GENERATION_BITS, generation & ((1 << GENERATION_BITS) - 1)


def _outer_generation(number: int, generation: int) -> int:
    if generation >> GENERATION_BITS:
        raise UnsupportedOperationError(
            f"the lock service counts as far as {generation}, more than the {GENERATION_BITS} bits "
            "that a session has for it"
        )
    return number << GENERATION_BITS | generation


def _outer(number: int, lease: Lease) -> Lease:
    return replace(lease, generation=_outer_generation(number, lease.generation))


def _inner(lease: Lease) -> tuple[int, Lease]:
    number, generation = _split(lease.generation)
    return number, replace(lease, generation=generation)
