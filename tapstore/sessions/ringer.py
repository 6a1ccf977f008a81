"""Rings the bell of a session after commits, off their callers' path.

A ring is a hint: it may be lost, and several commits may ring once.  Without one, those who wait
look by themselves.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress

from tapstore.abc import Bell
from tapstore.errors import TapstoreError

_LAST_RING_SECONDS = 2.0


class Ringer:
    """Its thread begins with the first ring and ends with `close`, or with the process."""

    def __init__(self, open_bell: Callable[[], Bell | None]) -> None:
        """`open_bell`: None if there is no bell."""
        self._open_bell = open_bell
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._due = threading.Event()
        self._thread: threading.Thread | None = None
        self._rung = True
        self._closed = False

    def ring(self) -> None:
        """Have the bell rung; returns at once."""
        if self._pid != os.getpid():
            self._begin()  # the thread is the parent's
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._run, name="tapstore-bell", daemon=True)
            # None are left, or the interpreter is about to end.
            with suppress(RuntimeError):
                self._thread.start()
        self._rung = False
        self._due.set()

    def _run(self) -> None:
        # A service that can't be reached has no bell either.
        with suppress(TapstoreError):
            bell = self._open_bell()
            if bell is None:
                return
            while not (self._closed and self._rung):
                self._due.wait()
                self._due.clear()
                if not self._rung:
                    self._rung = True  # before it rings: what is committed meanwhile rings again
                    bell.ring()
            bell.close()

    def close(self) -> None:
        """Let the last ring go out, for two seconds at most, and end the thread."""
        self._closed = True
        self._due.set()
        if self._thread is not None and self._thread.is_alive() and self._pid == os.getpid():
            # A program that commits and ends would take its ring with it.
            self._thread.join(_LAST_RING_SECONDS)
