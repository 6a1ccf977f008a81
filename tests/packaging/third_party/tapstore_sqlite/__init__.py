"""tapstore on SQLite: `sqlite:///path/place.db/session`, and `locks="sqlite:///path/locks.db"`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tapstore.abc import Clock, Store
from tapstore.errors import InvalidKeyError
from tapstore_sqlite.locks import SqliteLocks
from tapstore_sqlite.store import SqliteStore


def open_store(url: str, *, storage_options: Mapping[str, Any], clock: Clock) -> SqliteStore:
    """The entry point of `tapstore.stores`."""
    if storage_options:
        raise TypeError(f"sqlite:// knows no storage_options, and was given {[*storage_options]}")
    file, prefix = _split(url)
    return SqliteStore(file, prefix, clock=clock)


def open_locks(store: Store, prefix: str, *, url: str, scope: str, clock: Clock) -> SqliteLocks:
    """The entry point of `tapstore.locks`; these leases need no store."""
    del store, prefix
    file, rest = _split(url)
    if rest:
        raise InvalidKeyError(f"{url!r} goes on after the file: write sqlite:///path/locks.db")
    return SqliteLocks(file, scope, clock=clock)


def _split(url: str) -> tuple[str, str]:
    """The file, which ends in `.db`, and what lies in it."""
    head, found, prefix = url.removeprefix("sqlite://").partition(".db")
    if not head.startswith("/") or not found or prefix[:1] not in ("", "/"):
        raise InvalidKeyError(f"invalid URL {url!r}: write sqlite:///path/file.db/name")
    return head + found, prefix.strip("/")
