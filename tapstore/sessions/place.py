"""What a session may rely on where it lies: tried out once, remembered in `.tap/session`.

A place that ignores conditions is refused, unless its users accept in words that a lock service
alone keeps writers apart.
"""

from __future__ import annotations

import os
import socket
from typing import Literal

from tapstore import registry
from tapstore.abc import Clock, Store
from tapstore.errors import NotAllowedError, UnsupportedOperationError
from tapstore.record import sha256
from tapstore.sessions import config as configs
from tapstore.sessions.config import SessionConfig, new_id
from tapstore.stores.known import KnownStore
from tapstore.stores.local import LocalStore
from tapstore.stores.locked import TTL_SECONDS, LockedStore
from tapstore.types import Capabilities, Owner

Accept = Literal["lock-only"]
"""The weaker guarantees that can be accepted."""

LOCK_ONLY = (
    f"a writer that is stopped for more than {TTL_SECONDS / 2:g} s in the middle of a write may "
    "undo what others committed meanwhile"
)
"""What accepting "lock-only" means."""


def settle(
    store: Store, locks: str | None, accept: Accept | None, clock: Clock
) -> tuple[Store, Capabilities]:
    """The store to make a session in, and what it can do.

    Raises `UnsupportedOperationError` for a place that no session can rely on.  What a mount's
    options say is for `refuse_mount`.
    """
    if accept is not None:
        if locks is None or "://" not in locks:
            raise NotAllowedError(
                "accept='lock-only' needs a lock service outside of the place, such as "
                "locks='redis://host:6379/0'"
            )
        store = _locked(store, locks, clock)
    found = store.capabilities
    if not found.create:
        raise UnsupportedOperationError(
            f"{store.url} lacks the capability 'create': it accepts the condition of an exclusive "
            "creation and ignores it, or has none, and every session needs one.  Take a place "
            "that has it; or, with a lock service, accept='lock-only' (`tapstore init --locks "
            f"redis://… --accept lock-only`), if you can live with this: {LOCK_ONLY}"
        )
    return store, found


def refuse_mount(store: Store) -> None:
    """Raise `UnsupportedOperationError` for a folder whose mount can lose what is written there."""
    # Each host has options of its own: an opener's are not those that were looked at.
    if isinstance(store, LocalStore):
        # Not at the top: its patterns cost each start some milliseconds, and who opens needs none.
        from tapstore.stores import mounts

        mounts.refuse(store.root)


def usual_locks(found: Capabilities) -> str:
    """The lock service of a session that names none, on a place that can do this."""
    return "store" if commits_directly(found) else "o_excl"


def commits_directly(found: Capabilities) -> bool:
    """Whether the Tapfile itself is what commits."""
    # Where it is a file, other programs write it, and then it can't be.
    return found.update and not found.files


def reopened(store: Store, config: SessionConfig, locks: str, clock: Clock) -> Store:
    """The store of a session, relying on what was found out when it was made.

    Raises `UnsupportedOperationError` if it was moved to a place that can't do what it needs.
    """
    if config.exclusion == "locks":
        return _locked(store, locks, clock)
    if isinstance(store, LocalStore) or config.capabilities is None:
        return store
    if config.place == store.identity:
        return KnownStore(store, config.capabilities)
    found = store.capabilities
    if not found.create or (config.commits == "direct" and not found.update):
        missing = "create" if not found.create else "update"
        raise UnsupportedOperationError(
            f"{store.url} lacks the capability {missing!r}, which session {config.session_id} had "
            f"where it was made ({config.place}): open it there, or make a new session"
        )
    return store


def _locked(store: Store, locks: str, clock: Clock) -> Store:
    # Creators know no incarnation yet, and have to exclude each other, too.
    scope = "place" + sha256(store.url.encode())[:16]
    service = registry.open_locks(locks, store, configs.LOCKS_PREFIX, scope=scope, clock=clock)
    host = socket.gethostname()
    owner = Owner(agent=f"{host}:{os.getpid()}", instance=new_id(), host=host, pid=os.getpid())
    return LockedStore(store, service, owner, clock=clock)
