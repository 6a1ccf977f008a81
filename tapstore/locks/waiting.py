"""How contenders wait: jittered looks that start close together, an end, and what they conclude.

Not promised: any order among those who wait.
"""

from __future__ import annotations

import math
import random

from tapstore.abc import Clock, Store
from tapstore.clock import parse_time

_SLACK_SECONDS = 1.0
"""Ticks of clocks and the time that a write takes, where ages are compared."""


class Patience:
    """One wait, from now on, of `wait` seconds (None: for ever)."""

    def __init__(
        self,
        wait: float | None,
        *,
        first: float,
        longest: float,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        if wait is not None and not (math.isfinite(wait) and wait >= 0):
            raise ValueError(f"wait must be None (for ever) or 0 or more seconds, not {wait!r}")
        self._clock = clock
        self._rng = rng
        self._first = self._next = first
        self._longest = longest
        self._started = clock.monotonic()
        self._end = math.inf if wait is None else self._started + wait

    @property
    def waited(self) -> float:
        """Seconds so far."""
        return self._clock.monotonic() - self._started

    @property
    def left(self) -> float:
        """Seconds until the end; 0 or less when it is over."""
        return self._end - self._clock.monotonic()

    @property
    def over(self) -> bool:
        return self.left <= 0

    def pause(self, at_most: float = math.inf) -> None:
        """Sleep until the next look is due."""
        seconds = self._next * self._rng.uniform(0.5, 1.0)
        self._next = min(self._next * 1.5, self._longest)
        self._clock.sleep(max(0.0, min(seconds, at_most, self.left)))

    def hurry(self) -> None:
        """Something moved: look closely again."""
        self._next = self._first


class Observer:
    """For how long things stayed the same, seen by the monotonic clock of this process.

    It may be asked from several threads; at worst it then sees too short a time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[str, float]] = {}

    def unchanged_for(self, what: str, state: str, *, looked: float) -> float:
        """Seconds for which `what` was seen in `state`, the first time included.

        `looked` is the monotonic time *before* the look that found `state`; the time of a first
        look counts from its end.  A renewal that began before the first look ended is thus never
        older than what is returned.
        """
        seen = self._seen.get(what)
        if seen is None or seen[0] != state:
            self._seen[what] = (state, self._clock.monotonic())
            return 0.0
        return max(0.0, looked - seen[1])

    def forget(self, what: str) -> None:
        self._seen.pop(what, None)


def is_old(*, seen: float, at: str, ttl: float, clock: Clock, store: Store) -> bool:
    """Whether one look is enough to see that a sign of life is older than `ttl`.

    It must be so by the store's clock, in which it was `seen`, *and* by those of the hosts, on one
    of which it was written `at` (empty: nobody knows).
    """
    if not at or clock.time() - parse_time(at) <= ttl + _SLACK_SECONDS:
        return False
    return store.now() - seen > ttl + _SLACK_SECONDS
