"""Named leases in Redis or Valkey: `locks="redis://…"`.

Of any number of contenders at most one is granted a lease at a time, in the order in which they
began to wait; a holder that stops renewing loses it when its ttl is over by the server's clock.
Generations rise strictly as long as the server keeps its data, and also when it loses them, unless
its clock is set back at the same time: docs/how-to/redis.md says what that is worth.

Not promised: that nobody else is granted a lease that the server forgot, by losing its data, by
failing over to a replica that lagged behind, or by eviction.  Its holder learns that from its next
renewal.  What a lease protects should check the generation; tapstore's own commits do not rest on
leases at all.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tapstore.abc import Clock, LockService
from tapstore.clock import SYSTEM_CLOCK
from tapstore.errors import FormatError
from tapstore.keys import check_name
from tapstore.types import Finding, Holder, Lease, Owner
from tapstore_redis import checkup, records, scripts, words
from tapstore_redis.address import Address
from tapstore_redis.bell import Bell
from tapstore_redis.line import Answer, Argument, Line
from tapstore_redis.listener import Listeners
from tapstore_redis.records import Keys
from tapstore_redis.waiting import LIFE_SECONDS, Acquisition, attempt_seconds, release_arguments

_RELEASE_SECONDS = 30.0
"""A release is repeated for so long, or until the lease ends by itself."""

_FORCE_SECONDS = 5.0
_READ_SECONDS = 1.0
"""For so long a server that is away is asked again."""

_AT_ONCE = 100
"""Leases that one call looks at, so that no call occupies the server for long."""


class RedisLockService(LockService):
    """The leases of one session, or whatever else `scope` stands for.

    All methods may be called from any thread, and from a forked child, which gets connections of
    its own.
    """

    def __init__(self, address: Address, scope: str, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._address = address
        self._line = Line(address, clock)
        self._scope = scope
        self._keys = Keys(scope)
        self._clock = clock
        self._listeners = Listeners(self._line, self._keys.wake, clock)

    def acquire(
        self, name: str, owner: Owner, *, ttl: float, wait: float | None = 0, reason: str = ""
    ) -> Lease:
        """See `LockService.acquire`.  Who waits is served first come, first served.

        A lease that is free is kept for the first who waits, for two seconds at most.  A server
        that cannot be reached raises `StoreError` after 3 seconds, 30 if it was there before, or
        when the wait ends.
        """
        acquisition = Acquisition(
            self._line,
            self._keys,
            self._listeners,
            self._clock,
            name=check_name(name, "lease"),
            owner=owner,
            ttl=records.check_ttl(ttl),
            wait=records.check_wait(wait),
            reason=reason,
        )
        return acquisition.run()

    def bell(self) -> Bell:
        """See `LockService.bell`."""
        return Bell(self._address, self._scope, clock=self._clock)

    def renew(self, lease: Lease) -> Lease:
        """See `LockService.renew`.  Repeated for a third of the ttl while the server is away."""
        started = self._clock.monotonic()
        answer = self._insist(
            scripts.RENEW,
            [self._keys.record(lease.name)],
            [lease.token, str(lease.generation), records.microseconds(lease.ttl_seconds)],
            what=f"renewal of lease {lease.name!r}",
            ttl=lease.ttl_seconds,
            until=min(lease.expires, started + lease.ttl_seconds / 3),
        )
        what, flat = records.strings(answer.value[:1])[0], answer.value[1]
        if what == "renewed":
            return replace(lease, expires=answer.asked + lease.ttl_seconds)
        if what == "malformed":
            raise self._malformed(lease.name, records.strings(flat)[0])
        raise words.lost(lease, records.record(flat), self._line.url)

    def release(self, lease: Lease) -> None:
        """See `LockService.release`.  Repeated until it is confirmed or the lease is over.

        Raises `OutcomeUnknownError` or `StoreError` when it could not be confirmed.
        """
        life = min(LIFE_SECONDS, lease.ttl_seconds)
        until = min(lease.expires, self._clock.monotonic() + _RELEASE_SECONDS)
        self._insist(
            scripts.RELEASE,
            self._keys.of(lease.name),
            release_arguments(self._keys, lease.name, lease.token, "", life),
            what=f"release of lease {lease.name!r}",
            ttl=lease.ttl_seconds,
            until=until,
        )

    def inspect(self, name: str) -> Holder | None:
        ((what, flat),) = self._look([name])
        if what == "malformed":
            raise self._malformed(name, records.strings(flat)[0])
        return records.holder(name, records.record(flat)) if what == "held" else None

    def names(self) -> Iterator[str]:
        members = self._read(lambda client: client.smembers(self._keys.held))
        names = sorted(records.strings(list(members)))
        for begin in range(0, len(names), _AT_ONCE):
            some = names[begin : begin + _AT_ONCE]
            for name, (what, _) in zip(some, self._look(some), strict=True):
                # What is malformed is held: `inspect` tells what is wrong with it.
                if what != "free":
                    yield name

    def force_release(self, name: str, generation: int) -> None:
        answer = self._insist(
            scripts.FORCE,
            self._keys.of(name),
            [
                records.text(name),
                str(generation),
                secrets.token_hex(8),
                records.microseconds(1),
                self._keys.wake,
            ],
            what=f"ending of lease {name!r} by force",
            ttl=_FORCE_SECONDS,
            until=self._clock.monotonic() + _FORCE_SECONDS,
        )
        what, flat = records.strings(answer.value[:1])[0], answer.value[1]
        if what == "malformed":
            raise self._malformed(name, records.strings(flat)[0])
        if what == "free":
            raise words.nobody(name, self._line.url)
        if what == "other":
            raise words.other_generation(records.holder(name, records.record(flat)), generation)

    def checkup(self, tried: tuple[str, ...] = ()) -> Iterator[Finding]:
        return checkup.all_of(self._line, self._keys, self._address, self._clock, tried)

    def close(self) -> None:
        self._listeners.close()
        self._line.close()

    def __repr__(self) -> str:
        return f"RedisLockService({self._line.url!r}, scope={self._keys.scope!r})"

    # Calls

    def _insist(
        self,
        script: scripts.Script,
        keys: list[str],
        args: list[Argument],
        *,
        what: str,
        ttl: float,
        until: float,
    ) -> Answer:
        return self._line.insist(
            script,
            keys,
            args,
            what=what,
            seconds=attempt_seconds(ttl, self._line.timeout_seconds),
            until=until,
        )

    def _look(self, names: list[str]) -> list[tuple[str, list[object]]]:
        keys = [self._keys.record(name) for name in names]
        found = self._read(lambda client: scripts.INSPECT.run(client, keys, []))
        return [(records.strings([what])[0], flat) for what, flat in found]

    def _read(self, command: Callable[[Any], Any]) -> Any:
        until = self._clock.monotonic() + _READ_SECONDS
        return self._line.read(command, what="a look at leases", until=until)

    def _malformed(self, name: str, fault: str) -> FormatError:
        return words.malformed(name, self._keys.record(name), self._line.url, fault)
