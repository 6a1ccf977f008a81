"""Wakes those who watch a session, in place of looking again and again.

`ring` after a change, `wait` between two looks.  A bell is a hint: it may ring for nothing, and a
ring may be lost, so whoever waits still looks by itself after a while.  It neither raises nor
blocks because of Redis: without it, watching is slower and nothing else.

Not promised: delivery, order, a count, or that what was changed can be read already on a place that
shows changes late.
"""

from __future__ import annotations

import os
from contextlib import suppress

from tapstore import abc
from tapstore.abc import Clock
from tapstore.clock import SYSTEM_CLOCK
from tapstore_redis.address import Address
from tapstore_redis.line import Line
from tapstore_redis.listener import Listener
from tapstore_redis.records import Keys
from tapstore_redis.trouble import TroubleError

_RING_SECONDS = 0.5
"""A commit does not wait longer than that for its bell."""

_SULK_SECONDS = 5.0
"""For so long nothing is tried after a failure."""


class Bell(abc.Bell):
    """The bell of one session.

    For one thread at a time; each that waits has its own.
    """

    def __init__(self, address: Address, scope: str, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._line = Line(address, clock)
        self._channel = Keys(scope).changed
        self._clock = clock
        self._listener: Listener | None = None
        self._pid = os.getpid()
        self._retry_at = 0.0

    def ring(self) -> bool:
        """Say that something changed; False if that certainly reached nobody."""
        if self._clock.monotonic() < self._retry_at:
            return False
        try:
            return bool(self._line.call(self._publish, _RING_SECONDS))
        except TroubleError:
            self._fail()
            return False

    def _publish(self, client: object) -> int:
        count: int = client.publish(self._channel, b"")  # type: ignore[attr-defined]
        return count

    def wait(self, seconds: float) -> bool:
        """Wait for a ring; True if it is time to look again early, False after `seconds`.

        The first call subscribes and returns True at once, for what rang before is lost.  Look,
        then wait, then look: what changes after a look is not missed while Redis is there.
        """
        end = self._clock.monotonic() + seconds
        if self._pid != os.getpid():
            self._pid, self._listener = os.getpid(), None
        if self._clock.monotonic() >= self._retry_at:
            try:
                if self._listener is None:
                    self._listener = Listener(self._line, self._channel)
                    return True
                if self._listener.wait(seconds):
                    # Several changes are one reason to look.
                    self._listener.forget()
                    return True
                return False
            except TroubleError:
                self._hang_up()
                self._fail()
        self._clock.sleep(max(0.0, end - self._clock.monotonic()))
        return False

    def _fail(self) -> None:
        self._retry_at = self._clock.monotonic() + _SULK_SECONDS

    def _hang_up(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def close(self) -> None:
        """Close the connections.  Safe to repeat."""
        with suppress(TroubleError):
            self._hang_up()
        self._line.close()

    def __repr__(self) -> str:
        return f"Bell({self._line.url!r}, {self._channel!r})"
