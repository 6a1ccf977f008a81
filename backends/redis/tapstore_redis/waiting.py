"""How one caller gets a lease: it looks, queues, sleeps until it is called, and looks again.

Who waits is served in the order in which it began.  It is called by a message when it is its turn,
and also looks by itself, at the time that the server names: when the holder's ttl ends, and often
enough to be known to be alive.  One that died leaves the queue after a while.

Not promised: its turn to somebody who was stopped, or cut off, for longer than `life`: it begins
again at the end.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from tapstore.abc import Clock
from tapstore.errors import LeaseUnavailableError, TapstoreError
from tapstore.types import Lease, Owner
from tapstore_redis import records, scripts, words
from tapstore_redis.line import Line
from tapstore_redis.listener import Listener, Listeners
from tapstore_redis.records import Keys
from tapstore_redis.trouble import TroubleError

LIFE_SECONDS = 10.0
"""So long somebody who waits counts as alive without looking, if leases live for longer."""

_SHORTEST_LIFE_SECONDS = 0.5

GRACE_SECONDS = 2.0
"""So long a free lease is kept for who was called."""

_OUTAGE_SECONDS = 30.0
"""A server that was there, and is gone for so long, is given up, whatever `wait` says."""

_FIRST_CONTACT_SECONDS = 3.0
"""The same if it never was there."""

_CANCEL_SECONDS = 1.0

_LATE_GRANTS = 3
"""So many answers may come when what they grant is over already."""

_FIRST_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 0.5
"""Between two attempts to subscribe."""


def attempt_seconds(ttl: float, longest: float) -> float:
    """How long one attempt may take, so that there is time for another within a ttl."""
    return min(longest, max(0.25, ttl / 4))


def grace(life: float) -> float:
    return min(GRACE_SECONDS, life)


@dataclass(frozen=True, slots=True)
class _View:
    """What the server said."""

    what: str
    look_in_seconds: float
    waiting: int
    fields: Mapping[str, str]
    asked: float


class Acquisition:
    """One call of `acquire`."""

    def __init__(
        self,
        line: Line,
        keys: Keys,
        listeners: Listeners,
        clock: Clock,
        *,
        name: str,
        owner: Owner,
        ttl: float,
        wait: float | None,
        reason: str,
    ) -> None:
        self._line = line
        self._keys = keys
        self._listeners = listeners
        self._clock = clock
        self._name = name
        self._owner = owner
        self._ttl = ttl
        self._reason = reason
        self._token = secrets.token_hex(16)
        self._deadline = math.inf if wait is None else clock.monotonic() + wait
        self._life = min(LIFE_SECONDS, max(_SHORTEST_LIFE_SECONDS, ttl))
        self._listener: Listener | None = None
        self._waiter = ""
        self._reached = False
        self._seen = 0
        """Number of a grant that was seen, and until when its holder may rely on it."""
        self._seen_until = -math.inf

    def run(self) -> Lease:
        """Return the lease, or raise and leave nothing behind that outlives its ttl."""
        try:
            lease = self._until_granted()
            self._keep_listener()
            return lease
        except LeaseUnavailableError as refused:
            # Refused in so many words, so nothing is under way.
            if self._waiter:
                self._cancel(refused)
            raise
        except BaseException as exc:
            self._cancel(exc)
            raise

    def _until_granted(self) -> Lease:
        pause = _FIRST_PAUSE_SECONDS
        late = 0
        if self._deadline > self._clock.monotonic():
            # Where leases are waited for, the first look can queue already.
            self._listener = self._listeners.take_idle()
            self._waiter = "" if self._listener is None else self._listeners.id_of(self._listener)
        while True:
            view = self._look()
            if view.what == "granted":
                lease = self._lease(view)
                if lease is not None:
                    return lease
                late += 1
                if late == _LATE_GRANTS:
                    raise words.too_slow(self._name, self._line.url, self._ttl)
                continue
            if view.what == "malformed":
                fault = next(iter(view.fields), "")
                key = self._keys.record(self._name)
                raise words.malformed(self._name, key, self._line.url, fault)
            left = self._deadline - self._clock.monotonic()
            if left <= 0:
                raise self._refusal(view)
            try:
                if self._listener is None:
                    # Its first look comes after it: what was published before is seen by that.
                    # With its old id it keeps its place in the queue.
                    self._listener = self._listeners.take(self._waiter)
                    self._waiter = self._listeners.id_of(self._listener)
                    pause = _FIRST_PAUSE_SECONDS
                else:
                    self._listener.wait(min(view.look_in_seconds, left))
            except TroubleError as trouble:
                self._drop_listener()
                if not trouble.kind.again:
                    what = f"waiting for lease {self._name!r}"
                    raise trouble.as_error(self._line.url, what) from trouble.cause
                # The next look says whether the server is back.
                self._line.pause(pause, at_most=left)
                pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    def _look(self) -> _View:
        patience = _OUTAGE_SECONDS if self._reached else _FIRST_CONTACT_SECONDS
        now = self._clock.monotonic()
        if now >= self._seen_until:
            self._seen = 0
        answer = self._line.insist(
            scripts.ACQUIRE,
            self._keys.of(self._name),
            [
                records.text(self._name),
                self._token,
                records.microseconds(self._ttl),
                self._waiter,
                records.microseconds(self._life),
                records.microseconds(grace(self._life)),
                self._keys.wake,
                self._seen,
                *records.owner_fields(self._owner, self._reason),
            ],
            what=f"grant of lease {self._name!r}",
            seconds=attempt_seconds(self._ttl, self._line.timeout_seconds),
            until=min(self._deadline, now + patience),
        )
        self._reached = True
        what, look, _, waiting, flat = answer.value
        what = records.strings([what])[0]
        fields = dict.fromkeys(records.strings(flat), "") if what == "malformed" else {}
        view = _View(
            what=what,
            look_in_seconds=records.seconds(records.strings([look])[0]),
            waiting=int(waiting),
            fields=fields or records.record(flat),
            asked=answer.asked,
        )
        return self._remember(view)

    def _remember(self, view: _View) -> _View:
        """Who saw a holder lets its ttl pass, even if the server forgets that there was one."""
        if view.what == "held":
            self._seen = int(view.fields["generation"])
            ttl = records.seconds(view.fields["ttl"])
            self._seen_until = self._clock.monotonic() + ttl
        elif view.what == "forgotten":
            left = max(0.0, self._seen_until - self._clock.monotonic())
            return _View(
                what=view.what,
                look_in_seconds=min(left, view.look_in_seconds),
                waiting=view.waiting,
                fields=view.fields,
                asked=view.asked,
            )
        return view

    def _lease(self, view: _View) -> Lease | None:
        """The lease, or None if the answer took so long that it is over already."""
        expires = view.asked + self._ttl
        if self._clock.monotonic() >= expires:
            return None
        return Lease(
            name=self._name,
            generation=int(view.fields["generation"]),
            token=self._token,
            owner=self._owner,
            ttl_seconds=self._ttl,
            expires=expires,
            reason=self._reason,
        )

    def _refusal(self, view: _View) -> LeaseUnavailableError:
        waiting = max(0, view.waiting - (1 if self._waiter else 0))
        if view.what == "held":
            holder = records.holder(self._name, view.fields)
            return words.held(holder, self._owner, waiting=waiting)
        if view.what == "forgotten":
            return words.forgotten(self._name, self._line.url)
        return words.reserved(self._name, self._line.url, waiting=waiting)

    # Ending

    def _cancel(self, reason: BaseException) -> None:
        """Leave the queue, and give back what may have been granted.

        If that does not come through, the grant ends by its ttl and the place in the queue by its
        life.
        """
        with suppress(TroubleError):
            self._line.run(
                scripts.RELEASE,
                self._keys.of(self._name),
                release_arguments(self._keys, self._name, self._token, self._waiter, self._life),
                seconds=_CANCEL_SECONDS,
            )
        if isinstance(reason, TapstoreError):
            self._keep_listener()
        else:
            self._drop_listener()

    def _keep_listener(self) -> None:
        if self._listener is not None:
            self._listeners.give_back(self._listener)
            self._listener = None

    def _drop_listener(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None


def release_arguments(
    keys: Keys, name: str, token: str, waiter: str, life: float
) -> list[str | bytes | int]:
    return [
        records.text(name), token, waiter, records.microseconds(grace(life)), keys.wake,
    ]  # fmt: skip
