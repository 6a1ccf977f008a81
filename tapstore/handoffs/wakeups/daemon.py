"""The files by which the daemon of a swarm is found and stopped, as the original scripts do it.

`.swarmforge/daemon/handoffd.pid` names the process, and a file `stop` beside it asks it to end.
Several may run: the first one has the pid file, and each ends when it is asked to.

Not promised: that a process which a pid file names is still a daemon.  So nothing is killed here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tapstore.errors import WaitTimeoutError
from tapstore.handoffs.swarm.finding import FOLDER

STOP_SECONDS = 5.0
POLL_SECONDS = 0.1
_ALL_SEE_IT_SECONDS = 3 * POLL_SECONDS


class DaemonFiles:
    """Those of one project."""

    def __init__(self, project: str | os.PathLike[str]) -> None:
        self._folder = Path(project) / FOLDER / "daemon"
        self._pid = self._folder / "handoffd.pid"
        self._stop = self._folder / "stop"
        self._lock = self._folder / "tapstore.lock"

    @contextmanager
    def running(self) -> Iterator[Callable[[], None]]:
        """While it lasts, this process is a daemon of the project.

        Yields what to call now and then: it takes the place of another daemon that has ended.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        if self.pid() is None:
            # What an earlier one left must not stop this one.
            self._stop.unlink(missing_ok=True)
        with open(self._lock, "ab") as stream:

            def stay() -> None:
                if self.pid() is None and not self.is_asked_to_stop:
                    self._pid.write_text(f"{os.getpid()}\n")
                _lock(stream, exclusive=True)

            stay()
            try:
                yield stay
            finally:
                if self.pid() == os.getpid():
                    self._pid.unlink(missing_ok=True)

    @property
    def is_asked_to_stop(self) -> bool:
        return self._stop.exists()

    def pid(self) -> int | None:
        """The process that the pid file names; None if there is none, or it has ended."""
        try:
            text = self._pid.read_text("ascii").strip()
        except (FileNotFoundError, UnicodeDecodeError):
            return None
        if not text.isdecimal() or len(text) > 10 or int(text) == 0:
            return None
        return int(text) if _is_running(int(text)) else None

    def stop(self, *, timeout_seconds: float = STOP_SECONDS) -> bool:
        """Ask all daemons of the project to end, and wait for the one that has the pid file.

        False if there was none.  Raises `WaitTimeoutError` if it goes on.
        """
        pid = self.pid()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._stop.touch()
        try:
            deadline = time.monotonic() + timeout_seconds
            while pid is not None and self.pid() == pid:
                if time.monotonic() > deadline:
                    raise WaitTimeoutError(
                        f"process {pid}, which {self._pid} names, has not ended within "
                        f"{timeout_seconds:g} s: if it is the daemon, end it with `kill {pid}`; "
                        "if not, remove that file"
                    )
                time.sleep(POLL_SECONDS)
            time.sleep(_ALL_SEE_IT_SECONDS)
        finally:
            self._stop.unlink(missing_ok=True)
        if pid is None or self.pid() is None:
            self._pid.unlink(missing_ok=True)
        return pid is not None

    def is_watched(self) -> bool:
        """Whether a daemon of ours, which sees new mail by itself, is running."""
        try:
            with open(self._lock, "rb") as stream:
                # Shared: two who look at once must not take each other for a daemon.
                return not _lock(stream, exclusive=False)
        except OSError:
            return False


def _lock(stream: IO[bytes], *, exclusive: bool) -> bool:
    """False if others have it.  Where files can't be locked nobody has: then senders wake, too,
    and to be woken twice is no harm."""
    try:
        import fcntl

        fcntl.flock(stream, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return True
    return True


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OSError):
        return True
    return True
