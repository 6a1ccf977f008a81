"""The processes of one host take turns at a session, instead of undoing each other's work.

Whoever has its turn commits to a state that nobody else on this host is about to change.  The
kernel ends the turn of a process that dies, and nothing is left behind: what is locked is a file
that is there anyway.

Nothing rests on it.  A turn that does not come in time is taken all the same; other hosts know
nothing of it; where files cannot be locked (Windows, some mounts) it is everybody's turn always.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager

from tapstore.abc import Clock

WAIT_SECONDS = 0.5
"""Many commits long; who has not had its turn by then waits for somebody that was stopped."""

PAUSE_SECONDS = (0.003, 0.006)
"""Between two looks, from and to.  It does not grow: newcomers must not look more often than who
has waited for long.  Shorter ones cost the one at work more than they gain for who waits."""


class Turns:
    """The turns at one file (None: there is none).  For one thread at a time."""

    def __init__(self, path: str | None, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._patience_seconds = WAIT_SECONDS

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Wait for our turn; it ends with the block."""
        fd = self._open()
        if fd is None:
            yield
            return
        try:
            self._wait(fd)
            yield
        finally:
            _unlock(fd)

    def _open(self) -> int | None:
        if self._path is None:
            return None
        try:
            return os.open(self._path, os.O_RDONLY)
        except OSError:
            # If that is a fault, the commit meets it, too, and can say what it was about.
            return None

    def _wait(self, fd: int) -> None:
        started = self._clock.monotonic()
        while not _lock(fd):
            waited = self._clock.monotonic() - started
            if waited >= self._patience_seconds:
                # It was stopped, probably.  Waiting for it once is enough.
                self._patience_seconds = 0.0
                return
            self._clock.sleep(random.uniform(*PAUSE_SECONDS))
        self._patience_seconds = WAIT_SECONDS


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


def _unlock(fd: int) -> None:
    try:
        import fcntl

        # Closing is not enough: a child that was forked meanwhile holds the same open file.
        fcntl.flock(fd, fcntl.LOCK_UN)
    except (ImportError, OSError):
        pass
    finally:
        os.close(fd)
