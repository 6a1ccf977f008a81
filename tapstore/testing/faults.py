"""A store that fails on command: lost replies, refusals, crashes, at the n-th call that matches.

    FaultyStore(store, Fault("put", "log/*", nth=3, after=lost))

makes the third write below `log/` happen and its reply get lost.  Only calls are counted, not
the requests that a store makes of one; a listing fails when it is begun.  `tapstore.testing.stale`
has listings that are out of date.
"""

from __future__ import annotations

import errno as codes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import BinaryIO

from tapstore.abc import Clock, Store
from tapstore.clock import SYSTEM_CLOCK
from tapstore.errors import OutcomeUnknownError, StoreError
from tapstore.stores.wrapper import WrapperStore
from tapstore.types import CREATE, GetResult, ObjectInfo, PutMode, PutResult, Update

Action = Callable[[str], object]
"""Called with the key.  What it raises is what the caller of the store gets."""


class SimulatedCrash(BaseException):
    """The process ends here, as far as the code under test can tell."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens at calls of `verb` (a method's name, or `*`) whose key matches `key`.

    It happens at the calls `nth`, `nth + 1`, … (`times` of them), counted from 1.  `before` runs
    instead of the call if it raises; `after` runs when the call has succeeded.
    """

    verb: str
    key: str = "*"
    nth: int = 1
    times: int = 1
    before: Action | None = None
    after: Action | None = None


def lost(key: str) -> None:
    """As `before`: the request was lost.  As `after`: the reply was.  The caller can't tell."""
    raise OutcomeUnknownError(f"connection lost during a request for {key!r}")


def refuse(errno: int, *, retry_after_seconds: float | None = None) -> Action:
    """As `before`: the place refuses, and nothing has happened (`ENOSPC`, `EIO`, …)."""

    def action(key: str) -> None:
        error = StoreError(f"injected for {key!r}: {os.strerror(errno)}")
        error.errno = errno
        error.retry_after_seconds = retry_after_seconds
        raise error

    return action


def throttle(retry_after_seconds: float | None = None) -> Action:
    """As `before`: the place says "slow down", and perhaps for how long."""
    return refuse(codes.EAGAIN, retry_after_seconds=retry_after_seconds)


def slow(seconds: float, clock: Clock = SYSTEM_CLOCK) -> Action:
    """As `before` or `after`: the call takes so much longer, by this clock."""

    def action(key: str) -> None:
        del key
        clock.sleep(seconds)

    return action


def crash(key: str) -> None:
    """The call does not return; what runs in this process goes on with the test."""
    if threading.current_thread().name.startswith("tapstore"):
        # One of our own in the background, of which the test is to hear nothing.
        raise StoreError(f"crashed at {key!r}")
    raise SimulatedCrash(f"crashed at {key!r}")


def kill(key: str) -> None:
    """This process ends at once, without any clean-up."""
    del key
    os.kill(os.getpid(), signal.SIGKILL)


def crash_at(step: int) -> Fault:
    """The process crashes at its call number `step`, and does nothing more from then on.

    With 1, 2, 3, … in turn until nothing crashes any more, each step has been the last one.
    """
    return Fault("*", nth=step, times=sys.maxsize, before=crash)


class FaultyStore(WrapperStore):
    """Passes calls on to `inner`, with `faults`."""

    def __init__(self, inner: Store, *faults: Fault) -> None:
        super().__init__(inner)
        self._faults = faults
        self._mutex = threading.Lock()
        self._seen = [0] * len(faults)

    @contextmanager
    def _call(self, verb: str, key: str) -> Iterator[None]:
        due = []
        with self._mutex:
            for index, fault in enumerate(self._faults):
                if fault.verb in ("*", verb) and fnmatchcase(key, fault.key):
                    self._seen[index] += 1
                    if fault.nth <= self._seen[index] < fault.nth + fault.times:
                        due.append(fault)
        for fault in due:
            if fault.before is not None:
                fault.before(key)
        yield
        for fault in due:
            if fault.after is not None:
                fault.after(key)

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> GetResult:
        with self._call("get", key):
            return self.inner.get(key, start=start, end=end)

    def get_if_changed(self, key: str, version: str) -> GetResult | None:
        with self._call("get", key):
            return self.inner.get_if_changed(key, version)

    def head(self, key: str) -> ObjectInfo:
        with self._call("head", key):
            return self.inner.head(key)

    def put(self, key: str, data: bytes, mode: PutMode | Update = CREATE) -> PutResult:
        with self._call("put", key):
            return self.inner.put(key, data, mode)

    def delete(self, key: str, *, version: str | None = None) -> None:
        with self._call("delete", key):
            self.inner.delete(key, version=version)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        with self._call("list", prefix):
            return self.inner.list(prefix, start_after=start_after)

    def children(self, prefix: str = "") -> Iterator[str]:
        with self._call("children", prefix):
            return self.inner.children(prefix)

    def upload(self, key: str, source: BinaryIO, mode: PutMode = CREATE) -> PutResult:
        with self._call("upload", key):
            return self.inner.upload(key, source, mode)

    def open(self, key: str, *, start: int = 0) -> AbstractContextManager[BinaryIO]:
        with self._call("open", key):
            return self.inner.open(key, start=start)

    def now(self) -> float:
        with self._call("now", ""):
            return self.inner.now()
