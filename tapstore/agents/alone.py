"""Keeps a second process of this host from working off the same hand-offs under the same id.

Both would take what either has in process for their own.  The kernel forgets it together with the
process, however that ends, so an agent that is started again at once need not wait.

Other hosts and other users are not seen; nor is anybody where the temporary folder knows no locks.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tapstore.agents.workspace import try_lock
from tapstore.errors import NotAllowedError
from tapstore.sessions.session import Session


@contextmanager
def alone(session: Session, *, role: str, agent: str) -> Iterator[None]:
    """While it lasts this is the one.  Raises `NotAllowedError` if another process is."""
    about = "\0".join((session.config.incarnation, role, agent))
    name = f"tapstore-agent-{hashlib.sha256(about.encode()).hexdigest()[:32]}.lock"
    path = os.path.join(tempfile.gettempdir(), name)
    try:
        lock = _locked(path)
    except OSError:
        yield  # somebody else's file, or no place for one: then nobody can tell
        return
    if lock is None:
        raise NotAllowedError(
            f"another process on this host works as {agent!r} on the hand-offs of {role!r} in "
            f"session {session.id}: give this one an id of its own (`--agent ID`)"
        )
    try:
        yield
    finally:
        with suppress(OSError):
            os.unlink(path)
        os.close(lock)


def _locked(path: str) -> int | None:
    """The file, locked for as long as it is open; None if another process has it."""
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        if try_lock(lock) is False:
            os.close(lock)
            return None
        if _is_at(lock, path):
            return lock
        os.close(lock)  # its owner removed it between the two steps


def _is_at(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False
