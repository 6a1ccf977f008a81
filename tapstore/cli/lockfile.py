"""`.tap/locks/tapfile.lock` as people see it: who holds it, for how long, and what to do."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from tapstore.cli import console
from tapstore.locks.tapfile_lock import Sighting, TapfileLock
from tapstore.sessions.config import TAPFILE_LOCK_KEY
from tapstore.types import Owner

if TYPE_CHECKING:
    from tapstore.sessions.session import Session

_BRIEF_SECONDS = 2.0
"""So long a program may well hold it for one edit."""


def lock_file(session: Session) -> TapfileLock | None:
    """The lock, to look at and to remove; None where the session does not use it."""
    if not (session.config.foreign and session.store.capabilities.files):
        return None
    return TapfileLock(session.store, TAPFILE_LOCK_KEY, Owner(agent="", instance=""))


def look(session: Session) -> Sighting | None:
    """Who holds it now, if anybody does."""
    lock = lock_file(session)
    return None if lock is None else lock.inspect()


def value(seen: Sighting | None) -> dict[str, Any] | None:
    """For `--json`; an agent that is null is a program that left no name."""
    if seen is None:
        return None
    record = seen.record
    return {
        "identity": seen.identity,
        "agent": None if record is None else record.agent,
        "host": None if record is None else record.host or None,
        "pid": None if record is None else record.pid or None,
        "age_seconds": round(seen.age_seconds, 1),
        "size": seen.size,
    }


def line(seen: Sighting) -> str:
    """Who holds it, for how long."""
    who = "a program that left no name" if seen.record is None else seen.record.agent
    empty = " (the file is empty)" if not seen.size else ""
    return f"tapfile.lock is held by {who}{empty}, for {console.span(seen.age_seconds)}"


def advice(seen: Sighting) -> str:
    """What it means that it is there for long, and what helps; empty if it is not."""
    if seen.age_seconds < _BRIEF_SECONDS:
        return ""
    command = f"tapstore locks remove-tapfile-lock {shlex.quote(seen.identity)}"
    return (
        "commits go on, but the Tapfile is neither read nor written meanwhile; if its owner is "
        f"gone: `{command}`"
    )
