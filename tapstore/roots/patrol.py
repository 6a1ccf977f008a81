"""Waits for work, in one session or in all below a root, and takes it piece by piece.

A session that fails is reported and looked at again later; it does not keep the others waiting.
For ever is for ever: a patrol ends only when it was idle for its timeout, or is told to stop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from tapstore.abc import Clock
from tapstore.errors import (
    OutcomeUnknownError,
    SessionNotFoundError,
    StoreError,
    TapstoreError,
    WaitTimeoutError,
)
from tapstore.sessions.session import Session
from tapstore.tasks.work import Work

MIN_PAUSE_SECONDS = 0.02
MAX_PAUSE_SECONDS = 1.0
"""Between two rounds of all sessions; longer only where a round itself takes long."""

MAX_ROUND_PAUSE_SECONDS = 15.0
MIN_RETRY_SECONDS = 1.0
MAX_RETRY_SECONDS = 60.0

_STOP_LATENCY_SECONDS = 0.5

W = TypeVar("W")

Seek = Callable[[Session], Work | None]
Trouble = Callable[[str, TapstoreError, float], None]
"""Told of a place that failed, why, and after how many seconds it is looked at again."""


class Sessions(Protocol):
    """What a patrol needs of a root."""

    url: str
    clock: Clock

    def tasks(self) -> Iterator[str]: ...
    def deliver(self, key: str) -> None: ...
    def places(self) -> Iterator[str]: ...
    def open(self, place: str) -> Session: ...
    def forget(self, place: str) -> None: ...


def _never() -> bool:
    return False


def in_session(
    session: Session,
    seek: Callable[[Session], W | None],
    *,
    idle: float | None = None,
    stop: Callable[[], bool] = _never,
    trouble: Trouble,
) -> Iterator[W]:
    """Yield work of one session as it comes up.

    Ends when there was none for `idle` seconds (None: never), or `stop` says so.  What the place
    fails at for a while is reported and tried again; any other error is raised.
    """
    retry = MIN_RETRY_SECONDS
    waiter = session.waiter(idle)
    try:
        while not stop():
            try:
                work = seek(session)
                retry = MIN_RETRY_SECONDS
            except (StoreError, OutcomeUnknownError, WaitTimeoutError) as exc:
                trouble(session.url, exc, retry)
                _sleep(session.clock, retry, stop)
                retry = min(retry * 2, MAX_RETRY_SECONDS)
                work = None
            if work is not None:
                waiter.close()
                yield work
                waiter = session.waiter(idle)
            elif not waiter.wait():
                return
    finally:
        waiter.close()


@dataclass(slots=True)
class _Backoff:
    until: float
    pause: float


def in_root(
    root: Sessions,
    seek: Seek,
    *,
    idle: float | None = None,
    stop: Callable[[], bool] = _never,
    trouble: Trouble,
) -> Iterator[Work]:
    """Yield work of all sessions below a root, also of those made later, in turn.

    As `in_session`; but no error of one session ends it.
    """
    clock = root.clock
    failing: dict[str, _Backoff] = {}

    def attempt(place: str, action: Callable[[], Work | None]) -> Work | None:
        backoff = failing.get(place)
        if backoff is not None and clock.monotonic() < backoff.until:
            return None
        try:
            found = action()
        except TapstoreError as exc:
            pause = MIN_RETRY_SECONDS if backoff is None else backoff.pause * 2
            pause = min(pause, MAX_RETRY_SECONDS)
            failing[place] = _Backoff(clock.monotonic() + pause, pause)
            trouble(place, exc, pause)
            return None
        failing.pop(place, None)
        return found

    def look(place: str) -> Work | None:
        try:
            return seek(root.open(place))
        except SessionNotFoundError:
            root.forget(place)  # deleted, and perhaps made again: then it is found again
            return None

    places: list[str] = []

    def gather() -> None:
        places[:] = root.places()

    def deliver() -> None:
        # Each by itself: one that can't be delivered yet must not keep those behind it waiting.
        for key in list(root.tasks()):
            attempt(f"{root.url}/{key}", partial(root.deliver, key))

    last_work = clock.monotonic()
    pause = MIN_PAUSE_SECONDS
    while not stop():
        started = clock.monotonic()
        worked = False
        attempt(f"{root.url}/inbox", deliver)
        attempt(root.url, gather)
        for place in places:
            if stop():
                return
            work = attempt(f"{root.url}/{place}", partial(look, place))
            if work is not None:
                yield work
                worked, last_work = True, clock.monotonic()
        now = clock.monotonic()
        if worked:
            pause = MIN_PAUSE_SECONDS
            continue
        if idle is not None and now - last_work >= idle:
            return
        # At most a quarter of the time goes into looking, however many sessions there are.
        rest = min(max(pause, 3 * (now - started)), MAX_ROUND_PAUSE_SECONDS)
        if idle is not None:
            rest = min(rest, max(0.0, idle - (now - last_work)))
        _sleep(clock, rest, stop)
        pause = min(pause * 1.5, MAX_PAUSE_SECONDS)


def _sleep(clock: Clock, seconds: float, stop: Callable[[], bool]) -> None:
    """Sleep in steps, so that a signal is heeded soon."""
    end = clock.monotonic() + seconds
    while not stop() and (left := end - clock.monotonic()) > 0:
        clock.sleep(min(left, _STOP_LATENCY_SECONDS))
