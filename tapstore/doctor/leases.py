"""Whether a lock service grants, refuses, renews and numbers as it should, and which one suits."""

from __future__ import annotations

import secrets

from tapstore.abc import Clock, LockService
from tapstore.doctor.report import REACH
from tapstore.errors import LeaseUnavailableError, StoreError, TapstoreError
from tapstore.sessions import place
from tapstore.types import Capabilities, Finding, Owner

LEASES = "locks"
SUITABLE = "locks-suitable"
LOCKS_REACH = f"locks-{REACH}"

_TTL_SECONDS = 10.0
NAME = "doctor"
"""Of the lease that is tried."""


def try_out(service: LockService, name: str, clock: Clock) -> Finding:
    """Two owners, one lease: acquire, be refused, renew, release, pass on with a higher number.

    `name` is that of the service, without credentials.
    """
    first, second = _owner(), _owner()
    started = clock.monotonic()
    try:
        lease = service.acquire(NAME, first, ttl=_TTL_SECONDS, reason="tapstore doctor")
        took = clock.monotonic() - started
        wrong = []
        try:
            service.acquire(NAME, second, ttl=_TTL_SECONDS)
            wrong.append("a lease that was held was granted to another one")
        except LeaseUnavailableError:
            pass
        lease = service.renew(lease)
        service.release(lease)
        passed_on = service.acquire(NAME, second, ttl=_TTL_SECONDS)
        service.release(passed_on)
        if passed_on.generation <= lease.generation:
            wrong.append(f"the number fell from {lease.generation} to {passed_on.generation}")
    except (TapstoreError, OSError) as exc:
        away = isinstance(exc, StoreError)
        return Finding(LOCKS_REACH if away else LEASES, "fatal", f"{name}: {exc}",
                       "no named lock can be had")  # fmt: skip
    if wrong:
        return Finding(LEASES, "fatal", f"{name}: {'; '.join(wrong)}",
                       "two agents can hold one lock", "use another lock service")  # fmt: skip
    return Finding(
        LEASES,
        "ok",
        f"granted ({took * 1000:.1f} ms), refused to a second, renewed, passed on",
        values={"service": name, "acquire_seconds": round(took, 6)},
    )


def suitable(found: Capabilities, locks: str | None) -> Finding:
    """Which `locks=` to take here; `locks` is the one that was asked for, without credentials."""
    if not found.create:
        return Finding(
            SUITABLE,
            "note",
            "none keeps state safe here",
            "a lock service outside only narrows the window, which has to be accepted in words",
            "take a place that keeps conditions; or locks=redis://… with --accept lock-only",
            {"suits": None},
        )
    usual = place.usual_locks(found)
    why = {
        "store": "one object each, under its compare-and-set",
        "o_excl": "files that are created exclusively"
        if found.files
        else "created exclusively; the place cannot compare and set",
    }[usual]
    external = locks is not None and "://" in locks
    suits = locks if external and locks is not None else usual
    reason = "who waits is called when it is its turn" if external else why
    advice = "" if external else "with 20 or more waiting for one lock take redis://…"
    values = {"suits": suits, "why": reason}
    return Finding(SUITABLE, "ok", f"locks={suits}: {reason}", advice, values=values)


def _owner() -> Owner:
    return Owner(agent="tapstore doctor", instance=secrets.token_hex(8))
