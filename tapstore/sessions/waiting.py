"""Waiting for a session to change: adaptive polling that file notifications cut short.

Where the lock service of the session has a bell (Redis), those who commit ring it, and that wakes
whoever waits, on any machine.  Notifications and rings are shortcuts and nothing rests on them:
they do not exist on some mounts, do not tell of other hosts' changes on NFS, and may be lost.
What is waited for is looked at again after at most `MAX_INTERVAL_SECONDS` in any case.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from tapstore.abc import Bell, Clock, Store
from tapstore.clock import SystemClock
from tapstore.stores.local import LocalStore

MIN_INTERVAL_SECONDS = 0.005
MAX_INTERVAL_SECONDS = 1.0

_NOTIFY_FROM_SECONDS = 0.05
"""Shorter waits poll: setting up notifications takes about as long."""


class Waiter:
    """Paces one caller who looks again and again until a deadline."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        timeout: float | None,
        open_bell: Callable[[], Bell | None] | None = None,
    ) -> None:
        """`timeout` in seconds; None: for ever; 0: `wait` is false at once.

        `open_bell` opens a bell that those who commit ring, if there is one.
        """
        self._open_bell = open_bell
        self._bell: Bell | None = None
        self._store = store
        self._clock = clock
        self._deadline = None if timeout is None else clock.monotonic() + timeout
        self._interval = MIN_INTERVAL_SECONDS
        self._changes: Iterator[Any] | None = None
        self._notify = isinstance(store, LocalStore) and isinstance(clock, SystemClock)

    def wait(self) -> bool:
        """Return True when it is time to look again, False when the deadline has passed."""
        pause = self._interval
        if self._deadline is not None:
            left = self._deadline - self._clock.monotonic()
            if left <= 0:
                return False
            pause = min(pause, left)
        self._interval = min(self._interval * 1.5, MAX_INTERVAL_SECONDS)
        if pause >= _NOTIFY_FROM_SECONDS and self._open_bell is not None:
            self._bell, self._open_bell = self._open_bell(), None
        if self._bell is not None:
            self._bell.wait(pause)
        elif not self._notify or pause < _NOTIFY_FROM_SECONDS or not self._wait_for_change(pause):
            self._clock.sleep(pause)
        return True

    def close(self) -> None:
        """Release what the waiting held open."""
        if self._bell is not None:
            self._bell.close()

    def _wait_for_change(self, pause: float) -> bool:
        """Wait for a notification or the pause; False if there are no notifications here."""
        if self._changes is None:
            self._changes = self._subscribe()
            if self._changes is None:
                self._notify = False
                return False
            # Whatever changed before this subscription is seen by the look that follows.
            return True
        if pause < MAX_INTERVAL_SECONDS / 2:
            return False
        try:
            next(self._changes)
        except (StopIteration, OSError, RuntimeError):
            self._notify = False
        return True

    def _subscribe(self) -> Iterator[Any] | None:
        import watchfiles  # 40 ms, and only who waits needs it

        assert isinstance(self._store, LocalStore)
        folders = [
            path
            for name in (".tap", "inbox", "handoffs")
            if os.path.isdir(path := os.path.join(self._store.root, name))
        ]
        if not folders:
            return None
        with suppress(OSError, RuntimeError):  # no inotify, or its limits are reached
            return watchfiles.watch(
                *folders,
                debounce=20,
                step=5,
                rust_timeout=int(MAX_INTERVAL_SECONDS * 1000),
                yield_on_timeout=True,
                watch_filter=None,
            )
        return None
