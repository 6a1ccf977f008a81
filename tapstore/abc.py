"""The contracts between tapstore and the places and lock services it runs on.

A backend implements `Store` or `LockService` and passes the conformance suite in
`tapstore.testing`.  The obligations stated here are what the suite checks; what is not stated
here is not promised.  Backends may rely on `keys`, `failures` and `locks.words`, too: what names
are well-formed, and what errors say.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import BinaryIO

from tapstore.errors import UnsupportedOperationError
from tapstore.types import (
    CREATE,
    Capabilities,
    Finding,
    GetResult,
    Holder,
    Lease,
    ObjectInfo,
    Owner,
    PutMode,
    PutResult,
    Update,
)


class Store(ABC):
    """Named bytes in one place, below one prefix.

    Keys are relative, `/`-separated and checked by `keys.check_key`; a bad one raises
    `InvalidKeyError` before anything is touched.  Every write is atomic: a reader sees the old
    bytes or the new ones, whole, never a mixture, a part or an empty file.  A write that
    returned is visible to every later read by anyone.  All methods may be called from any
    thread.  Errors of the place itself come as `StoreError` (with the cause chained and its
    `errno`), and leave what was stored as it was.  A write whose outcome is not known raises
    `OutcomeUnknownError`, never a success or a plain failure.
    """

    url: str
    """Where this is, for people; never holds credentials."""

    capabilities: Capabilities

    @property
    def identity(self) -> str:
        """Tells this place from others with the same `url`; it may name an endpoint.

        Never holds credentials.
        """
        return self.url

    @abstractmethod
    def get(self, key: str, *, start: int = 0, end: int | None = None) -> GetResult:
        """Return the bytes `[start, end)` of the object (all by default).

        A range that reaches past the end is cut there.  Raises `NotFoundError`.
        """

    def get_if_changed(self, key: str, version: str) -> GetResult | None:
        """Return the object, or None if it still has this version; raises `NotFoundError`.

        One cheap request where the place can compare (304 in HTTP).
        """
        got = self.get(key)
        return None if got.info.version == version else got

    @abstractmethod
    def head(self, key: str) -> ObjectInfo:
        """Return what is known of the object.  Raises `NotFoundError`."""

    @abstractmethod
    def put(self, key: str, data: bytes, mode: PutMode | Update = CREATE) -> PutResult:
        """Write the whole object.

        CREATE raises `AlreadyExistsError` if the key is there; of any number of concurrent
        creates exactly one succeeds.  What is reported to be there is as durable as a write
        that returned.  `Update(version)` raises `ConflictError` if the object has
        another version or is gone, and `UnsupportedOperationError` where
        `capabilities.update` is false.  OVERWRITE has no condition and is safe to repeat.
        """

    @abstractmethod
    def delete(self, key: str, *, version: str | None = None) -> None:
        """Remove the object.  A missing one is no error, so this is safe to repeat.

        With `version`, raises `ConflictError` if the object is there with another version, and
        `UnsupportedOperationError` where `capabilities.conditional_delete` is false.
        """

    def drop_empty_folders(self, key: str, *, below: str) -> None:  # noqa: B027 - optional
        """Remove the folders that led to `key` and hold nothing now, those below `below` only.

        Nothing is lost if it does nothing, or is cut off; places without folders have none.
        """

    @abstractmethod
    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects whose key starts with `prefix` and sorts after `start_after`.

        Sorted by the UTF-8 bytes of the key; fetched page by page as it is consumed.  Objects
        written or removed meanwhile may or may not be seen.  On some places (NFS) a listing may
        lag behind what `get` already sees: treat it as a hint.  Unfinished writes never show.
        """

    @abstractmethod
    def children(self, prefix: str = "") -> Iterator[str]:
        """Yield the names directly below `prefix` (`""` or ending in `/`), sorted.

        A name that has keys below it ends in `/`, as in a listing with a delimiter.
        """

    @abstractmethod
    def upload(self, key: str, source: BinaryIO, mode: PutMode = CREATE) -> PutResult:
        """Write an object from a stream of any size with bounded memory.

        The object appears whole when `source` is exhausted, or not at all if reading it raises.
        """

    @abstractmethod
    def open(self, key: str, *, start: int = 0) -> AbstractContextManager[BinaryIO]:
        """Open the object for reading as a stream from byte `start`.  Raises `NotFoundError`.

        The stream belongs to one version: an overwrite meanwhile does not mix into it.
        """

    @abstractmethod
    def now(self) -> float:
        """Return the time in seconds since the epoch in the clock of the *store*.

        May write and remove a small probe object; may be extrapolated for some seconds by this
        process' monotonic clock.  Hosts that share a store and differ in their clocks agree here.
        """

    def local_path(self, key: str) -> str:
        """Return the path of the object's file, for programs that need one; it need not exist.

        Raises `UnsupportedOperationError` where `capabilities.files` is false.
        """
        raise UnsupportedOperationError(
            f"{self.url} lacks the capability 'files': copy {key!r} to a file of your own"
        )

    def sweep(self, older_than_seconds: float, *, dry_run: bool = False) -> tuple[str, ...]:
        """Remove what writes that never ended left behind; return the names, sorted.

        Old is judged in the store's clock.  With `dry_run` nothing is removed.  Places where an
        unfinished write leaves nothing return an empty tuple.
        """
        del older_than_seconds, dry_run
        return ()

    def checkup(self) -> Iterator[Finding]:
        """Yield what only the backend can find out about its place, for `tapstore doctor`.

        Leaves nothing behind.  What must not be looked at, or fails, is a finding, not an error.
        """
        return iter(())

    def close(self) -> None:  # noqa: B027 - optional
        """Release connections and the like.  Safe to repeat; the store is unusable afterwards."""

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class LockService(ABC):
    """Named leases: mutual exclusion that ends by itself when its holder stops renewing.

    A lease *queues* contenders and lets agents reserve things.  It cannot protect data by itself:
    a paused holder may wake up after its lease passed on.  What it touches should check the
    generation (fencing token), which rises strictly with each grant of a name.  All methods may
    be called from any thread and fail closed: in doubt a lease is not granted.
    """

    @abstractmethod
    def acquire(
        self, name: str, owner: Owner, *, ttl: float, wait: float | None = 0, reason: str = ""
    ) -> Lease:
        """Wait up to `wait` seconds (`0`: one look, `None`: for ever) and return the lease.

        Raises `LeaseUnavailableError` naming the holder when the wait ends (`locks.words`),
        `InvalidKeyError` for what `keys.check_name` refuses, and ValueError for a ttl that is not
        above 0 and at most a week, or a wait that is below 0 or no number.  A lease whose holder
        stopped renewing is taken over only after its record stayed the same for its whole ttl on
        the caller's own monotonic clock.  A caller that does not wait for so long may go by age
        instead: by the store's clock and by those of the hosts at once, never by one of them.
        """

    @abstractmethod
    def renew(self, lease: Lease) -> Lease:
        """Extend to `ttl_seconds` from the start of this call; return the lease to use from now.

        Raises `LeaseLostError` if the lease was released, forced or taken over.
        """

    @abstractmethod
    def release(self, lease: Lease) -> None:
        """Give it back.  Releasing what is already released or passed on is no error."""

    @abstractmethod
    def inspect(self, name: str) -> Holder | None:
        """Return who is seen to hold the lease, or None.

        A stale holder is still shown, and whoever was judged stale but may still rely on it.
        """

    @abstractmethod
    def names(self) -> Iterator[str]:
        """Yield the names of the leases that have a holder, sorted."""

    @abstractmethod
    def force_release(self, name: str, generation: int) -> None:
        """End exactly this grant, whoever holds it.

        Raises `ConflictError` naming the present holder if the generation is another, and
        `NotFoundError` if nobody holds the lease.
        """

    def bell(self) -> Bell | None:
        """Return a new bell for changes in what these leases belong to; None: there is none.

        For one thread at a time.
        """
        return None

    def checkup(self, tried: tuple[str, ...] = ()) -> Iterator[Finding]:
        """Yield what only the backend can find out about its server, for `tapstore doctor`.

        `tried`: names of leases that nobody will ask for again; their records may be dropped.
        What must not be looked at, or fails, is a finding, not an error.
        """
        del tried
        return iter(())

    def close(self) -> None:  # noqa: B027 - optional
        """Release connections and the like.  Safe to repeat."""


class Bell(ABC):
    """Wakes those who wait for a change, in place of looking again and again.

    A hint: it may ring for nothing, and a ring may be lost, so who waits looks by himself after a
    while.  Neither method raises because the service is away.
    """

    @abstractmethod
    def ring(self) -> bool:
        """Say that something changed; False if that certainly reached nobody."""

    @abstractmethod
    def wait(self, seconds: float) -> bool:
        """Wait for a ring; True if it is time to look early, False after `seconds`."""

    @abstractmethod
    def close(self) -> None:
        """Release connections.  Safe to repeat."""


class Clock(ABC):
    """Time as a parameter, so that a test can move it."""

    @abstractmethod
    def time(self) -> float:
        """Seconds since the epoch on this host; may jump, may be wrong."""

    @abstractmethod
    def monotonic(self) -> float:
        """Seconds that only ever grow, comparable only within this process."""

    @abstractmethod
    def sleep(self, seconds: float) -> None:
        """Return after about this long."""
