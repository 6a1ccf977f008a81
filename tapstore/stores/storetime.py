"""The clock of a store, seen on what was just written and carried on by the monotonic clock.

Not promised: better than the store's own ticks and the time that a write takes.
"""

from __future__ import annotations

from collections.abc import Callable

from tapstore.abc import Clock

_SECONDS = 60.0
"""For how long a look is carried on.  A store whose clock is set back is noticed after it."""


class StoreTime:
    """`probe` writes something and returns the time that the store gave it."""

    def __init__(self, clock: Clock, probe: Callable[[], float]) -> None:
        self._clock = clock
        self._probe = probe
        self._seen: tuple[float, float] | None = None
        """The store's time less our monotonic clock; until when that may be used."""

    def now(self) -> float:
        if self._seen is None or self._clock.monotonic() > self._seen[1]:
            self.see(self._probe())
            assert self._seen is not None
        return self._seen[0] + self._clock.monotonic()

    def see(self, modified: float) -> None:
        """Learn from the time that the store gave to a write that just ended."""
        now = self._clock.monotonic()
        offset = modified - now
        # An fsync or a pause between the write and this line only makes the offset smaller.
        if self._seen is None or offset > self._seen[0] or now > self._seen[1]:
            self._seen = (offset, now + _SECONDS)
