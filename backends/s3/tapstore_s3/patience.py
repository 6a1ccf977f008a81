"""Repeats what is safe to repeat inside of one call: parts of uploads, downloads, trials.

Whole calls are repeated by the wrappers of `registry.open_store`; what they cannot repeat (a
stream that was read is gone) is repeated here.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator
from typing import TypeVar

from tapstore.abc import Clock
from tapstore_s3.refusal import Refusal

T = TypeVar("T")

_MAY_PASS = frozenset(
    (errno.EAGAIN, errno.EBUSY, errno.ETIMEDOUT, errno.ECONNREFUSED, errno.ECONNRESET)
)

_FIRST_SECONDS = 0.05
_LONGEST_SECONDS = 5.0


class Patience:
    """`seconds` count from the first failure."""

    def __init__(self, clock: Clock, *, seconds: float = 30.0) -> None:
        self._clock = clock
        self._seconds = seconds

    def repeat(self, action: Callable[[], T]) -> T:
        """Call `action`, which must be safe to repeat, until it succeeds or time is over."""
        pauses = self.pauses()
        while True:
            try:
                return action()
            except Refusal as exc:
                if not may_pass(exc) or not self.pause(pauses, exc):
                    raise

    def pauses(self) -> Iterator[float]:
        """Lengths of pauses, growing and jittered; the end is the deadline."""
        deadline = self._clock.monotonic() + self._seconds
        bound = _FIRST_SECONDS
        while self._clock.monotonic() < deadline:
            yield random.random() * bound
            bound = min(bound * 2, _LONGEST_SECONDS)

    def pause(self, pauses: Iterator[float], refusal: Refusal) -> bool:
        """Wait, at least for as long as the server asked for; False if time is over."""
        seconds = next(pauses, None)
        if seconds is None:
            return False
        self._clock.sleep(max(seconds, min(refusal.retry_after_seconds or 0, self._seconds)))
        return True


def may_pass(refusal: Refusal) -> bool:
    return refusal.errno in _MAY_PASS
