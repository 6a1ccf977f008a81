"""Changes the lock service of a session while others use it.

From the moment that the new service is named, a grant in the old one counts no more; in the new one
nothing is granted that may still be held in the old one.  A crash at any step leaves a switch that
whoever comes next goes on with.  docs/adr/0011-switching-locks.md has the interleavings.

Not promised: that a lease that is ended by force, or in a service that is not asked any more, is
not relied on by its holder until its next renewal.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tapstore.errors import (
    ConflictError,
    LeaseUnavailableError,
    NotAllowedError,
    NotFoundError,
    StoreError,
    TapstoreError,
)
from tapstore.keys import mask_url, same_service, shell_word, without_password
from tapstore.types import Holder, Owner

if TYPE_CHECKING:
    from tapstore.abc import LockService
    from tapstore.sessions.lockrecords import How
    from tapstore.sessions.lockservice import SessionLocks

_TTL_SECONDS = 10.0
_TRIAL_SECONDS = 5.0
"""Ttl of the lease that a new service is tried out with: for so long one who died there delays
the next one."""

_PAUSE_SECONDS = 0.2
_FORCED_WAIT_SECONDS = 10.0
"""How long others may be before us at a lease that was ended by force; none of them keeps it."""


@dataclass(frozen=True, slots=True)
class Switched:
    """What came of a switch."""

    former: str
    """Name or masked URL of the service before."""

    locks: str
    """Of the one in force."""

    how: How | None
    """Why nobody holds anything in the one before; None if that was known already."""


def switch(
    locks: SessionLocks,
    url: str,
    *,
    owner: Owner,
    wait: float,
    force: bool = False,
    old_is_gone: bool = False,
) -> Switched:
    """Put the service at `url` in force; goes on with a switch to it that was interrupted.

    Raises `LeaseUnavailableError` naming who holds what in the old one after `wait` seconds: the
    new one is in force then, without what is held.  Raises `ConflictError` if somebody else has
    switched to another one.
    """
    records = locks.records
    locks.give(url)
    number = locks.look()
    used = records.service(number)
    if not same_service(used, url):
        if not records.is_open(number):
            raise ConflictError(
                f"{records.where} is still being switched to {mask_url(used)}; finish that first: "
                f"`tapstore locks switch {shell_word(used)}`"
            )
        number += 1
        _try_out(locks, url, number, owner)
        record = records.create(number, without_password(url), by=owner.agent)
        if not same_service(record.locks, url):
            raise ConflictError(
                f"{records.where} was switched to {mask_url(record.locks)} by "
                f"{record.by or 'somebody else'} at {record.at}; not to {mask_url(url)}"
            )
        locks.look()
    former = mask_url(records.service(number - 1)) if number else ""
    how: How | None = None
    if not records.is_open(number):
        if old_is_gone:
            how = "unasked"
            # What is held in a service that is gone cannot be renewed, and ends by its ttl.
            locks.clock.sleep(wait)
            records.open(number, how, by=owner.agent)
        else:
            how = finish(locks, number, owner, wait=wait, force=force)
    return Switched(former, mask_url(records.service(number)), how)


def finish(
    locks: SessionLocks, number: int, owner: Owner, *, wait: float, force: bool = False
) -> How:
    """See that nobody holds anything in the service before `number`, and say so for good.

    Anybody may do it, at any time, several at once, and die anywhere.
    """
    end = locks.clock.monotonic() + wait
    how: How = "drained"
    free: set[str] = set()
    while names := _held(locks, number - 1, owner, end) - free:
        held = []
        for name in sorted(names):
            try:
                _free(locks, number - 1, name, owner, end)
            except LeaseUnavailableError:
                if not force:
                    held.append(name)
                    continue
                _force(locks, number - 1, name, owner)
                how = "forced"
            free.add(name)
        if held:
            raise _still_held(locks, number, held)
    locks.records.open(number, how, by=owner.agent)
    return how


def check_can_switch(exclusion: str, where: str) -> None:
    """Raise `NotAllowedError` for a session whose commits rest on its lock service."""
    if exclusion != "place":
        raise NotAllowedError(
            f"{where} lies on a place that ignores conditions, so its commits rest on its lock "
            "service, which cannot be changed: make a new session with the other one"
        )


def _try_out(locks: SessionLocks, url: str, number: int, owner: Owner) -> None:
    """Raise what stands in the way of a service, before everybody goes there."""
    service = locks.open(url, number)
    try:
        lease = service.acquire(
            _fence(number), owner, ttl=_TRIAL_SECONDS, wait=3 * _TRIAL_SECONDS, reason="a trial"
        )
        service.release(lease)
    finally:
        service.close()


def _fence(number: int) -> str:
    """A lease of our own in the service before `number`."""
    return f"switch-to-{number}"


def _held(locks: SessionLocks, former: int, owner: Owner, end: float) -> set[str]:
    """The names of the leases that have a holder in a former service."""
    fence = _fence(former + 1)

    def look(service: LockService) -> set[str]:
        wait = max(0.0, end - locks.clock.monotonic())
        lease = service.acquire(fence, owner, ttl=_TTL_SECONDS, wait=wait)
        try:
            return set(service.names())
        finally:
            with suppress(TapstoreError):  # else it ends by its ttl
                service.release(lease)

    while True:
        names = locks.ask(former, look)
        # A listing that lags (NFS) shows by what it lacks that it does.
        if fence in names:
            return names - {fence}
        if locks.clock.monotonic() >= end:
            raise StoreError(
                f"{mask_url(locks.records.service(former))} does not show the leases that it has "
                "just granted; try again"
            )
        locks.clock.sleep(_PAUSE_SECONDS)


def _free(locks: SessionLocks, former: int, name: str, owner: Owner, end: float) -> None:
    wait = max(0.0, end - locks.clock.monotonic())
    locks.free(former, name, owner, ttl=_TTL_SECONDS, wait=wait)


def _force(locks: SessionLocks, former: int, name: str, owner: Owner) -> None:
    holder = _holder(locks, former, name)
    if holder is not None:
        with suppress(NotFoundError, ConflictError):  # it ended, or passed on, by itself
            generation = holder.generation
            locks.ask(former, lambda service: service.force_release(name, generation))
    _free(locks, former, name, owner, locks.clock.monotonic() + _FORCED_WAIT_SECONDS)


def _holder(locks: SessionLocks, former: int, name: str) -> Holder | None:
    return locks.ask(former, lambda service: service.inspect(name))


def _still_held(locks: SessionLocks, number: int, names: list[str]) -> LeaseUnavailableError:
    new = locks.records.service(number)
    held = []
    for name in names:
        holder = _holder(locks, number - 1, name)
        by = "somebody" if holder is None else holder.owner.agent
        if holder is not None and holder.owner.host:
            by += f" on {holder.owner.host}"
        held.append(f"{name!r} by {by}")
    old = mask_url(locks.records.service(number - 1))
    return LeaseUnavailableError(
        f"{locks.records.where} uses {mask_url(new)} from now on, but still held in {old} are "
        f"{', '.join(held)}.  Nobody else gets these before they are given back there, or ended by "
        f"`tapstore locks switch {shell_word(new)} --force`; the rest can be had"
    )
