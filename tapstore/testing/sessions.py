"""Where a test makes sessions: a place of its own, on memory, a folder, or in a bucket.

Each session is opened as an agent would open it, on a client of its own; all are closed with
the place.  Places in memory are for this process alone.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tapstore import registry
from tapstore.abc import Clock, Store
from tapstore.clock import SYSTEM_CLOCK
from tapstore.errors import TapstoreError
from tapstore.sessions import opening
from tapstore.sessions.session import Session
from tapstore.stores.readback import ReadBackStore
from tapstore.stores.retry import RetryStore
from tapstore.testing.faults import Fault, FaultyStore, SimulatedCrash

TMPFS = "/dev/shm"

Wrap = Callable[[Store], Store]
"""Puts something between tapstore and the place, say `StaleListings`."""


class SessionPlace:
    """A place that one test has for itself."""

    def __init__(
        self,
        url: str,
        *,
        storage_options: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.url = url
        """Below it, each session has its name."""
        self.storage_options = dict(storage_options or {})
        """As fsspec takes them; with credentials, if there are any."""
        self.environment = dict(environment or {})
        """What another program needs to reach the place, as environment variables."""
        self._opened: list[tuple[Session, bool]] = []

    def url_of(self, name: str = "session") -> str:
        """The URL of a session here, for `tapstore.open` or `TAPSTORE_URL`."""
        return f"{self.url}/{name}"

    def create(
        self,
        name: str = "session",
        *,
        faults: Iterable[Fault] = (),
        wrap: Wrap | None = None,
        clock: Clock = SYSTEM_CLOCK,
        **options: Any,
    ) -> Session:
        """Make a session, as `tapstore.create` does with these options.

        With `faults`, the place fails for this session as they say, and for no other.
        """
        faults = tuple(faults)
        store = self.store(name, faults=faults, wrap=wrap, clock=clock)
        session = opening.create(store, clock=clock, **options)
        return self._keep(session, faulty=bool(faults))

    def open(
        self,
        name: str = "session",
        *,
        faults: Iterable[Fault] = (),
        wrap: Wrap | None = None,
        clock: Clock = SYSTEM_CLOCK,
        **options: Any,
    ) -> Session:
        """Open a session that is there once more, as another agent would."""
        faults = tuple(faults)
        store = self.store(name, faults=faults, wrap=wrap, clock=clock)
        session = opening.open(store, clock=clock, **options)
        return self._keep(session, faulty=bool(faults))

    def store(
        self,
        name: str = "session",
        *,
        faults: Iterable[Fault] = (),
        wrap: Wrap | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> Store:
        """The store below a session, as `tapstore.open` would have it."""
        store = registry.open_store(
            self.url_of(name), storage_options=self.storage_options, clock=clock
        )
        faults = tuple(faults)
        if not faults and wrap is None:
            return store
        # Faults are the place's: what is there to cope with them has to be above.
        while isinstance(store, (RetryStore, ReadBackStore)):
            store = store.inner
        if faults:
            store = FaultyStore(store, *faults)
        if wrap is not None:
            store = wrap(store)
        return RetryStore(ReadBackStore(store, clock=clock), clock=clock)

    def close(self) -> None:
        """Close all sessions that were made or opened here."""
        while self._opened:
            session, faulty = self._opened.pop()
            # What was made to fail may fail here, too, and it is no news.
            with suppress(*(TapstoreError, SimulatedCrash) if faulty else ()):
                session.close()

    def _keep(self, session: Session, *, faulty: bool) -> Session:
        self._opened.append((session, faulty))
        return session


@contextmanager
def in_memory() -> Iterator[SessionPlace]:
    """A place in the memory of this process."""
    url = f"memory://tapstore-test-{secrets.token_hex(8)}"
    with _closing(SessionPlace(url)) as place:
        yield place
    with registry.open_store(url) as store:
        for info in list(store.list()):
            store.delete(info.key)


@contextmanager
def in_folder(folder: str | os.PathLike[str]) -> Iterator[SessionPlace]:
    """A place in a folder."""
    with _closing(SessionPlace(Path(folder).absolute().as_uri())) as place:
        yield place


@contextmanager
def tmpfs_folder() -> Iterator[Path]:
    """An empty folder on a tmpfs.  Raises `FileNotFoundError` where there is none."""
    if not os.access(TMPFS, os.W_OK):
        raise FileNotFoundError(f"no writable tmpfs at {TMPFS}")
    folder = tempfile.mkdtemp(dir=TMPFS, prefix="tapstore-test-")
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder)


@contextmanager
def in_bucket(
    bucket: str, storage_options: Mapping[str, Any], environment: Mapping[str, str]
) -> Iterator[SessionPlace]:
    """A place in a bucket that is there."""
    place = SessionPlace(f"s3://{bucket}", storage_options=storage_options, environment=environment)
    with _closing(place):
        yield place


@contextmanager
def _closing(place: SessionPlace) -> Iterator[SessionPlace]:
    try:
        yield place
    finally:
        place.close()
