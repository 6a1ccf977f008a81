"""Examines a place and a lock service, and yields what it finds, probe by probe.

A probe that fails is a finding, and the next one goes on; only a malformed call or a missing
package raises.  Everything that was written is removed at the end, however that comes.

Whether a session can be made is asked of `sessions.place`, which also makes that decision when one
is made: the two cannot disagree.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

from tapstore import registry
from tapstore.abc import Clock, LockService, Store
from tapstore.clock import SYSTEM_CLOCK
from tapstore.doctor import (
    access,
    artifacts,
    clocks,
    conditions,
    folder,
    leases,
    peers,
    race,
    timing,
    visibility,
)
from tapstore.doctor.subject import Subject, tried
from tapstore.doctor.workplace import FOLDER, Workplace
from tapstore.errors import (
    SessionNotFoundError,
    StoreError,
    TapstoreError,
    UnsupportedOperationError,
)
from tapstore.keys import same_service, without_password
from tapstore.sessions import config as configs
from tapstore.sessions import place
from tapstore.sessions.artifactplace import ArtifactOptions, ArtifactPlaces
from tapstore.sessions.config import SessionConfig
from tapstore.sessions.place import Accept
from tapstore.stores.locked import LockedStore
from tapstore.types import Capabilities, Finding

SESSION = "session"
LEFTOVERS = "leftovers"


class Examination:
    """One look at a place.  Go through `findings` once; the rest is filled in meanwhile.

    `url`: as in `tapstore.open`.  `accept`: as in `tapstore.create`.
    `locks`: the lock service to try, by default the one that the session there uses, or that a new
    one would.  `configured_locks`: what a new one would use; if it is the same service, with the
    user and password for the one of the session.
    `with_race`: also race for creations and updates.  `peers_seconds`: also wait so long for the
    same on other machines; None: do not.
    `storage_options`, `artifact_options`: as in `tapstore.open`.
    """

    def __init__(
        self,
        url: object,
        *,
        locks: str | None = None,
        configured_locks: str | None = None,
        accept: Accept | None = None,
        with_race: bool = False,
        peers_seconds: float | None = None,
        storage_options: Mapping[str, Any] | None = None,
        artifact_options: ArtifactOptions | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._place = url
        self._locks = locks
        self._configured_locks = configured_locks
        self._accept = accept
        self._with_race = with_race
        self._peers_seconds = peers_seconds
        self._options = storage_options
        self._artifact_options = artifact_options
        self._clock = clock
        self._store = self._open()
        for service in filter(None, (locks, configured_locks)):
            # Malformed, or of a package that is missing: to be said before anything is tried.
            if "://" in service:
                registry.open_locks(service, self._store, FOLDER, scope="doctor").close()
        self.url = self._store.url
        self.session_id: str | None = None
        self.capabilities: Capabilities | None = None
        self.suits: str | None = None
        """The lock service to take here, once that is known; without credentials."""

    def findings(self) -> Generator[Finding]:
        """Yield each finding as soon as it is there."""
        work = Workplace(self._store)
        subject = Subject(self._store, self._open(), work, self._clock)
        try:
            yield from self._all(subject)
        finally:
            # The place may have been wrapped meanwhile: the wrapper closes what it wraps.
            subject.close()

    def _open(self) -> Store:
        return registry.open_store(self._place, storage_options=self._options, clock=self._clock)

    def _all(self, subject: Subject) -> Iterator[Finding]:
        reached = access.reach(subject)
        yield reached
        if reached.severity == "fatal":
            return
        stuck: tuple[str, ...] = ()
        try:
            config, remarks = self._session()
            allowed = access.permissions(subject, session=config is not None)
            yield allowed
            if access.may_write(allowed):
                subject.work.begin()
                yield from remarks
                yield from self._written(subject, config)
        finally:
            stuck = subject.work.clean()
        if stuck and allowed.values.get("write"):
            yield Finding(LEFTOVERS, "warning", f"could not be removed: {', '.join(stuck)}",
                          change="remove them")  # fmt: skip

    def _written(self, subject: Subject, config: SessionConfig | None) -> Iterator[Finding]:
        yield from tried(LEFTOVERS, lambda: _leftovers(subject), "warning")
        if config is not None and config.exclusion == "locks":
            self._accept = "lock-only"
        locks = self._locks or self._usual_locks(config)
        yield from tried("conditions", lambda: self._settle(subject, locks))
        if self.capabilities is None:
            return
        if self.capabilities.create:
            for found in tried(conditions.CREATION, lambda: [conditions.creation(subject)]):
                if found.severity == "fatal":
                    # What rests on it need not be tried.
                    self.capabilities = replace(self.capabilities, create=False)
                yield found
        for name, probe in (
            (conditions.PUT, conditions.conditional_put),
            (conditions.DELETE, conditions.conditional_delete),
            (visibility.READS, visibility.reads),
        ):
            yield from tried(name, lambda probe=probe: [probe(subject)])  # type: ignore[misc]
        yield from tried(visibility.LISTINGS, lambda: [visibility.listings(subject)], "warning")
        if self.capabilities.files:
            yield from tried(folder.FILES, lambda: [folder.files(subject)])
            yield from tried(folder.MOUNT, lambda: folder.mount(subject))
        yield from tried("backend", subject.raw.checkup, "warning")
        yield from tried(clocks.CLOCK, lambda: [clocks.check(subject)], "warning")
        if self.capabilities.create:
            yield from tried(timing.LATENCY, lambda: [timing.latency(subject)], "warning")
        yield from self._lock_service(subject, locks)
        if config is not None and config.artifacts:
            yield from self._artifacts(config)
        if self._with_race and self.capabilities.create:
            where = subject.store if self._accept else self._place
            yield from tried(race.RACE, lambda: [race.race(subject, where, self._options)])
        if self._peers_seconds is not None and self.capabilities.create:
            seconds = self._peers_seconds
            yield from tried(peers.PROBE, lambda: peers.meet(subject, seconds))

    def _settle(self, subject: Subject, locks: str | None) -> Iterator[Finding]:
        """Have it decided, as for a new session, whether one can be made here."""
        try:
            store, self.capabilities = place.settle(self._store, locks, self._accept, self._clock)
        except UnsupportedOperationError as exc:
            self.capabilities = self._store.capabilities
            seen, _, change = str(exc).partition(": ")[2].partition(".  ")
            yield Finding(conditions.CREATION, "fatal", seen, "no session can be made here", change)
            return
        subject.store = store
        if isinstance(store, LockedStore):
            yield Finding(
                conditions.CREATION,
                "warning",
                f"a lock service alone keeps writers apart (accept='{self._accept}')",
                place.LOCK_ONLY,
                "take a place that keeps conditions",
            )

    def _session(self) -> tuple[SessionConfig | None, Iterable[Finding]]:
        """The session that is there, and what it remembers of its place."""
        try:
            config = configs.load(self._store)
        except (SessionNotFoundError, StoreError):
            return None, []  # why it cannot be read is for the permissions to tell
        except TapstoreError as exc:
            return None, [Finding(SESSION, "fatal", str(exc))]
        self.session_id = config.session_id
        return config, tried(SESSION, lambda: [self._remembered(config)])

    def _remembered(self, config: SessionConfig) -> Finding:
        known = config.capabilities
        if known is None or config.exclusion == "locks" or known == self._store.capabilities:
            return Finding(SESSION, "ok", f"{config.session_id}; the place is as it remembers it")
        return Finding(
            SESSION,
            "fatal",
            f"{config.session_id} remembers of this place: {_words(known)}; what is there now: "
            f"{_words(self._store.capabilities)}",
            "it relies on what it remembers",
            "find out what was changed on the server",
        )

    def _usual_locks(self, config: SessionConfig | None) -> str | None:
        configured = self._configured_locks
        if config is None or (configured and same_service(config.locks, configured)):
            return configured
        return config.locks

    def _lock_service(self, subject: Subject, locks: str | None) -> Iterator[Finding]:
        assert self.capabilities is not None
        shown = None if locks is None else without_password(locks)
        finding = leases.suitable(self.capabilities, shown)
        self.suits = finding.values.get("suits")
        yield finding
        tried = locks or (place.usual_locks(self.capabilities) if self.capabilities.create else "")
        if tried:
            yield from self._leases(subject, tried)

    def _artifacts(self, config: SessionConfig) -> Iterator[Finding]:
        places = ArtifactPlaces(
            self._store,
            config,
            storage_options=self._options,
            artifact_options=self._artifact_options,
            clock=self._clock,
        )
        with closing(places):
            yield from artifacts.examine(places, self._clock)

    def _leases(self, subject: Subject, locks: str) -> Iterator[Finding]:
        try:
            opened = _service(subject, locks, self._clock)
        except UnsupportedOperationError as exc:
            yield Finding(leases.LEASES, "fatal", str(exc), "no named lock can be had")
            return
        with closing(opened) as service:
            yield leases.try_out(service, without_password(locks), self._clock)
            yield from tried(leases.LEASES, lambda: service.checkup((leases.NAME,)), "warning")


def _service(subject: Subject, locks: str, clock: Clock) -> LockService:
    prefix = f"{FOLDER}/{subject.work.name}/locks"
    return registry.open_locks(
        locks,
        subject.work.watched(subject.store),
        prefix,
        scope=f"doctor{subject.work.name}",
        clock=clock,
    )


def _leftovers(subject: Subject) -> Iterator[Finding]:
    removed = subject.work.remove_leftovers()
    if removed:
        yield Finding(
            LEFTOVERS,
            "note",
            f"removed {len(removed)} keys that an examination which was cut short had left",
            values={"removed": len(removed)},
        )


def _words(found: Capabilities) -> str:
    can = [name for name in ("create", "update", "conditional_delete") if getattr(found, name)]
    return ", ".join(can) or "nothing"
