"""A clock that a test moves: time passes when somebody sleeps, or when the test says so.

Not for several threads that sleep at once: each would move the time of all.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

from tapstore.abc import Clock


class ManualClock(Clock):
    """One host's clocks.  `other_host` gives those of another one, on the same time line."""

    def __init__(self, *, wall: float = 1_700_000_000.0, monotonic: float = 1_000.0) -> None:
        self._line = _Line()
        self._wall = wall
        self._monotonic = monotonic

    def other_host(self, *, ahead: float = 0.0) -> ManualClock:
        """Clocks that move along; the wall clock is `ahead` seconds wrong."""
        other = ManualClock(wall=self._wall + ahead, monotonic=self._monotonic * 7)
        other._line = self._line
        return other

    def time(self) -> float:
        return self._wall + self._line.now

    def monotonic(self) -> float:
        return self._monotonic + self._line.now

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Let time pass, and happen what falls into it."""
        self._line.advance_to(self._line.now + seconds)

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        """Have `action` called when so much time has passed."""
        self._line.plan(self._line.now + seconds, action)


class _Line:
    def __init__(self) -> None:
        self.now = 0.0
        self._planned: list[tuple[float, int, Callable[[], object]]] = []
        self._order = count()

    def plan(self, at: float, action: Callable[[], object]) -> None:
        heapq.heappush(self._planned, (at, next(self._order), action))

    def advance_to(self, end: float) -> None:
        while self._planned and self._planned[0][0] <= end:
            at, _, action = heapq.heappop(self._planned)
            self.now = max(self.now, at)
            action()
        self.now = max(self.now, end)
