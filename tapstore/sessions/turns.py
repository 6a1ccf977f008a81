"""The processes of one host take turns at a session, instead of undoing each other's work.

Whoever has its turn commits to a state that nobody else on this host is about to change.  The
kernel ends the turn of a process that dies; what is locked is a file that is there anyway, and
its time of change tells when the last turn began.

Nothing rests on it.  A turn that does not come in time is taken all the same; other hosts know
nothing of it; where files cannot be locked (Windows, some mounts) it is everybody's turn always.
"""

from __future__ import annotations

import os
import random
from contextlib import AbstractContextManager

from tapstore.abc import Clock

STUCK_SECONDS = 0.5
"""Many commits long; whose turn has not ended by then was stopped, most likely."""

WAIT_SECONDS = 10.0
"""For others that are not stopped, but have always been faster."""

PAUSE_SECONDS = (0.004, 0.008)
"""Between two looks, from and to.  It does not grow: newcomers must not look more often than who
has waited for long.  Shorter ones cost the one at work more than they gain for who waits."""


class Turns:
    """The turns at one file (None: there is none).  For one thread at a time."""

    def __init__(self, path: str | None, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._given_up_on = 0
        """When a turn began that we have waited for in vain."""
        self._fd: int | None = None

    def taken(self) -> AbstractContextManager[object]:
        """Wait for our turn; it ends with the block."""
        return self

    def __enter__(self) -> None:
        fd = self._open()
        if fd is None:
            return
        try:
            if self._wait(fd):
                _show(fd)
        except BaseException:
            _unlock(fd)
            raise
        self._fd = fd

    def __exit__(self, *exc: object) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            _unlock(fd)

    def _open(self) -> int | None:
        if self._path is None:
            return None
        try:
            return os.open(self._path, os.O_RDONLY)
        except OSError:
            # If that is a fault, the commit meets it, too, and can say what it was about.
            return None

    def _wait(self, fd: int) -> bool:
        """Whether our turn came; else somebody keeps it."""
        started = since = self._clock.monotonic()
        turn = 0
        while not _lock(fd):
            now = self._clock.monotonic()
            began = os.fstat(fd).st_mtime_ns
            if began != turn:
                turn, since = began, now
            stuck = now - since >= STUCK_SECONDS
            if stuck or turn == self._given_up_on or now - started >= WAIT_SECONDS:
                # Waiting once for the same turn is enough.
                self._given_up_on = turn
                return False
            self._clock.sleep(random.uniform(*PAUSE_SECONDS))
        return True


def _lock(fd: int) -> bool:
    """Whether it is our turn; if nothing can tell, it is."""
    try:
        import fcntl

        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return True
    return True


def _show(fd: int) -> None:
    """Let those who wait see that it is another's turn."""
    try:
        os.utime(fd)
    except OSError:
        # Not our file, or a mount for readers.  To who waits for us and our like for very long,
        # it looks like a single turn.
        pass


def _unlock(fd: int) -> None:
    try:
        import fcntl

        # Closing is not enough: a child that was forked meanwhile holds the same open file.
        fcntl.flock(fd, fcntl.LOCK_UN)
    except (ImportError, OSError):
        pass
    finally:
        os.close(fd)
