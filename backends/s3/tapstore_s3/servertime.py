"""The clock of a server, learnt from the Date headers of its replies.

A Date of `d` in a reply to a request that was sent at `s` and answered at `r` (of our monotonic
clock) says that the server's clock showed at least `d` at `r`, and less than `d + 1` at `s`.
Many replies narrow that down.  Given out is the earliest time that it can be: what is judged by
age is never taken for older than it is.

Not promised: better than a second and the way there.  A server whose clock is set is noticed
when a reply contradicts what was known, at the latest after `_SECONDS`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tapstore.abc import Clock

_SECONDS = 120.0
"""For how long a bound is carried on; clocks drift apart by some microseconds a second."""


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The server's time less our monotonic clock lies in `earliest … latest`."""

    since: float
    earliest: float
    latest: float


class ServerTime:
    """Threads may call it at once: of two replies that come together one may be forgotten."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._before: _Bounds | None = None
        self._bounds: _Bounds | None = None

    def see(self, date: float, *, sent: float, received: float) -> None:
        """Learn from the Date of a reply; `sent` and `received` are of our monotonic clock."""
        new = _Bounds(received, date - received, date + 1 - sent)
        bounds = self._bounds
        if bounds is None or received > bounds.since + _SECONDS:
            self._before, self._bounds = bounds, new
            return
        both = _meet(bounds, new)
        if both is None:
            self._before = None
        self._bounds = both or new

    def now(self) -> float | None:
        """Seconds since the epoch, None if nothing is known."""
        bounds, before = self._bounds, self._before
        moment = self._clock.monotonic()
        if bounds is None or moment > bounds.since + 2 * _SECONDS:
            return None
        if before is not None and moment <= before.since + 2 * _SECONDS:
            bounds = _meet(bounds, before) or bounds
        return bounds.earliest + moment


def _meet(one: _Bounds, other: _Bounds) -> _Bounds | None:
    earliest, latest = max(one.earliest, other.earliest), min(one.latest, other.latest)
    return _Bounds(one.since, earliest, latest) if earliest <= latest else None
