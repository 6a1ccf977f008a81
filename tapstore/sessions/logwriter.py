"""Logs committed records behind the commits, off their callers' path.

Nothing is lost if it never runs: a record stays in the Tapfile until a later commit knows that it
is logged, and then whoever commits next logs it.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress

from tapstore.errors import FormatError, OutcomeUnknownError, StoreError
from tapstore.segments import Segments

DELAY_SECONDS = 0.2
"""How long records are waited for that go into the same object."""

_PAUSE_SECONDS = 5.0
"""After a refusal of the place."""


class LogWriter:
    """Writes what is noted; its thread begins with the first record and ends with the process."""

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
            if self._thread is None and records:
                # None are left, or the interpreter is about to end.
                with suppress(RuntimeError):
                    self._thread = self._start()
            self._wake.notify()

    def _start(self) -> threading.Thread:
        thread = threading.Thread(target=self._run, name="tapstore-log", daemon=True)
        thread.start()
        return thread

    def flush(self) -> None:
        """Log everything noted, now.  Raises what the store and `Segments.append` raise."""
        self._notice_fork()
        # One at a time: a second one would only find what the first has written.
        with self._writing:
            while (due := self._due()) is not None:
                self._through = max(self._through, self._segments.append(*due))

    def _due(self) -> tuple[int, tuple[bytes, ...]] | None:
        with self._wake:
            first = max(self._first, self._through + 1)
            records = self._records[first - self._first :]
            return (first, records) if records else None

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._first + len(self._records) > self._through + 1)
            time.sleep(DELAY_SECONDS)  # more of them come meanwhile
            try:
                self.flush()
            except FormatError as exc:
                self._fault = exc
                return
            except (StoreError, OutcomeUnknownError):
                time.sleep(_PAUSE_SECONDS)

    def close(self) -> None:
        """Log what is left, if the place takes it."""
        with suppress(StoreError, OutcomeUnknownError, FormatError):
            self.flush()
