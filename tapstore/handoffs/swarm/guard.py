"""Keeps two commands from changing the same inbox, or counting, at once.

`flock` on a file that the original scripts pass over: it ends with its process, however that ends.

Not promised: anything against the original scripts, which know nothing of it; nor on mounts
without `flock`.  There, what moves is still taken by one only, since a rename succeeds once.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from tapstore.abc import Clock
from tapstore.errors import LeaseUnavailableError

WAIT_SECONDS = 20.0

_POLL_SECONDS = 0.005
_OPEN = (
    os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
)  # fmt: skip


@contextmanager
def alone(path: str, clock: Clock, *, wait_seconds: float = WAIT_SECONDS) -> Iterator[None]:
    """Hold the lock file at `path`, which stays there.

    Raises `LeaseUnavailableError` if somebody else holds it all the time.
    """
    fd = os.open(path, _OPEN, 0o666)
    try:
        _lock(fd, path, clock, wait_seconds)
        yield
    finally:
        # This also unlocks: nobody else has this open file, unless we were forked meanwhile.
        os.close(fd)


def _lock(fd: int, path: str, clock: Clock, wait_seconds: float) -> None:
    try:
        import fcntl
    except ImportError:
        return
    end = clock.monotonic() + wait_seconds
    pause = _POLL_SECONDS
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as exc:
            if exc.errno not in (errno.EWOULDBLOCK, errno.EACCES, errno.EINTR):
                return
        if clock.monotonic() >= end:
            raise LeaseUnavailableError(
                f"{path} has been locked for {wait_seconds:g} s: another command is at work there, "
                "or was stopped; see who has it open (fuser or lsof), and try again"
            )
        clock.sleep(pause)
        pause = min(2 * pause, 0.1)
