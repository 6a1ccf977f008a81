"""How the states of a session are kept: the contract, and what goes through it.

Two ways exist.  `logged`: the log is the commit, on places that can only create.  `direct`: the
Tapfile is the commit, on places with a compare-and-set of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tapstore.record import Head
from tapstore.sessions.snapshot import Snapshot
from tapstore.tapfile.model import Tapfile


@dataclass(frozen=True, slots=True)
class Draft:
    """A revision that is to be committed.  The same one may be tried again after doubt."""

    tapfile: Tapfile
    document: dict[str, Any]
    content: bytes
    """The document in JSON."""

    entry: Mapping[str, Any]
    at: float
    """Seconds since the epoch in the store's clock."""

    @property
    def write_id(self) -> str:
        assert self.tapfile.stamp is not None
        return self.tapfile.stamp.write_id


class History(Protocol):
    """The commits of a session, by number."""

    def at(self, n: int) -> Head | None:
        """Commit number n, or None if there is none yet.  Raises `FormatError` if damaged."""

    def head(self) -> Head | None:
        """The newest commit, or None if there is none at all."""

    def records(self, *, after: int = 0) -> Iterator[Head]:
        """The commits from number `after` + 1 on."""

    def content(self, head: Head) -> bytes | None:
        """The document of a commit in JSON, or None if it is no longer (or not here) kept."""

    def strays(self, head: Head) -> Iterator[str]:
        """Keys of contents that lost."""


class Revisions(Protocol):
    """Reads the newest revision and commits the next one.  For one thread that commits at a time,
    and any number that read."""

    seen: Snapshot | None
    """The newest revision that was read or committed here."""

    optimistic: bool
    """A commit may begin from what was last seen: that it is still so is found out by the write,
    and only a refusal needs a look first."""

    @property
    def history(self) -> History: ...

    def check_alive(self) -> None:
        """Raise `SessionNotFoundError` if the session was deleted, and perhaps made again."""

    def newest(self) -> Snapshot:
        """The newest revision; `seen` itself if that still is."""

    def commit(self, before: Snapshot, draft: Draft) -> Snapshot:
        """Commit `draft` as the revision after `before`.

        Raises `ConflictError` if somebody else committed that number; `OutcomeUnknownError` if
        the place never said, and then the same call may be repeated, and tells.
        """

    def collect(self, snapshot: Snapshot) -> None:
        """Remove what is no longer needed, now and then."""

    def flush(self) -> None:
        """Bring up to date what follows behind the commits."""
