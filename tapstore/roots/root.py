"""A root: a place below which there are any number of sessions, also such as are made later.

Sessions lie at any depth up to a bound, none inside another.  A root may have an inbox of its
own: a task dropped there goes to the session that it names, which is made from the root's
template if there is none.  Nothing else is stored at a root, and nothing needs to be: any folder
or prefix is one, and a session is one that has just itself.
"""

from __future__ import annotations

import errno
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from tapstore import registry
from tapstore.abc import Clock
from tapstore.clock import SYSTEM_CLOCK
from tapstore.errors import (
    FormatError,
    InvalidKeyError,
    NotAllowedError,
    NotFoundError,
    SessionNotFoundError,
    StoreError,
    TapstoreError,
)
from tapstore.keys import check_key, mask_url
from tapstore.roots import patrol, routing
from tapstore.sessions import config as configs
from tapstore.sessions import opening
from tapstore.sessions.artifactplace import ArtifactOptions
from tapstore.sessions.claim import ClaimNotEndedWarning
from tapstore.sessions.session import Session
from tapstore.sessions.waiting import Waiter
from tapstore.tasks.work import Need, Work, WorkFilter, seek

MAX_DEPTH = 4
"""How many folders deep sessions are looked for."""

_FORBIDDEN = (errno.EACCES, errno.EPERM)

_NOT_SESSIONS = ("inbox/", "artifacts/", "logs/", "handoffs/")


class Root:
    """All sessions below one place.  Made by `tapstore.root`."""

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        storage_options: Mapping[str, Any] | None = None,
        artifact_options: ArtifactOptions | None = None,
        depth: int = MAX_DEPTH,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._address = os.fspath(url).rstrip("/")
        self._options: dict[str, Any] = {
            "storage_options": storage_options,
            "artifact_options": artifact_options,
            "clock": clock,
        }
        self._depth = depth
        self.clock = clock
        self.store = registry.open_store(url, storage_options=storage_options, clock=clock)
        self.url = self.store.url
        self._open: dict[str, Session] = {}

    # Sessions

    def places(self) -> Iterator[str]:
        """Where the sessions lie now, relative to the root; `""` if the root itself is one.

        Looks at folders only, at none inside a session, at none deeper than the bound, and at
        none that begins with a dot or is named like a folder of a session (`inbox`, `logs`, …).
        A folder that this process may not look into counts as one that can't be opened.
        """
        yield from self._places("", self._depth)

    def _places(self, prefix: str, depth: int) -> Iterator[str]:
        try:
            names = list(self.store.children(prefix))
            is_session = ".tap/" in names and self._is_session(prefix)
        except StoreError as exc:
            if not prefix or exc.errno not in _FORBIDDEN:
                raise
            # Below a shared folder some are for others only (`lost+found`).  Whether a session is
            # in there can't be seen; who opens it is told why not, and the rest is found.
            is_session = True
        if is_session:
            yield prefix.rstrip("/")
            return
        if depth:
            for name in names:
                if name[-1] == "/" and name[0] != "." and name not in _NOT_SESSIONS:
                    yield from self._places(prefix + name, depth - 1)

    def _is_session(self, prefix: str) -> bool:
        try:
            self.store.head(prefix + configs.SESSION_KEY)
        except NotFoundError:
            return False
        return True

    def sessions(self) -> Iterator[Session]:
        """The sessions that there are now, opened; one that can't be opened raises."""
        for place in self.places():
            with suppress(SessionNotFoundError):  # deleted since
                yield self.open(place)

    def open(self, place: str) -> Session:
        """The session at a place below the root; it stays open until the root is closed."""
        if place not in self._open:
            url = f"{self._address}/{place}" if place else self._address
            self._open[place] = opening.open(url, **self._options)
        return self._open[place]

    def session(self, session_id: str) -> Session:
        """The session of that id.

        Raises `SessionNotFoundError`, or `NotAllowedError` if there are two, or `StoreError` if
        only one that can't be looked at could be it.
        """
        found = []
        failed: StoreError | None = None
        for place in self.places():
            try:
                session = self.open(place)
            except (SessionNotFoundError, FormatError):
                continue  # a damaged session has no id that could be asked for
            except StoreError as exc:
                failed = exc
                continue
            if session.id == session_id:
                found.append(session)
        if len(found) == 1:
            return found[0]
        if failed is not None and not found:
            raise failed
        if found:
            urls = " and ".join(mask_url(s.url) for s in found)
            raise NotAllowedError(
                f"there are {len(found)} sessions {session_id!r} below {self.url}: {urls}; open "
                "the one that is meant by its URL"
            )
        raise SessionNotFoundError(f"there is no session {session_id!r} below {self.url}")

    def create(self, place: str, **options: Any) -> Session:
        """Make a session at a place below the root; options are those of `tapstore.create`.

        Raises `InvalidKeyError` for a place where it would not be found.
        """
        url = f"{self._address}/{self._checked(place)}"
        session = opening.create(url, **{**self._options, **options})
        self._open[place] = session
        return session

    def _checked(self, place: str) -> str:
        segments = check_key(place).split("/")
        for segment in segments:
            if segment[0] == "." or f"{segment}/" in _NOT_SESSIONS:
                raise InvalidKeyError(
                    f"no session can lie at {place!r}: nobody looks for one in {segment!r}"
                )
        if len(segments) > self._depth:
            raise InvalidKeyError(
                f"no session can lie at {place!r}: nobody looks deeper than {self._depth} folders "
                f"below {self.url}"
            )
        return place

    def forget(self, place: str) -> None:
        """Close the session that was at a place and was deleted; a new one there is found again."""
        session = self._open.pop(place, None)
        if session is not None:
            session.close()

    def watch(self, *, timeout: float | None = None) -> Iterator[Session]:
        """Yield each session once, those that are there and those made later, as they appear.

        Ends when none was made for `timeout` seconds; None: never.
        """
        seen: set[str] = set()
        waiter = Waiter(self.store, self.clock, timeout=timeout)
        while True:
            new = [s for s in self.sessions() if s.config.incarnation not in seen]
            for session in new:
                seen.add(session.config.incarnation)
                yield session
            if new:
                waiter = Waiter(self.store, self.clock, timeout=timeout)
            elif not waiter.wait():
                return

    # Work

    def tasks(self) -> Iterator[str]:
        """Keys of the files in the root's own inbox that are to be delivered."""
        return routing.keys(self)

    def deliver(self, key: str) -> None:
        """Bring a task from the root's own inbox to the session that it is for.

        One for an unknown session starts it from the template; without a template, and whatever
        else can't be delivered, is set aside with the reason.  One that was written just now may
        have to wait.
        """
        routing.deliver(self, key)

    def send(self, role: str, document: Mapping[str, Any]) -> str:
        """Drop a task into the root's inbox, whole and at once; returns its key.

        It has to name its session by `session_id` or `task_id`.  Raises `FormatError`.
        """
        return routing.send(self, role, document)

    def work(
        self,
        *,
        role: str,
        agent: str,
        when_phase: str | None = None,
        needs: Iterable[Need] = (),
        ttl: float | None = None,
        timeout: float | None = None,
    ) -> Iterator[Work]:
        """Yield work for a role in any session, claimed, as it comes up.

        Ends when there was none for `timeout` seconds; None: never.  End each piece before asking
        for the next: what was not ended is released with a warning.  A session that fails is
        warned of and looked at again later.
        """
        wanted = WorkFilter(role=role, when_phase=when_phase, needs=tuple(needs))

        def look(session: Session) -> Work | None:
            if role not in session.state.refresh().tapfile.roles():
                return None
            return seek(session, wanted, agent=agent, ttl=ttl)

        for work in patrol.in_root(self, look, idle=timeout, trouble=_warn):
            try:
                yield work
            finally:
                _release(work)

    def close(self) -> None:
        """Close the sessions that were opened, and the root."""
        for session in self._open.values():
            session.close()
        self._open.clear()
        self.store.close()

    def __enter__(self) -> Root:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Root {mask_url(self.url)}>"


class SessionFailedWarning(UserWarning):
    """A session below a root could not be looked at; it is tried again later."""


def _warn(place: str, error: TapstoreError, pause: float) -> None:
    warnings.warn(
        f"{mask_url(place)}: {error}; looked at again in {pause:g} s",
        SessionFailedWarning,
        stacklevel=3,
    )


def _release(work: Work) -> None:
    if not work.claim.ended and not work.claim.lost.is_set():
        warnings.warn(
            f"the next piece of work was asked for before {work!r} was ended; it was released",
            ClaimNotEndedWarning,
            stacklevel=3,
        )
        work.release("not ended")


def root(
    url: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    artifact_options: ArtifactOptions | None = None,
    depth: int = MAX_DEPTH,
    clock: Clock = SYSTEM_CLOCK,
) -> Root:
    """All sessions below `url`, also those made later; `depth` folders deep.

    `storage_options` and `artifact_options` are those of `tapstore.open`.
    """
    return Root(
        url,
        storage_options=storage_options,
        artifact_options=artifact_options,
        depth=depth,
        clock=clock,
    )
