"""The clocks of this host, behind `abc.Clock`, and the one written form of a time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache, partial

from tapstore.abc import Clock


class SystemClock(Clock):
    """The real clocks."""

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return _monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


# Linux stops `time.monotonic` while the host is suspended: who wakes up must not believe that its
# lease still has time.
_monotonic: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    if hasattr(time, "CLOCK_BOOTTIME")
    else time.monotonic
)


SYSTEM_CLOCK = SystemClock()


def format_time(epoch_seconds: float) -> str:
    """`2024-04-15T10:30:00Z`: seed agents parse it with a fixed pattern, so whole seconds."""
    return _format_second(math.floor(epoch_seconds))


@lru_cache(maxsize=4)
def _format_second(epoch_seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch_seconds))


def format_time_ms(epoch_seconds: float) -> str:
    """`2024-04-15T10:30:00.123Z`, for our own records."""
    milliseconds = int(epoch_seconds * 1000)
    return f"{format_time(milliseconds // 1000)[:-1]}.{milliseconds % 1000:03d}Z"


def parse_time(text: str) -> float:
    """Seconds since the epoch of an ISO 8601 time; without a zone it is UTC.

    Also takes the forms that a YAML 1.1 round trip makes of it
    (`2024-04-15 10:30:00+00:00`).  Raises ValueError.
    """
    parsed = datetime.fromisoformat(text)
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
