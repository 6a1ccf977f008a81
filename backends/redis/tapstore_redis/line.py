"""Calls a Redis, and insists where a call may be repeated.

What is sent through `insist` is one script, which does all or nothing, and does nothing more when
it is sent again: repeating it *is* reading back what became of an attempt whose answer was lost.

Not promised: an answer.  Each attempt ends by a time-out, and insisting by a deadline.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from redis.exceptions import RedisClusterException, RedisError

from tapstore.abc import Clock
from tapstore_redis.address import Address
from tapstore_redis.clients import Clients
from tapstore_redis.scripts import Script
from tapstore_redis.trouble import TroubleError, understand

_FIRST_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 0.5

T = TypeVar("T")
Argument = str | bytes | int


@dataclass(frozen=True, slots=True)
class Answer:
    """What a script returned, and when it was asked for the last time."""

    value: Any
    asked: float
    """Monotonic."""


class Line:
    """One Redis, as this process reaches it."""

    def __init__(self, address: Address, clock: Clock) -> None:
        self.url = address.url
        self.timeout_seconds = address.timeout_seconds
        self.clients = Clients(address)
        self._clock = clock
        logins = (address.login, address.sentinel_login)
        self._secrets = [each for login in logins for each in (login.username, login.password)]

    def call(self, command: Callable[[Any], T], seconds: float) -> T:
        """Call once, with a client of redis-py.  Raises `TroubleError`."""
        return self.attempt(lambda: command(self.clients.get(seconds)))

    def attempt(self, action: Callable[[], T]) -> T:
        """Do what raises redis-py's exceptions.  Raises `TroubleError` instead."""
        try:
            return action()
        except (RedisError, RedisClusterException, OSError) as exc:
            raise understand(exc, self._secrets) from exc

    def run(self, script: Script, keys: list[str], args: list[Argument], *, seconds: float) -> Any:
        """Run a script once.  Raises `TroubleError`."""
        return self.call(lambda client: script.run(client, keys, args), seconds)

    def insist(
        self,
        script: Script,
        keys: list[str],
        args: list[Argument],
        *,
        what: str,
        seconds: float,
        until: float,
    ) -> Answer:
        """Run a script again and again until it answers, or the monotonic time `until`.

        Past that time it is repeated once if it may have been done.  Raises `StoreError` if it was
        certainly not done, and `OutcomeUnknownError`.
        """
        pause = _FIRST_PAUSE_SECONDS
        sent = False
        attempts = 0
        while True:
            attempts += 1
            asked = self._clock.monotonic()
            try:
                return Answer(self.run(script, keys, args, seconds=seconds), asked)
            except TroubleError as trouble:
                left = until - self._clock.monotonic()
                read_back = trouble.kind.sent and attempts == 1
                if not trouble.kind.again or not (left > 0 or read_back):
                    raise trouble.as_error(self.url, what, sent=sent) from trouble.cause
                sent = sent or trouble.kind.sent
            self.pause(pause, at_most=left if left > 0 else _FIRST_PAUSE_SECONDS)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    def read(self, command: Callable[[Any], T], *, what: str, until: float) -> T:
        """Call what changes nothing, until it answers or the time is over.  Raises `StoreError`."""
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                return self.call(command, self.timeout_seconds)
            except TroubleError as trouble:
                left = until - self._clock.monotonic()
                if not trouble.kind.again or left <= 0:
                    error = trouble.as_error(self.url, what, changes=False)
                    raise error from trouble.cause
            self.pause(pause, at_most=left)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    def pause(self, seconds: float, *, at_most: float = math.inf) -> None:
        """Sleep for about so long, so that many do not come back at once."""
        self._clock.sleep(min(seconds * random.uniform(0.5, 1.0), at_most))

    def close(self) -> None:
        self.clients.close()

    def __repr__(self) -> str:
        return f"Line({self.url!r})"
