"""When others see what was written: read by key, and in listings.

A read that lags is fatal: the contract of stores says that a write that returned is seen.  A
listing that lags is not, since tapstore takes each as a hint, but people and programs wait for it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from tapstore.abc import Store
from tapstore.doctor.subject import Subject
from tapstore.errors import NotFoundError
from tapstore.types import OVERWRITE, Finding

READS = "read-after-write"
LISTINGS = "listing-freshness"

ROUNDS = 3
PATIENCE_SECONDS = 5.0
"""After so long a listing is said to lag for longer."""

_PAUSE_SECONDS = 0.02


def reads(subject: Subject) -> Finding:
    """Another connection reads what was created, overwritten and deleted a moment ago."""
    stale = set()
    for number in range(ROUNDS):
        key = subject.work.key(f"read-{number}")
        for what in ("created", "overwritten"):
            data = secrets.token_bytes(8)
            subject.store.put(key, data, OVERWRITE)
            if _read(subject.other, key) != data:
                stale.add(what)
        subject.store.delete(key)
        if _read(subject.other, key) is not None:
            stale.add("deleted")
    if not stale:
        return Finding(READS, "ok", "another connection sees each write at once")
    return Finding(
        READS,
        "fatal",
        f"another connection does not see what was {' or '.join(sorted(stale))}",
        "agents would decide by what is no longer so",
        "look for a cache, proxy or replica between here and the place, and go around it",
    )


def listings(subject: Subject) -> Finding:
    """How long a new key is missing from a listing, and a removed one still in it."""
    prefix = f"{subject.work.prefix}listed/"
    lags = []
    for number in range(ROUNDS):
        key = subject.work.key(f"listed/{number}")
        subject.store.put(key, b"?", OVERWRITE)
        lags.append(_lag(subject, lambda key=key: key in _listed(subject.other, prefix)))  # type: ignore[misc]
        subject.store.delete(key)
        lags.append(_lag(subject, lambda key=key: key not in _listed(subject.other, prefix)))  # type: ignore[misc]
        if lags[-1] is None:
            break
    known = [lag for lag in lags if lag is not None]
    values = {"lag_seconds": None if None in lags else round(max(known), 3)}
    if not any(lags) and None not in lags:
        return Finding(LISTINGS, "ok", "shows and drops keys at once", values=values)
    late = f"up to {max(known):.2f} s" if None not in lags else f"more than {PATIENCE_SECONDS:g} s"
    return Finding(
        LISTINGS,
        "warning" if None in lags else "note",
        f"listings lag by {late}",
        "nothing is lost by it; agents find new tasks and sessions so much later",
        "wake them by hand, or take a place that lists what is there",
        values,
    )


def _read(store: Store, key: str) -> bytes | None:
    try:
        return store.get(key).data
    except NotFoundError:
        return None


def _listed(store: Store, prefix: str) -> set[str]:
    return {info.key for info in store.list(prefix)}


def _lag(subject: Subject, fresh: Callable[[], bool]) -> float | None:
    """Seconds until it is fresh, 0 if at once, None if that takes too long."""
    if fresh():
        return 0.0
    started = subject.clock.monotonic()
    while not fresh():
        if subject.clock.monotonic() - started > PATIENCE_SECONDS:
            return None
        subject.clock.sleep(_PAUSE_SECONDS)
    return max(subject.clock.monotonic() - started, 1e-3)
