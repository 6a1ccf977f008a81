"""Logs committed records behind the commits, off their callers' path.

Nothing is lost if it never runs: a record stays in the Tapfile until a later commit knows that it
is logged, and then whoever commits next logs it.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress

from tapstore.errors import FormatError, OutcomeUnknownError, StoreError
from tapstore.segments import Segments

DELAY_SECONDS = 1.0
"""How long records are waited for that go into the same object."""

ENOUGH = 16
"""So many are not kept waiting."""

IDLE_SECONDS = 10.0
"""After so long with nothing to log the thread ends, so that sessions that nobody closes don't
pile up; the next commit starts another."""

_PAUSE_SECONDS = 5.0
"""After a refusal of the place."""


class LogWriter:
    """Writes what is noted, once it is told to begin, until `close`."""

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self._through = 0
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._wake = threading.Condition()
        self._writing = threading.Lock()
        self._first = 0
        self._records: tuple[bytes, ...] = ()
        self._ended: threading.Event | None = None
        self._thread: threading.Thread | None = None
        self._fault: FormatError | None = None

    def _notice_fork(self) -> None:
        # The thread is the parent's, which may have held a lock when it forked.
        if self._pid != os.getpid():
            self._begin()

    @property
    def through(self) -> int:
        """The last record that is known to be logged."""
        return self._through

    def check(self) -> None:
        """Raise what showed that the Tapfile does not go with the log."""
        if self._fault is not None:
            raise self._fault

    def note(self, first: int, records: tuple[bytes, ...]) -> None:
        """Remember the committed records from number `first` on; all before it are logged."""
        self._notice_fork()
        with self._wake:
            self._through = max(self._through, first - 1)
            if first + len(records) <= self._first + len(self._records):
                return
            self._first, self._records = first, records
            if self._ended is not None and self._thread is None:
                # None are left, or the interpreter is about to end.
                with suppress(RuntimeError):
                    self._thread = self._start(self._ended)
            self._wake.notify_all()

    def begin(self) -> None:
        """Write what is noted from now on.  Who only reads leaves it to those who commit."""
        self._notice_fork()
        with self._wake:
            if self._ended is None:
                self._ended = threading.Event()

    def _start(self, ended: threading.Event) -> threading.Thread:
        thread = threading.Thread(target=self._run, args=(ended,), name="tapstore-log", daemon=True)
        thread.start()
        return thread

    def flush(self) -> None:
        """Log everything noted, now.  Raises what the store and `Segments.append` raise."""
        self._notice_fork()
        # One at a time: a second one would only find what the first has written.
        with self._writing:
            while (due := self._due()) is not None:
                through = self._segments.append(*due)
                with self._wake:
                    self._through = max(self._through, through)

    def _waiting(self) -> int:
        return self._first + len(self._records) - 1 - self._through

    def _due(self) -> tuple[int, tuple[bytes, ...]] | None:
        with self._wake:
            first = max(self._first, self._through + 1)
            records = self._records[first - self._first :]
            return (first, records) if records else None

    def _run(self, ended: threading.Event) -> None:
        while True:
            with self._wake:
                if not self._wake.wait_for(
                    lambda: ended.is_set() or self._waiting() > 0, IDLE_SECONDS
                ):
                    self._thread = None
                    return
                self._wake.wait_for(
                    lambda: ended.is_set() or self._waiting() >= ENOUGH, DELAY_SECONDS
                )
            if ended.is_set():
                return
            try:
                self.flush()
            except FormatError as exc:
                self._fault = exc
                return
            except (StoreError, OutcomeUnknownError):
                ended.wait(_PAUSE_SECONDS)

    def close(self) -> None:
        """Log what is left, if the place takes it, and end the thread."""
        self._notice_fork()
        with self._wake:
            ended, self._ended, self._thread = self._ended, None, None
            if ended is None:
                return
            ended.set()
            self._wake.notify_all()
        with suppress(StoreError, OutcomeUnknownError):
            self.flush()
