"""A subscription that wakes up who waits, and says so when it may have missed something.

Subscribe, then look, then wait: what changes after the look is a message that is already on its
way.  A connection that breaks raises, so the caller looks again.

Not promised: delivery.  A half-open connection is silent; whoever waits looks again by itself after
a while.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from typing import Any

from redis.exceptions import RedisError

from tapstore.abc import Clock
from tapstore_redis.line import Line
from tapstore_redis.trouble import TroubleError

_MAX_IDLE_SECONDS = 10.0
"""Connections that are silent for longer may be cut by something in between, unnoticed."""


class Listener:
    """One subscription to one channel, over a connection of its own."""

    def __init__(self, line: Line, channel: str) -> None:
        """Return when the server has confirmed it.  Raises `TroubleError`."""
        self.channel = channel
        self._line = line
        self._pid = os.getpid()
        self._pubsub: Any = line.call(self._subscribe, line.timeout_seconds)

    def _subscribe(self, client: Any) -> Any:
        pubsub = client.pubsub()
        try:
            pubsub.subscribe(self.channel)
            if pubsub.get_message(timeout=self._line.timeout_seconds) is None:
                raise TimeoutError(f"no answer to SUBSCRIBE in {self._line.timeout_seconds:g} s")
        except BaseException:
            _close(pubsub)
            raise
        return pubsub

    def wait(self, seconds: float) -> bool:
        """Return True when somebody called, False after `seconds`.  Raises `TroubleError`."""
        # Zero would be taken for "look, but read nothing".
        wait = max(seconds, 0.001)
        return self._line.attempt(lambda: self._pubsub.get_message(timeout=wait)) is not None

    def forget(self) -> None:
        """Drop the calls that are there already.  Raises `TroubleError`."""
        while self._line.attempt(lambda: self._pubsub.get_message(timeout=0)) is not None:
            pass

    def close(self) -> None:
        # In a forked child the socket is the parent's.
        if os.getpid() == self._pid:
            _close(self._pubsub)


def _close(pubsub: Any) -> None:
    with suppress(RedisError, OSError):
        pubsub.close()


class Listeners:
    """Subscriptions for those who wait for leases, kept for the next one."""

    def __init__(self, line: Line, prefix: str, clock: Clock) -> None:
        self._line = line
        self._prefix = prefix
        self._clock = clock
        self._idle: dict[int, list[tuple[Listener, float]]] = {}

    def take(self, waiter: str = "") -> Listener:
        """A listener of one's own; with `waiter`, one that hears what that waiter is told.

        Raises `TroubleError`.
        """
        if waiter:
            return Listener(self._line, self._prefix + waiter)
        return self.take_idle() or Listener(self._line, self._prefix + secrets.token_hex(8))

    def take_idle(self) -> Listener | None:
        """One that an earlier wait has left, if there is one that still works."""
        idle = self._idle.setdefault(os.getpid(), [])
        while True:
            try:
                listener, since = idle.pop()
            except IndexError:
                return None
            try:
                if self._clock.monotonic() - since <= _MAX_IDLE_SECONDS:
                    listener.forget()
                    return listener
            except TroubleError:
                pass
            except BaseException:
                listener.close()
                raise
            listener.close()

    def id_of(self, listener: Listener) -> str:
        return listener.channel.removeprefix(self._prefix)

    def give_back(self, listener: Listener) -> None:
        self._idle.setdefault(os.getpid(), []).append((listener, self._clock.monotonic()))

    def close(self) -> None:
        for listener, _ in self._idle.pop(os.getpid(), []):
            listener.close()
