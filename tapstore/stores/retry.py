"""Repeats what a place refused for a moment, with growing, jittered pauses and a deadline.

Repeated are errors that may pass by themselves: timeouts, broken connections, throttling (a
store says so by a `StoreError` with one of the numbers in `TRANSIENT`, of which `EAGAIN` stands
for "slow down").  A conditional write is repeated only after an error that is known to have
changed nothing; one whose outcome is unknown is for `ReadBackStore`.  Uploads and opened streams
are not repeated: their source may not be there twice.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import BinaryIO, TypeVar

from tapstore import failures
from tapstore.abc import Clock, Store
from tapstore.clock import SYSTEM_CLOCK
from tapstore.errors import OutcomeUnknownError, StoreError, TapstoreError
from tapstore.keys import check_prefix
from tapstore.stores.wrapper import WrapperStore
from tapstore.types import (
    CREATE,
    OVERWRITE,
    GetResult,
    ObjectInfo,
    PutMode,
    PutResult,
    Update,
)

T = TypeVar("T")

TRANSIENT = frozenset(
    (
        errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.ENOLCK, errno.ESTALE, errno.ETIMEDOUT,
        errno.ECONNABORTED, errno.ECONNREFUSED, errno.ECONNRESET, errno.EPIPE,
        errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETRESET, errno.ENETUNREACH,
    )
)  # fmt: skip


class RetryStore(WrapperStore):
    """Full jitter: the n-th pause is drawn from 0 … `min(longest, first * 2**n)` seconds.

    It is longer where the place asks for it, and none ends after the deadline.
    """

    def __init__(
        self,
        inner: Store,
        *,
        deadline_seconds: float = 30.0,
        first_pause_seconds: float = 0.05,
        longest_pause_seconds: float = 5.0,
        clock: Clock = SYSTEM_CLOCK,
        draw: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(inner)
        self._deadline = deadline_seconds
        self._first = first_pause_seconds
        self._longest = longest_pause_seconds
        self._clock = clock
        self._draw = draw

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> GetResult:
        return self._repeat(lambda: self.inner.get(key, start=start, end=end))

    def get_if_changed(self, key: str, version: str) -> GetResult | None:
        return self._repeat(lambda: self.inner.get_if_changed(key, version))

    def head(self, key: str) -> ObjectInfo:
        return self._repeat(lambda: self.inner.head(key))

    def put(self, key: str, data: bytes, mode: PutMode | Update = CREATE) -> PutResult:
        repeatable = mode is OVERWRITE
        return self._repeat(lambda: self.inner.put(key, data, mode), though_unknown=repeatable)

    def delete(self, key: str, *, version: str | None = None) -> None:
        repeatable = version is None
        self._repeat(lambda: self.inner.delete(key, version=version), though_unknown=repeatable)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        check_prefix(prefix)
        return self._resume(
            lambda last: self.inner.list(prefix, start_after=last),
            lambda info: info.key,
            start_after,
        )

    def children(self, prefix: str = "") -> Iterator[str]:
        failures.check_folder(check_prefix(prefix))
        return self._resume(
            lambda last: (name for name in self.inner.children(prefix) if name > last),
            lambda name: name,
            "",
        )

    def open(self, key: str, *, start: int = 0) -> AbstractContextManager[BinaryIO]:
        return self._repeat(lambda: self.inner.open(key, start=start))

    def now(self) -> float:
        return self._repeat(self.inner.now)

    def _repeat(self, action: Callable[[], T], *, though_unknown: bool = False) -> T:
        pauses = self._pauses()
        doubt: OutcomeUnknownError | None = None
        while True:
            try:
                return action()
            except OutcomeUnknownError as exc:
                if not though_unknown or not pauses.take(exc):
                    raise
                doubt = exc
            except StoreError as exc:
                if exc.errno not in TRANSIENT or not pauses.take(exc):
                    if doubt is None:
                        raise
                    # This attempt changed nothing, but an earlier one may have.
                    raise doubt from exc

    def _resume(
        self, begin: Callable[[str], Iterator[T]], name: Callable[[T], str], last: str
    ) -> Iterator[T]:
        """Go through a sorted listing; after an error begin again behind the last item seen."""
        pauses = self._pauses()
        while True:
            try:
                for item in begin(last):
                    yield item
                    last = name(item)
                    pauses = self._pauses()
            except StoreError as exc:
                if exc.errno not in TRANSIENT or not pauses.take(exc):
                    raise
            else:
                return

    def _pauses(self) -> _Pauses:
        return _Pauses(self._clock, self._deadline, self._first, self._longest, self._draw)


class _Pauses:
    """Each `take` is a pause; the deadline counts from the first of them."""

    def __init__(
        self,
        clock: Clock,
        deadline_seconds: float,
        first: float,
        longest: float,
        draw: Callable[[], float],
    ) -> None:
        self._clock = clock
        self._seconds = deadline_seconds
        self._bound = first
        self._longest = longest
        self._draw = draw
        self._deadline: float | None = None

    def take(self, exc: TapstoreError) -> bool:
        """Sleep after `exc`; False at once if that would last until after the deadline."""
        now = self._clock.monotonic()
        if self._deadline is None:
            self._deadline = now + self._seconds
        asked = exc.retry_after_seconds if isinstance(exc, StoreError) else None
        pause = max(self._draw() * self._bound, asked or 0.0)
        if now + pause > self._deadline:
            return False
        self._clock.sleep(pause)
        self._bound = min(self._bound * 2, self._longest)
        return True
