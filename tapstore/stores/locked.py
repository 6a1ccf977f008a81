"""Conditions imitated under a lock, on a place that has none: a weaker guarantee, taken knowingly.

A conditional write takes a lease for its key, looks, and writes without a condition.  As long as
everybody does so, and nobody who holds the lease is stopped for longer than its ttl between look
and write, it is what the contract says.

Who *is* stopped for so long may overwrite what others wrote meanwhile: that is what the place's
own condition would have refused, and nothing here can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO

from tapstore import failures
from tapstore.abc import Clock, LockService, Store
from tapstore.clock import SYSTEM_CLOCK
from tapstore.errors import LeaseUnavailableError, NotFoundError, StoreError
from tapstore.stores.reading import read_up_to
from tapstore.stores.wrapper import WrapperStore
from tapstore.types import (
    CREATE,
    OVERWRITE,
    Capabilities,
    GetResult,
    Lease,
    Owner,
    PutMode,
    PutResult,
    Update,
)

TTL_SECONDS = 30.0

WAIT_SECONDS = 60.0

_CREATE_LIMIT = 4 << 20
"""Bytes that are created exclusively from a stream."""

_READS = 20
"""How often an object is read that is replaced meanwhile."""

_LEFT_SECONDS = TTL_SECONDS / 2
"""What must be left of the lease when the write is sent: longer than a request takes."""


class LockedStore(WrapperStore):
    """`inner`, with create, update and conditional delete under leases of `locks`."""

    def __init__(
        self, inner: Store, locks: LockService, owner: Owner, *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        super().__init__(inner)
        self._locks = locks
        self._owner = owner
        self._clock = clock

    @property
    def capabilities(self) -> Capabilities:  # type: ignore[override]
        return Capabilities(create=True, update=True, conditional_delete=True, files=False)

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> GetResult:
        return self._whole(key, lambda: self.inner.get(key, start=start, end=end))

    def get_if_changed(self, key: str, version: str) -> GetResult | None:
        if self.inner.head(key).version == version:
            return None
        return self.get(key)

    def _whole(self, key: str, read: Callable[[], GetResult]) -> GetResult:
        # Such places also answer with the length of the old bytes and a part of the new ones.
        for _ in range(_READS):
            got = read()
            if self.inner.head(key).version == got.info.version:
                return got
        raise StoreError(
            f"{key!r} in {self.url} was replaced during each of {_READS} reads; try again"
        )

    def put(self, key: str, data: bytes, mode: PutMode | Update = CREATE) -> PutResult:
        if failures.check_mode(mode) is OVERWRITE:
            return self.inner.put(key, data, OVERWRITE)
        with self._held(key) as lease:
            found = self._version(key)
            if isinstance(mode, Update):
                self._compare(key, mode.version, found)
            elif found is not None:
                raise failures.already_exists(self.url, key)
            self._check_left(key, lease)
            return self.inner.put(key, data, OVERWRITE)

    def upload(self, key: str, source: BinaryIO, mode: PutMode = CREATE) -> PutResult:
        if mode is not CREATE:
            return self.inner.upload(key, source, mode)
        data = read_up_to(_CREATE_LIMIT + 1, source)
        if len(data) > _CREATE_LIMIT:
            raise failures.unsupported(
                self.url,
                "create",
                f"{key!r} is larger than {_CREATE_LIMIT} bytes, which may take longer than the "
                "lock lasts; write it under a name of its own with OVERWRITE",
            )
        return self.put(key, data, CREATE)

    def delete(self, key: str, *, version: str | None = None) -> None:
        if version is None:
            self.inner.delete(key)
            return
        with self._held(key) as lease:
            found = self._version(key)
            if found is not None:
                self._compare(key, version, found)
                self._check_left(key, lease)
                self.inner.delete(key)

    def _version(self, key: str) -> str | None:
        try:
            return self.inner.head(key).version
        except NotFoundError:
            return None

    def _compare(self, key: str, expected: str, found: str | None) -> None:
        if found != expected:
            raise failures.conflict(self.url, key, expected=expected, found=found)

    def _check_left(self, key: str, lease: Lease) -> None:
        if self._clock.monotonic() > lease.expires - _LEFT_SECONDS:
            raise StoreError(
                f"the lock for {key!r} in {self.url} was nearly over before the write could be "
                "sent; nothing was written, try again"
            )

    @contextmanager
    def _held(self, key: str) -> Iterator[Lease]:
        try:
            lease = self._locks.acquire(
                f"write {key}", self._owner, ttl=TTL_SECONDS, wait=WAIT_SECONDS, reason="a write"
            )
        except LeaseUnavailableError as exc:
            raise StoreError(f"cannot write {key!r} in {self.url}: {exc}") from exc
        try:
            yield lease
        finally:
            self._locks.release(lease)

    def close(self) -> None:
        self._locks.close()
        self.inner.close()
